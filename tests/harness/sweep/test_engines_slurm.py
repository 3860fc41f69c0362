"""The engine of Slurm: what it submits, each refusal, and the jobs in `ladder status`.

Programs of Slurm are stand-ins here. Jobs that end in any way are in test_engines_slurm_ends.py, and a real Slurm is in
test_engines_slurm_real.py.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store.slurm_jobs import job_of_run, log_of, note_job
from chomsky_ladder.harness.sweep.engines import slurm, worker
from chomsky_ladder.harness.sweep.engines.base import Ended, Job, Said, Started, engine_of
from chomsky_ladder.harness.sweep.engines.slurm_options import SlurmOptions, minutes_of, more_options
from chomsky_ladder.harness.sweep.sweep import carry_out, sweep
from support.engine_jobs import assert_equal_bits, cell, settings_at
from support.records_by_hand import folder_of, result_of

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

SBATCH = """#!/bin/sh
[ -e {folder}/refuses ] && {{ cat {folder}/refuses >&2; exit 1; }}
cp "$1" {folder}/script
echo Submitted batch job 12
"""
SQUEUE = """#!/bin/sh
cat {folder}/queue
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A PATH with stand-ins for Slurm's programs alone: sbatch keeps its script, squeue prints the file `queue`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "srun": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "ASK_EVERY", 0.0)
    monkeypatch.setattr(slurm, "_LOOK_EVERY", 0.0)
    return folder


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("90", 90), ("90:01", 91), ("4:00:00", 240), ("0:00:30", 1), ("1-12", 2160), ("1-12:30", 2190), ("2-0:0:1", 2881)],
)
def test_time_limits_are_read_as_slurm_reads_them(limit: str, minutes: int) -> None:
    assert minutes_of(limit) == minutes


@pytest.mark.parametrize("limit", ["", "0", "1x", "1:2:3:4", "-5", "1-", "1.5", "UNLIMITED", "٣"])
def test_a_malformed_time_limit_is_refused(limit: str) -> None:
    with pytest.raises(ValueError, match=r"^--time is a time limit such as 90 \(minutes\), 4:00:00 or 1-12:00:00, not"):
        SlurmOptions(time=limit)


def test_more_options_of_sbatch() -> None:
    assert more_options('account=me --mem=8G comment="two words" exclusive') == {
        "account": "me",
        "mem": "8G",
        "comment": "two words",
        "exclusive": True,
    }
    for words in ("8G", "mem:8G =", 'a="'):
        with pytest.raises(ValueError, match="--sbatch is a list of options such as"):
            SlurmOptions(sbatch=words)


