"""`ladder reproduce`: a recorded run comes out to the last bit, or it is said what does not and what explains it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.recorded import NotTheRun, rebuilt
from chomsky_ladder.harness.store.record import Record, collect, find_record, recorded
from chomsky_ladder.harness.train import reproduce as reproducing
from chomsky_ladder.harness.train.reproduce import compared, told_apart
from chomsky_ladder.models.kernels.choose import available
from chomsky_ladder.models.kernels.kernel import KERNELS
from support.cases import some
from support.records_by_hand import record

ROOT = Path(__file__).parents[3]
COMMITTED = recorded(ROOT / "results" / "records.csv")
SMALL = (
    *("--protocol", "quick", "--train.steps", "12", "--train.batch", "4", "--exec.log-every", "4", "--quiet"),
    *("--model.d-model", "8", "--eval.test", "24", "--eval.validation", "8", "--eval.every", "6"),
    *("--eval.lengths", "10", "20", "--eval.bins", "10", "20", "--eval.extrapolate", "30", "--eval.extrapolation", "4"),
)
Capture = pytest.CaptureFixture[str]


def trained(results: Path, *words: str) -> str:
    before = {path.name for path in results.glob("runs/*")}
    assert main(["run", *words, *SMALL, "--exec.results", str(results)]) == 0
    (run_id,) = {path.name for path in results.glob("runs/*")} - before
    collect(results)
    return run_id


def changed(source: Path, target: Path, **columns: object) -> Path:
    """The records of a folder, without its runs, and some columns otherwise."""
    frame = pd.read_csv(source / "records.csv", dtype=str, keep_default_na=False)
    target.mkdir(exist_ok=True)
    frame.assign(**{name: str(value) for name, value in columns.items()}).to_csv(target / "records.csv", index=False)
    return target


def reproduced(capsys: Capture, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["reproduce", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    trained(folder, "parity", "lstm", "--train.lr", "5e-6", "--train.lr-final", "1e-6")
    return folder


@pytest.mark.parametrize("run_id", some(COMMITTED, always=12))
def test_every_committed_record_is_still_a_run(run_id: str) -> None:
    assert rebuilt(COMMITTED[run_id]).run_id == run_id


@pytest.mark.parametrize(
    ("version", "said"), [("3", "version 3 of mad, which is version 2 here"), ("", "version 1 of mad")]
)
def test_a_record_of_another_version_of_its_protocol_is_refused(version: str, said: str) -> None:
    kept = next(record for record in COMMITTED.values() if record.protocol_name == "mad")
    settings = json.loads(kept.settings)
    assert settings.pop("protocol.version") == 2
    other = {**settings, "protocol.version": int(version)} if version else settings
    with pytest.raises(NotTheRun, match=said):
        rebuilt(kept.model_copy(update={"settings": json.dumps(other)}))


def test_a_run_comes_out_to_the_last_bit_from_its_folder_and_from_its_line(
    results: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    kernels = list(KERNELS)
    for source in (results, changed(results, tmp_path)):
        code, out, err = reproduced(capsys, "parity-lstm", "--results", str(source), "--quiet")
        assert code == 0 and "same bits: 2" in out and not err
    code, out, _ = reproduced(capsys, "lstm", "--results", str(results), "--json", "--quiet")
    tree = json.loads(out)
    assert (code, tree["verdict"], tree["unequal"], tree["beyond"]) == (0, "same bits", {}, [])
    assert tree["numbers"] > 20 and "fingerprint" not in tree["numerics"], "the pinning is no difference"
    assert before == {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} and kernels == KERNELS


def test_what_it_is_made_with_is_said_before_and_the_progress_on_the_way(
    results: Path, tmp_path: Path, capsys: Capture
) -> None:
    source = changed(results, tmp_path / "source", device="a PDP-11", torch="0.4", backends="torch.lstm gone_kernel")
    _, _, err = reproduced(capsys, "lstm", "--results", str(source), "--keep", str(tmp_path / "kept"))
    lines = err.splitlines()
    assert "12 steps took 0s of training and 0s of scoring" in lines[0] and "a PDP-11, torch 0.4" in lines[1]
    assert lines[2].startswith("another device: a PDP-11 then, ") and lines[3].startswith("another torch: 0.4 then, ")
    assert lines[4] == "another kernel gone_kernel: ran then, unknown to this code here"
    assert lines[5] == "pinned to torch.lstm gone_kernel" and "12 steps, test accuracy" in lines[6]
    assert len(list((tmp_path / "kept").glob("runs/*/result.json"))) == 1
    code, _, err = reproduced(capsys, "lstm", "--results", str(source), "--keep", str(tmp_path / "kept"))
    assert code == 2 and "has the run already" in err


def test_a_record_whose_numbers_were_changed_differs(results: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, _ = reproduced(
        capsys, "lstm", "--results", str(changed(results, tmp_path, test=0.99, test_loss=1e-4)), "--quiet"
    )
    assert code == 1 and ": differs: " in out
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [["test_loss", "0.0001"], ["test", "0.99"]]


def test_a_run_id_that_does_not_come_out_any_more(results: Path, tmp_path: Path, capsys: Capture) -> None:
    (known,) = recorded(results / "records.csv").values()
    settings = json.loads(known.settings)
    for number, (wrong, says) in enumerate(
        (
            ({"settings": json.dumps({**settings, "train.steps": 13})}, "it comes out as parity-lstm-s0-"),
            ({"settings": json.dumps({**settings, "task.version": 7})}, "made with version 7 of parity, which is vers"),
            ({"settings": json.dumps({**settings, "model.gears": 7})}, "model has no setting 'gears'"),
            ({"settings": json.dumps({**settings, "eval.file_sha256": "ab" * 32})}, "a file of strings (sha256 abab"),
            ({"settings": json.dumps({**settings, "gears": 7})}, "it has a setting 'gears', which no run has"),
            ({"model_name": "lstn"}, "unknown model 'lstn'; did you mean lstm"),
            ({"protocol_name": "slow"}, "unknown protocol 'slow'"),
        )
    ):
        source = changed(results, tmp_path / str(number), **wrong)
        code, out, err = reproduced(capsys, known.run_id, "--results", str(source))
        assert code == 2 and not out and err.count("\n") == 1, err
        assert f"this code cannot make {known.run_id} any more: " in err and says in err
        assert ("--plugin FILE" in err) == ("unknown" in says)


def test_a_config_that_is_another_runs(results: Path, tmp_path: Path) -> None:
    (known,) = recorded(results / "records.csv").values()
    config = json.loads((results / "runs" / known.run_id / "config.json").read_text())
    assert rebuilt(known, config).run_id == known.run_id
    for wrong, says in (({**config, "seed": 1}, "it comes out as"), ({**config, "task": 3}, "no run's"), ({}, "keys")):
        with pytest.raises(ValueError, match=says):
            rebuilt(known, wrong)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "ladder reproduce needs a RUN_ID"),
        (["nothing"], "no record of a run 'nothing' in "),
        (["parity"], "'parity' fits 3 records: xlstm-parity-gru-"),
        (["xlstm-parity-gru-0.001-0"], "failed, so there is nothing to reproduce: OSError: once"),
        (["lstm", "--keep", "published"], "Unrecognized"),
        (["xlstm-parity-lstm-0.001-0", "--keep", str(ROOT / "results")], "--keep takes a folder of your own"),
    ],
)
def test_mistakes_are_one_line(words: Sequence[str], says: str, tmp_path: Path, capsys: Capture) -> None:
    rows = [record(), record(seed=1), record(model="gru", status="failed", error="OSError: once")]
    pd.DataFrame(rows).to_csv(tmp_path / "records.csv", index=False)
    if says == "Unrecognized":
        words, says = ["lstm", "--kep", "x"], "--kep, x; did you mean --keep?"
    code, out, err = reproduced(capsys, *words, *(["--results", str(tmp_path)] if words else []))
    assert code == 2 and not out and says in err and err.count("\n") == 1, err


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "settings", "backend", "ran"),
    [
        ("xlstm", ["--model.ratio", "0:1"], "fused_slstm", ["fused_slstm"]),
        ("mamba", [], "reference", []),
        ("mamba", [], "auto", None),
    ],
)
def test_the_recorded_kernels_are_pinned(
    model: str, settings: list[str], backend: str, ran: list[str] | None, tmp_path: Path, capsys: Capture
) -> None:
    """A run that used slower kernels is reproduced with these, not with the fastest."""
    run_id = trained(tmp_path / "there", "parity", model, *settings, "--exec.backend", backend)
    (known,) = recorded(tmp_path / "there" / "records.csv").values()
    assert ran is None or known.backends.split() == ran
    source = changed(tmp_path / "there", tmp_path / "alone")
    code, out, _ = reproduced(capsys, run_id, "--results", str(source), "--json", "--quiet")
    tree = json.loads(out)
    assert (code, tree["verdict"]) == (0, "same bits")
    assert not {"backends", "fingerprint"} & set(tree["numerics"])


def test_an_adaptation_finds_its_base(results: Path, tmp_path: Path, capsys: Capture) -> None:
    base = trained(tmp_path, "parity", "lstm")
    assert main(["adapt", base, "even_pairs", "--rank", "2", "--exec.results", str(tmp_path), "--quiet"]) == 0
    collect(tmp_path)
    code, out, _ = reproduced(capsys, "even_pairs", "--results", str(tmp_path), "--quiet")
    assert code == 0 and "same bits" in out


def test_the_three_verdicts() -> None:
    """A loss of 5.95e-05 instead of 8.97e-05 is fine with another kernel, and a defect with the same one."""
    then = Record(**record(test_loss=8.97e-5, test=1.0, test_bins='{"40..64":1.0}', fingerprint="a", commit="c"))
    validated = {100: 0.5, 200: 1.0}

    def verdict(*, seen: dict[int, float] = validated, **changes: object) -> str:
        return compared(then, then.model_copy(update=changes), validated, seen).verdict

    assert verdict() == verdict(fingerprint="b") == "same bits"
    assert verdict(metrics='{"new":1.0}', train_seconds=9.0) == "same bits", "what the record does not have"
    assert verdict(test_loss=5.95e-5) == "differs"
    for moved in ({"fingerprint": "b"}, {"backends": "quick"}, {"torch": "3"}, {"commit": "d"}, {"dirty": True}):
        assert verdict(test_loss=5.95e-5, **moved) == "same within numerics"
    kernel = {"backends": "quick"}
    assert verdict(**kernel, seen={100: 0.51, 200: 1.0}, test_bins='{"40..64":0.9}') == "same within numerics"
    assert verdict(**kernel, test=0.97) == verdict(**kernel, validation=0.85) == "differs"
    assert verdict(**kernel, test_loss=0.03) == verdict(**kernel, status="diverged", test=None) == "differs"
    assert verdict(**kernel, parameters=1235) == verdict(**kernel, s_rand=0.25) == "differs"
    for tampered in ({"test_scaled": 0.1}, {"steps": 17}, {"test_bins": '{"40..64":0.05}'}, {"stopped_early": True}):
        assert verdict(**kernel, **tampered) == "differs", tampered
    early = then.model_copy(update={"stopped_early": True, "steps": 500, "extrapolation": '{"512":0.5}'})
    for steps, far, expected in ((600, 0.55, "same within numerics"), (17, 0.5, "differs"), (500, 0.7, "differs")):
        now = early.model_copy(update={**kernel, "steps": steps, "extrapolation": json.dumps({"512": far})})
        assert compared(early, now, {}, {}).verdict == expected
    assert verdict(seen={100: 0.5}) == verdict(seen={**validated, 300: 1.0}) == "differs"
    assert compared(then, then, {}, validated).verdict == "same bits"


def test_a_plan_says_what_it_took_and_loads_no_torch(results: Path, capsys: Capture) -> None:
    code = "import sys; from chomsky_ladder.harness.cli.main import main\n"
    code += "assert main(['reproduce', 'lstm', '--results', sys.argv[1], '--plan']) == 0 and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, str(results)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "12 steps took 0s of training" in done.stdout and f"recorded in {results} on " in done.stdout
    before = sorted(results.rglob("*"))
    _, out, _ = reproduced(capsys, "lstm", "--results", str(results), "--plan", "--json")
    assert json.loads(out)["steps"] == 12 and sorted(results.rglob("*")) == before


def test_only_a_device_torch_and_kernels_set_machines_apart() -> None:
    import torch

    here = Record(**record(device=reproducing.processor(), torch=str(torch.__version__), backends="torch.sdpa"))
    assert told_apart(here, torch.device("cpu")) == {}
    missing = next(kernel.name for kernel in available() if kernel.missing())
    there = here.model_copy(update={"torch": "1.0", "backends": missing})
    assert set(told_apart(there, torch.device("cpu"))) == {"torch", f"kernel {missing}"}


def test_an_installed_package_says_where_published_records_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chomsky_ladder.harness.store.record.published_results", lambda: None)
    with pytest.raises(ValueError, match=r"; published records are in a clone: --results CLONE/results$"):
        find_record([tmp_path], "nothing")
