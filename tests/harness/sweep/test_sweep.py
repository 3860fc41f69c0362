"""A sweep says what there is to do, does it, says what failed; its parts, its refusals, its command."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli.sweeps import plan_sweep, sweep_script
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.registry import find_model, find_task, load_plugin
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep import sweep as sweeps
from chomsky_ladder.harness.sweep.engines import ray as ray_engine
from chomsky_ladder.harness.sweep.plan import packs
from chomsky_ladder.harness.sweep.scripts import runs_of
from chomsky_ladder.harness.sweep.sweep import carry_out, shard, sweep
from chomsky_ladder.harness.train.loop import Loop, execute, execute_together
from chomsky_ladder.harness.train.progress import Progress

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
TRAIN = Train(steps=20, batch=4, lengths=(3, 8))
SCORE = Eval(lengths=(8, 12), test=8, validation=8, every=0, bins=(8, 12), extrapolate=())


AGAIN = "start the same sweep again"


def cell(task: str = "parity", model: str = "lstm", *, seed: int = 0, train: Train = TRAIN) -> Run:
    return Run(task=find_task(task)(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def settings_at(folder: Path) -> Exec:
    return Exec(results=folder, device="cpu", log_every=5, checkpoint_every=5)


def lines(capsys: Capture) -> list[str]:
    return capsys.readouterr().err.splitlines()


def break_those(wrong: set[int], patch: Patch, error: BaseException | None = None) -> None:
    """Runs of these seeds break at once, or behind their first checkpoint."""
    visit = Loop._visit

    def breaking(self: Loop, last: int, progress: Progress) -> None:
        visit(self, last, progress)
        if self.members[0].run.seed in wrong:
            raise error or RuntimeError("broken on purpose")

    patch.setattr(Loop, "_visit", breaking)


def test_the_plan_comes_first(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs, settings = [cell(seed=seed) for seed in range(4)], settings_at(tmp_path)
    execute(runs[0], settings, quiet=True)
    with monkeypatch.context() as patched:
        break_those({1}, patched)
        sweep(runs[1:2], settings, quiet=True)
    capsys.readouterr()
    sweep(runs, settings)
    said = lines(capsys)
    assert said[0] == "4 runs: 1 finished, 3 to do: 1 to resume, 2 to start"
    unknown = "the time it will take is not known until three runs have ended; `ladder plan SCRIPT` measures it"
    assert said[1] == unknown
    assert [line.split("  ")[0] for line in said[2:5]] == [f"[{i}/3] {runs[i].run_id}" for i in (1, 2, 3)]
    assert said[5].startswith("4 runs: 4 done; this took ") and len(said) == 6
    results = sweep(runs, settings)
    assert lines(capsys) == ["4 runs: 4 finished, 0 to do"]
    assert len(results) == 4 and len(repr(results)) < 120 and isinstance(results, list)
    assert repr(sweeps.Results([None])).startswith("<results of 1 run, 0 done")


def test_the_expected_time_is_that_of_the_plan(tmp_path: Path, capsys: Capture) -> None:
    runs, settings = [cell(seed=seed) for seed in range(2)], settings_at(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps({runs[0].run_id: 4000.0, runs[1].run_id: 200.0, "another": 9.0}))
    sweep(runs, settings)
    stopping = "; Ctrl-C stops it behind its checkpoints; to go on: start the same sweep again"
    assert lines(capsys)[1] == f"expected: about 1h10m{stopping}"
    stops = replace(runs[0], train=replace(TRAIN, stop_after=1), eval=replace(SCORE, every=10))
    early = [replace(stops, seed=seed) for seed in range(2)]
    (tmp_path / "plan.json").write_text(json.dumps({run.run_id: 30.0 for run in early}))
    sweep(early, settings)
    assert lines(capsys)[1] == "expected: at most 1m00s"


def test_a_sweep_in_bf16_on_a_cpu_without_it_is_told_what_it_costs(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    run, settings = cell(seed=0), settings_at(tmp_path)
    sweep([replace(run, train=replace(run.train, precision="bf16"))], replace(settings, device="cpu"))
    assert lines(capsys)[2].endswith("--train.precision fp32 is faster, and another run")


def test_what_fails_stops_no_other_and_is_said_at_the_end(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs, settings = [cell(seed=seed) for seed in range(4)], settings_at(tmp_path)
    with monkeypatch.context() as patched:
        break_those({0, 2}, patched)
        report = carry_out(runs, settings, again="ladder sweep mine.py")
    assert (report.runs, report.done, report.complete) == (4, 2, False)
    assert list(report.of("failed")) == [runs[0].run_id, runs[2].run_id]
    said = lines(capsys)
    assert said[2].startswith(f"{runs[0].run_id} failed: RuntimeError: broken on purpose")  # as it came
    assert said[-4].startswith("4 runs: 2 done, 2 failed; this took")
    for line, run in zip(said[-3:-1], (runs[0], runs[2]), strict=True):
        assert line.startswith(f"  {run.run_id} failed: RuntimeError: broken on purpose (traceback in {tmp_path}")
    assert said[-1] == "to retry what failed: ladder sweep mine.py"
    report = carry_out(runs, settings, quiet=True)
    assert report.complete and not report.of("failed") and len(report.fates) == 2
    assert lines(capsys) == []


def test_what_no_record_can_be_made_of_stops_no_other(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs = [cell(seed=seed) for seed in range(3)]

    def vanishing(group: tuple[Run, ...], *rest: Any, **named: Any) -> Any:
        if group[0].seed == 1:
            raise ValueError("cannot write results to there")
        return execute_together(group, *rest, **named)

    monkeypatch.setattr("chomsky_ladder.harness.sweep.engines.base.execute_together", vanishing)
    results = sweep(runs, settings_at(tmp_path), quiet=True)
    assert [result and result["status"] for result in results] == ["done", None, "done"]
    assert lines(capsys) == [f"{runs[1].run_id} failed: ValueError: cannot write results to there"]


def test_diverged_is_done_and_said(tmp_path: Path, capsys: Capture) -> None:
    runs = [cell(train=replace(TRAIN, lr=1e30, clip=0.0, warmup=0.0)), cell(seed=1)]
    report = carry_out(runs, settings_at(tmp_path))
    assert report.complete and list(report.of("diverged")) == [runs[0].run_id]
    said = capsys.readouterr().err
    assert f"{runs[0].run_id} diverged at step " in said
    assert "2 runs: 1 done, 1 diverged; this took" in said and "retry" not in said
    report = carry_out([*runs, cell(seed=2)], settings_at(tmp_path))  # it diverged in an earlier sweep
    assert report.complete and "3 runs: 2 done, 1 diverged; this took" in capsys.readouterr().err


def test_a_run_held_elsewhere_is_looked_at_again(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs, settings = [cell(seed=seed) for seed in range(3)], settings_at(tmp_path)
    with RunFolder(tmp_path, runs[1].run_id).locked():
        report = carry_out(runs, settings)
    assert not report.complete and list(report.of("held")) == [runs[1].run_id]
    said = lines(capsys)
    assert said[-2].startswith("3 runs: 2 done, 1 held by another process; this took")
    assert said[-1].startswith(f"  {runs[1].run_id} is being written by process ")

    later = [cell(seed=seed) for seed in range(3, 6)]
    lock = RunFolder(tmp_path, later[0].run_id).locked()
    lock.__enter__()
    order: list[int] = []

    def releasing(group: tuple[Run, ...], *rest: Any, **named: Any) -> Any:
        order.append(group[0].seed)
        if group[0].seed == 5:  # the holder dies meanwhile
            lock.__exit__(None, None, None)
        return execute_together(group, *rest, **named)

    monkeypatch.setattr("chomsky_ladder.harness.sweep.engines.base.execute_together", releasing)
    report = carry_out(later, settings, quiet=True)
    assert report.complete and not report.of("held")
    assert order == [3, 4, 5, 3]


def test_an_interrupt_goes_through_and_the_display_ends(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs = [cell(seed=seed) for seed in range(2)]
    for stop in (KeyboardInterrupt(), SystemExit(143)):
        with monkeypatch.context() as patched:
            break_those({0}, patched, stop)
            with pytest.raises(type(stop)) as raised:
                sweep(runs, settings_at(tmp_path))
        assert raised.value is stop
        assert RunFolder(tmp_path, runs[0].run_id).failure() is None
        assert not RunFolder(tmp_path, runs[1].run_id).path.exists()
        said = lines(capsys)
        assert said[-2:] == ["stopped: 0 of 2 runs finished, 1 with a checkpoint, 1 to start", f"to go on: {AGAIN}"]


def test_a_thousand_finished_runs_are_skipped_at_once(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    base = cell()
    runs = [replace(base, seed=seed) for seed in range(1000)]
    for run in runs:
        folder = RunFolder(tmp_path, run.run_id).path
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(run.plain()))
        (folder / "result.json").write_text(json.dumps({**columns_of(run), "status": "done", "steps": run.train.steps}))
    monkeypatch.setattr(RunFolder, "result", lambda self: pytest.fail("read a result"))
    monkeypatch.setattr(sweeps, "packs", lambda runs, size: [] if not runs else pytest.fail("made packs"))
    start = time.process_time()
    assert carry_out(runs, settings_at(tmp_path)).complete
    assert time.process_time() - start < 1
    assert lines(capsys) == ["1000 runs: 1000 finished, 0 to do"]


def test_a_changed_version_is_another_run(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    run, settings = cell(), settings_at(tmp_path)
    sweep([run], settings, quiet=True)
    monkeypatch.setattr(type(run.task), "version", run.task.version + 1)
    sweep([cell()], settings)
    assert lines(capsys)[0] == "1 run: 0 finished, 1 to do: 0 to resume, 1 to start"
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"engine": "rai"}, "unknown engine 'rai'; did you mean ray?"),
        ({"engine": 3}, "3 is neither an engine's name nor its options; there are processes, ray, serial"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=complaint):
        sweep([cell()], settings_at(tmp_path), **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--gpus-per-pack", "0.5"], "--gpus-per-pack is an option of the engine ray: say --engine ray"),
        (["--engine", "ray", "--gpus-per-pack", "1.5"], "a share of one or a whole number, not 1.5"),
        (["--engine=rai"], "unknown engine 'rai'; did you mean ray?"),
    ],
)
def test_options_of_engines_are_refused_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: Capture
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    assert cli.main(["sweep", str(script), *words]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1


def test_what_no_run_can_do_is_refused_before_the_first(tmp_path: Path) -> None:
    for settings, complaint in (
        (replace(settings_at(tmp_path), capture="on"), "needs a CUDA device"),
        (replace(settings_at(tmp_path), backend="mamba_ssm"), "mamba_ssm"),
        (replace(settings_at(tmp_path / "file" / "below")), "cannot write results to"),
        (replace(settings_at(tmp_path), device="cuda:99"), "cuda:99"),
    ):
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match=complaint):
            sweep([cell("parity"), cell("parity", "mamba")], settings)
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(ValueError, match="names a run twice"):
        sweep([cell(), cell(seed=1), cell()], settings_at(tmp_path))


@pytest.mark.parametrize("parts", [1, 2, 5, 50])
@pytest.mark.parametrize("pack", [0, 4])
def test_shards_are_disjoint_cover_all_and_keep_packs(parts: int, pack: int) -> None:
    settings = Exec(device="cpu", pack=pack)
    tasks = ("parity", "cycle_nav", "even_pairs", "bucket_sort")
    runs = [cell(task, seed=seed) for seed in range(9) for task in tasks]
    found = [shard(runs, f"{i}/{parts}", settings) for i in range(1, parts + 1)]
    assert sorted(run.run_id for part in found for run in part) == sorted(run.run_id for run in runs)
    places = {run.run_id: runs.index(run) for run in runs}
    assert all(part == sorted(part, key=lambda run: places[run.run_id]) for part in found)
    for group in packs(runs, size=lambda group: pack or 1):
        assert sum(any(run in part for run in group) for part in found) == 1
    counts = [sum(run.task.name == task for run in part) for part in found for task in tasks]
    assert max(counts) - min(counts) <= (pack or 1)  # every part has its share of every cell
    assert shard(runs, f"1/{parts}", settings) == found[0]


@dataclass(frozen=True)
class Device:
    type: str = "cuda"


def test_shards_of_a_gpu_do_not_depend_on_what_fits_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sweeps, "find_device", lambda name: Device())
    monkeypatch.setattr("chomsky_ladder.harness.sweep.plan.find_device", lambda name: pytest.fail("measured"))
    runs = [cell(seed=seed) for seed in range(40)]
    assert [len(shard(runs, f"{i}/2", Exec())) for i in (1, 2)] == [27, 13]


def test_a_pack_on_a_share_of_a_gpu_is_a_share_of_a_pack(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ray_engine, "find_device", lambda name: Device())
    monkeypatch.setattr(ray_engine.torch.cuda, "is_available", lambda: True)
    sizes = []
    for share in (1.0, 0.5, 0.01, 2.0):
        options = ray_engine.RayOptions(gpus_per_pack=share)
        sizes.append(ray_engine.pack_size(Exec(), options, lambda group: 27)([]))
    assert sizes == [27, 13, 1, 27]


@pytest.mark.parametrize("which", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/4"])
def test_shards_that_are_none(which: str) -> None:
    with pytest.raises(ValueError, match="--shard takes i/n"):
        shard([cell()], which, Exec())


SCRIPT = """
from dataclasses import replace
from chomsky_ladder import Eval, Run, Train
from chomsky_ladder.harness.config.registry import find_model, find_task