def refused(folder: Path, capsys: Capture, *words: str) -> str:
    """Return the one line with which a sweep is refused before any work."""
    script = folder / "mine.py"
    script.write_text("from support.engine_jobs import cell\ndef runs():\n    return [cell(), cell(seed=1)]\n")
    command = ["sweep", str(script), "--engine", "slurm", "--exec.results", str(folder / "results"), "--quiet"]
    assert cli.main([*command, *words]) == 2
    said = capsys.readouterr()
    assert not list(folder.rglob("config.json")) and said.out == ""
    return said.err.splitlines()[-1].removeprefix("ladder: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--time soon", "--time is a time limit such as 90 (minutes), 4:00:00 or 1-12:00:00, not 'soon'"),
        ("--gpus 2", "--gpus is 0 or 1, since a pack trains on one GPU, not 2"),
        ("--jobs -1", "--jobs must not be negative, not -1"),
        ("--gpus 1 --exec.device cpu", "exec.device=cpu with --gpus 1: --gpus 0 trains on the CPU of a job, --gpus 1"),
        ("--gpus 1", "there is no GPU here to find out how many runs fit one: say --exec.pack"),
    ],
)
@pytest.mark.each_time(5)
@pytest.mark.usefixtures("programs")
def test_options_are_refused(tmp_path: Path, capsys: Capture, monkeypatch: Patch, words: str, message: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused(tmp_path, capsys, *words.split()).startswith(message)


def test_what_is_not_there_is_refused(programs: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert refused(tmp_path, capsys) == "--engine slurm needs the package submitit: pip install 'chomsky-ladder[slurm]'"
    (programs / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert refused(tmp_path, capsys) == "Slurm does not answer here: `squeue` says why"
    (programs / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(programs))
    message = "there is no sbatch here: start this on a machine of Slurm, or say --executor local"
    assert refused(tmp_path, capsys, "--executor", "slurm") == message


def test_what_sbatch_refuses_is_a_line_and_leaves_nothing(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("submitit")
    (programs / "refuses").write_text("sbatch: error: invalid partition specified: nope\nsbatch: error: It failed\n")
    message = "sbatch refuses the jobs: invalid partition specified: nope"
    assert refused(tmp_path, capsys, "--partition", "nope") == message
    assert list((tmp_path / "results" / "slurm").iterdir()) == []


@pytest.fixture
def as_worker(monkeypatch: Patch) -> None:
    """Let a test do a job's work in its own process."""
    monkeypatch.setattr(worker, "_working", False)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("as_worker")
def test_what_is_submitted_trains_the_serial_bits(programs: Path, tmp_path: Path) -> None:
    submitit_utils = pytest.importorskip("submitit.core.utils")
    results, runs = tmp_path / "results", [cell(seed=seed) for seed in range(3)]
    options = SlurmOptions(partition="low", time="2:00:00", jobs=2, at_once=1, sbatch="mem=2G exclusive")
    jobs = [Job(number, (run,)) for number, run in enumerate(runs, start=1)]
    chosen, own = engine_of(options)
    with chosen.open(settings_at(results), own) as crew:
        assert crew.workers == 1
        events = crew.events(jobs)
        plan = next(events)
        assert not (programs / "script").exists(), "what will be submitted is said first"
        assert plan == Said("2 jobs for 3 runs, up to 2 runs a job, at most 120 min a job on partition low")
        assert next(events) == Said(f"submitted to Slurm as 12; logs: {results / 'slurm'}; states: `ladder status`")
        wanted = {"array=0-1%1", "cpus-per-task=1", "exclusive", "job-name=ladder", "mem=2G", "partition=low"}
        wanted |= {"requeue", "signal=USR1@120", "time=120", f"error={results}/slurm/%A_%a_0_log.err"}
        script = (programs / "script").read_text()
        assert wanted <= {line.removeprefix("#SBATCH --") for line in script.splitlines()} and "gpus" not in script
        assert "_log.err --cpus-per-task=1 " in script.splitlines()[-1], "srun does not take it from its job"
        assert job_of_run(results) == {runs[0].run_id: "12_0", runs[1].run_id: "12_1", runs[2].run_id: "12_0"}
        (programs / "queue").write_text("12_0|RUNNING|None\n12_1|RUNNING|None\n")
        assert [next(events), next(events)] == [Started(jobs[0]), Started(jobs[1])]
        for name in ("12_0", "12_1"):
            submitit_utils.DelayedSubmission.load(results / "slurm" / f"{name}_submitted.pkl").result()
        worker._working = False
        ended = [event for event in events if isinstance(event, Ended)]
    assert [(event.job.number, event.fates[0].status) for event in ended] == [(1, "done"), (3, "done"), (2, "done")]
    sweep(runs, settings_at(tmp_path / "serial"), quiet=True)
    for run in runs:
        assert_equal_bits(run, results, tmp_path / "serial")


def test_a_gpu_is_asked_for_and_used(programs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """The machine of the command may have none."""
    submitit_utils = pytest.importorskip("submitit.core.utils")
    settings = replace(settings_at(tmp_path, pack=2), device="cuda")
    monkeypatch.setattr(slurm, "states", lambda: {"12": "CANCELLED"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    report = carry_out([cell(), cell(seed=1)], settings, engine=SlurmOptions(gpus=1))
    assert "the time it will take is not known" in capsys.readouterr().err, "there is one pack for all workers"
    assert list(report.of("failed").values()) == ["stopped: its job 12 was cancelled"] * 2
    assert "#SBATCH --gpus-per-node=1\n" in (programs / "script").read_text()
    (packs, settings, _) = submitit_utils.DelayedSubmission.load(tmp_path / "slurm" / "12_submitted.pkl").args
    assert settings.device == "cuda:0" and [len(trees) for _, trees in packs] == [2]


def test_status_shows_jobs_and_their_states(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    runs, results = [cell(seed=seed) for seed in range(4)], tmp_path / "results"
    folder_of(results, runs[0]).finish(result_of(runs[0], steps=40))
    (results / "slurm").mkdir()
    note_job(results, "7_0", [runs[0].run_id, runs[1].run_id])
    note_job(results, "7_1", [runs[2].run_id, runs[3].run_id])
    note_job(results, "8", [runs[2].run_id])
    with (results / "slurm" / "jobs.jsonl").open("a") as file:
        file.write('{"job": "9", "runs": 3}\n[]\n{"job": ')
    (programs / "queue").write_text("7_0|RUNNING|None\n8|PENDING|QOSMaxJobsPerUserLimit|more\n")
    assert cli.main(["status", "--results", str(results)]) == 0
    said = capsys.readouterr().out
    rows = [line.split(f"  {results}")[0].strip() for line in said.partition("jobs of Slurm\n")[2].splitlines()]
    assert [" ".join(row.split()) for row in rows] == [
        "7_0 RUNNING 1 of 2 runs done",
        "7_1 GONE 0 of 1 run done",
        "8 PENDING (QOSMaxJobsPerUserLimit|more) 0 of 1 run done",
    ]
    assert f"{results}/slurm/7_0_0_log.err" in said
    assert cli.main(["status", "--results", str(results), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["jobs"][0]
    assert first == {"job": "7_0", "state": "RUNNING", "runs": 2, "done": 1, "log": str(log_of(results, "7_0"))}
    (programs / "squeue").unlink()
    assert cli.main(["status", "--results", str(results)]) == 0
    assert "unknown: squeue does not answer" in capsys.readouterr().out
