"""The plan of a sweep: its packs, its expected time, and the scripts that name its runs."""

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli import sweeps
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep import plan as planning
from chomsky_ladder.harness.sweep.engines.base import ROOM, Engine
from chomsky_ladder.harness.sweep.plan import LARGEST_PACK, pack_size, packs, plan, save
from chomsky_ladder.harness.sweep.scripts import runs_of
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.pack import pack_key
from chomsky_ladder.models.lstm import LSTMConfig

Capture = pytest.CaptureFixture[str]
TRAIN = Train(steps=40, batch=4, lengths=(3, 8))
SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=20, bins=(8, 12), extrapolate=(16,), extrapolation=4)


def cell(task: str = "parity", model: str = "lstm", *, seed: int = 0, lr: float = 1e-3) -> Run:
    train = replace(TRAIN, lr=lr)
    return Run(task=find_task(task)(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def sizes(runs: list[Run], most: int) -> list[int]:
    return [len(group) for group in packs(runs, size=lambda group: most)]


def test_runs_that_differ_in_scalars_make_packs() -> None:
    tasks = ("parity", "cycle_nav")
    runs = [cell(task, seed=seed, lr=lr) for seed in range(3) for lr in (1e-2, 1e-3) for task in tasks]
    found = packs(runs, size=lambda group: 4)
    assert sorted(run.run_id for group in found for run in group) == sorted(run.run_id for run in runs)
    assert [len(group) for group in found] == [4, 4, 2, 2]
    assert [group[0].task.name for group in found] == ["parity", "cycle_nav", "parity", "cycle_nav"]
    assert all(len({pack_key(run) for run in group}) == 1 for group in found)
    assert sizes(runs, 1) == [1] * 12
    assert sizes(runs, 100) == [6, 6]


@dataclass(frozen=True, kw_only=True)
class AloneConfig(LSTMConfig):
    name = "alone"
    stackable = False


def test_what_does_not_stack_runs_alone() -> None:
    runs = [replace(cell(seed=seed), model=AloneConfig(d_model=8)) for seed in range(3)]
    assert sizes([*runs, cell(), cell(seed=1)], 9) == [1, 1, 1, 2]


def test_a_pack_is_one_run_on_a_cpu_unless_asked() -> None:
    group = [cell(seed=seed) for seed in range(3)]
    assert pack_size(Exec(device="cpu"))(group) == 1
    assert pack_size(Exec(device="cpu", pack=3))(group) == 3
    assert LARGEST_PACK == 27


def test_a_plan_covers_what_is_left(tmp_path: Path) -> None:
    runs = [cell(seed=seed) for seed in range(3)] + [cell(model="transformer")]
    settings = Exec(results=tmp_path, pack=2)
    execute(runs[0], settings, quiet=True)
    parts = plan(runs, settings)
    assert [[run.seed for run in part.runs] for part in parts] == [[1, 2], [0]]
    assert all(part.seconds > 0 and part.preparing >= 0 for part in parts)
    assert all(part.seconds >= 40 * part.step_ms / 1e3 for part in parts)
    assert not (tmp_path / "runs" / runs[1].run_id).exists()  # nothing has been started


def test_a_batch_that_fits_no_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(*rest: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 31200000000 bytes.")

    monkeypatch.setattr(planning, "_costs", costs)
    complaint = r": a step of 4 strings of up to 8 symbols does not fit into memory: lower train\.batch"
    with pytest.raises(ValueError, match=complaint):
        plan([cell()], Exec(results=tmp_path, device="cpu"))


def test_one_shape_of_each_model_is_compiled_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured gain also serves the model's other tasks, each with its own plain steps."""
    seen: list[tuple[str, str, str]] = []

    def measured(group: Sequence[Run], settings: Exec, device: torch.device) -> planning._Costs:
        seen.append((group[0].task.name, group[0].model.name, settings.compile))
        plainly = {"parity": 0.010, "cycle_nav": 0.040}[group[0].task.name]
        compiled = settings.compile != "off"
        return planning._Costs(plainly / (4 if compiled else 1), 1.0, 30.0 if compiled else 0.5)

    monkeypatch.setattr(planning, "_measured", measured)
    runs = [cell(task, model) for model in ("lstm", "transformer") for task in ("parity", "cycle_nav")]
    parts = plan(runs, Exec(results=tmp_path, compile="on"))
    assert seen == [
        (task, model, compiling)
        for model in ("lstm", "transformer")
        for task, compiling in (("parity", "off"), ("parity", "on"), ("cycle_nav", "off"))
    ]
    assert [(part.step_ms, part.preparing) for part in parts] == [(2.5, 30.0), (10.0, 30.0)] * 2
    seen.clear()
    plan(runs, Exec(results=tmp_path))  # nothing is compiled on a CPU
    assert [compiling for *_, compiling in seen] == ["auto"] * 4


def test_the_expectation_stands_beside_what_it_took(tmp_path: Path) -> None:
    runs, settings = [cell(), cell(seed=1)], Exec(results=tmp_path)
    parts = plan(runs[:1], settings)
    save(parts, tmp_path)
    results = sweep(runs, settings, quiet=True)
    seconds = [result["seconds"] for result in results]
    assert seconds[0]["expected"] == pytest.approx(parts[0].seconds + parts[0].preparing, abs=0.01)
    assert seconds[1]["expected"] is None
    assert all({"train", "prepare", "score"} < set(each) for each in seconds)
    save(plan(runs, settings), tmp_path)
    assert list(json.loads((tmp_path / "plan.json").read_text())) == [runs[0].run_id]  # what is done is kept


def test_a_sweep_trains_in_packs(tmp_path: Path, capsys: Capture) -> None:
    runs = [cell(seed=seed) for seed in range(4)] + [cell("cycle_nav")]
    results = sweep(runs, Exec(results=tmp_path, pack=3))
    assert [result["numerics"]["pack"] for result in results] == [3, 3, 3, 1, 1]
    assert [result["run_id"] for result in results] == [run.run_id for run in runs]
    said = capsys.readouterr().err
    assert "5 runs: 0 finished, 5 to do, in 3 packs" in said
    assert "[1/3] 3 of parity lstm  3 of 3 runs done, mean test accuracy" in said
    again = sweep(runs, Exec(results=tmp_path, pack=3))
    assert again == results
    assert "5 runs: 5 finished, 0 to do" in capsys.readouterr().err


SCRIPT = """
from dataclasses import replace
from chomsky_ladder import Eval, Run, Train
from chomsky_ladder.harness.config.registry import find_model, find_task

def runs():
    run = Run(
        task=find_task("parity")(), model=find_model("lstm").tiny(),
        train=Train(steps=4, batch=4, lengths=(3, 8)), eval=Eval(lengths=(8, 12), test=8, validation=8, extrapolate=()),
    )
    return [replace(run, seed=seed) for seed in range(3)]
"""


@dataclass(frozen=True, kw_only=True)
class OwnOptions:
    """The options that tell this engine from others."""


def test_a_plan_is_of_the_engine_that_will_carry_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    threes = Engine(
        name="threes",
        about="three packs at once, elsewhere",
        open=lambda settings, own: nullcontext(SimpleNamespace(workers=3)),  # pyright: ignore[reportArgumentType]
        is_here=lambda own: False,
        options=OwnOptions,
        pack_size=lambda settings, own, planned: lambda group: 2,
    )
    ROOM.explore()
    monkeypatch.setitem(vars(ROOM), "entries", [*ROOM.entries, replace(threes, module=__name__)])
    words = [str(script), "--engine", "threes", "--exec.results", str(tmp_path), "--exec.device", "cpu"]
    assert sweeps.plan_sweep([*words]) == 0
    said = capsys.readouterr().out
    assert "3 to do in 2 packs" in said and "one after the other; by threes on 3 workers about " in said
    assert said.endswith("steps were timed on this machine, those of the cluster may be others\n")
    assert sweeps.plan_sweep([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 2  # there are no more packs


def test_a_script_is_planned(tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    words = ["plan", str(script), "--exec.results", str(tmp_path / "results"), "--exec.device", "cpu"]
    assert cli.main([*words, "--exec.pack", "2"]) == 0
    said = capsys.readouterr().out
    assert "3 runs of xlstm_20k: 0 finished, 3 to do in 2 packs" in said
    assert cli.main(["status", str(script), "--results", str(tmp_path / "results")]) == 0
    assert capsys.readouterr().out.endswith("mine.py: 3 runs, 3 of them not begun\n")
    assert "3 runs in packs of 2, 1" in said and "expected:" in said and "trains alone" not in said
    assert cli.main([*words, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["runs"], tree["done"], len(tree["parts"])) == (3, 0, 3)
    assert tree["hours"] > 0
    [tried] = tree["packing"]
    assert (tried["model"], tried["size"]) == ("lstm", 3) and tried["gain"] > 0
    assert cli.main(words) == 0
    assert "each run trains alone" in capsys.readouterr().out
    assert not RunFolder(tmp_path / "results", runs_of(str(script))[0].run_id).path.exists()


def test_what_packs_would_gain_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gain is of each model's most frequent shape, with scores.

    Nothing is measured if packs are requested anyway.
    """
    runs = [cell(seed=seed) for seed in range(12)] + [cell("cycle_nav", seed=seed) for seed in range(2)]
    runs += [cell(model="gru", seed=seed) for seed in range(3)] + [cell(model="transformer")]
    parts = [planning.Part((run,), 1.0, 1.0, 0.0) for run in runs]

    def measured(group: Sequence[Run], *_: object) -> planning._Costs:
        return planning._Costs(step=0.1 if len(group) == 1 else 0.2, scoring=2.0, preparing=0.0)

    monkeypatch.setattr(planning, "_measured", measured)
    found = planning.packing(parts, Exec(device="cpu"))
    assert [(one.model, one.size) for one in found] == [("lstm", 9), ("gru", 3)]
    assert [one.gain for one in found] == pytest.approx([9 * (4 + 2) / (8 + 9 * 2), 3 * (4 + 2) / (8 + 3 * 2)])
    assert sweeps._of_packing(found)[0] == (
        "each run trains alone; --exec.pack 9 takes seeds and rates as one: "
        "lstm 2.1 times as fast in packs of 9, gru 1.3 times as fast in packs of 3"
    )
    little = sweeps._of_packing([planning.Packing("lstm", 9, 0.75)])
    assert little == ["each run trains alone: packs gain too little on this CPU (lstm 0.8 times as fast in packs of 9)"]
    assert planning.packing(parts, Exec(device="cpu", pack=2)) == [] and sweeps._of_packing([]) == []
    alone = [planning.Part((replace(cell(seed=seed), model=AloneConfig(d_model=8)),), 1.0, 1.0, 0.0) for seed in (0, 1)]
    assert planning.packing(alone, Exec(device="cpu")) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such script"),
        ("x = 1", "has no function runs"),
        ("import nothing_of_this_name", "does not import: ModuleNotFoundError"),
        ("def runs(:", "does not import: SyntaxError"),
        ("def runs(): return 3", "must return a list of runs, not int"),
        ("def runs(): return []", "returned no runs"),
        ("def runs(): return ['parity']", "must return a list of runs, not str"),
        ("def runs(): raise ValueError('no such task')", "no such task"),
        ("import sys; sys.exit()", "mine.py ends in line 1 before it returns its runs: sys.exit(None)"),
        ("def runs(): raise SystemExit(3)", "mine.py ends in line 1 before it returns its runs: sys.exit(3)"),
    ],
)
def test_a_script_that_names_no_runs(content: str | None, complaint: str, tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "mine.py"
    if content is not None:
        script.write_text(content)
    assert cli.main(["plan", str(script)]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1


@pytest.mark.parametrize(("device", "found"), [("cuda", (3, "GPUs")), ("cuda:1", (1, "GPUs")), ("cpu", (4, "cores"))])
def test_packs_at_once_are_as_many_as_there_are_devices(
    device: str, found: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert sweeps._at_once(Exec(device=device, threads=4), 9) == found
    assert sweeps._at_once(Exec(device=device, threads=4), 1)[0] == 1