def runs():
    run = Run(
        task=find_task("parity")(), model=find_model("lstm").tiny(), train=Train(steps=4, batch=4, lengths=(3, 8)),
        eval=Eval(lengths=(8, 12), test=8, validation=8, every=0, bins=(8, 12), extrapolate=()),
    )
    return [replace(run, seed=seed) for seed in range(4)]
"""


def test_the_command(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    script = tmp_path / "my sweep.py"
    script.write_text(SCRIPT)
    words = [str(script), "--exec.results", str(tmp_path / "results"), "--exec.log-every", "2"]
    with monkeypatch.context() as patched:
        break_those({1}, patched)
        assert sweep_script([*words, "--shard", "1/2"]) == 0
        assert sweep_script([*words, "--json"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("2 runs: 0 finished, 2 to do: 0 to resume, 2 to start\n")
    assert f"to retry what failed: ladder sweep '{script}' --exec.results" in said.err
    tree = json.loads(said.out)
    assert (tree["runs"], tree["done"], tree["complete"], len(tree["failed"])) == (4, 3, False, 1)
    assert next(iter(tree["failed"].values())).startswith("failed: RuntimeError: broken on purpose")
    assert sweep_script([*words, "--quiet", "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and json.loads(said.out)["complete"]
    assert sweep_script(words) == 0  # nothing to do: what there is
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("xlstm_20k (") and any(line.startswith("LSTM (") and "/4" in line for line in shown)
    assert shown[-3:] == [f"ladder {name} --results {tmp_path / 'results'}" for name in ("table", "figures", "page")]


def test_a_shard_is_planned(tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    found = []
    for which in ("1/2", "2/2"):
        assert plan_sweep([str(script), "--exec.results", str(tmp_path), "--shard", which, "--json"]) == 0
        found += [run_id for part in json.loads(capsys.readouterr().out)["parts"] for run_id in part["runs"]]
    assert sorted(found) == sorted(run.run_id for run in runs_of(str(script)))
    with pytest.raises(ValueError, match="--shard takes i/n"):
        sweep_script([str(script), "--exec.results", str(tmp_path), "--shard", "3/2"])


def test_the_command_says_which_plugins_the_runs_need(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    plugin, script = tmp_path / "plug.py", tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    load_plugin(str(plugin))
    script.write_text(SCRIPT.replace('"lstm"', '"lstm_of_mine"'))
    break_those({0}, monkeypatch)
    assert sweep_script([str(script), "--exec.results", str(tmp_path), "--exec.log-every", "2"]) == 1
    assert lines(capsys)[-1].endswith(f"--exec.log-every 2 --plugin {plugin}")


PLUGIN = """
from dataclasses import dataclass
from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMConfig

@register
@dataclass(frozen=True, kw_only=True)
class Mine(LSTMConfig):
    name = "lstm_of_mine"
"""
