"""The package as a library: its names, strings to look at, a grid with changes, records as frames, a script's error."""

import importlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import chomsky_ladder
from chomsky_ladder import Exec, grid, preset_run, records, sample, table
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.parity import Parity
from support.records_by_hand import frame, record

LAZY = """
import sys, chomsky_ladder, chomsky_ladder.models, chomsky_ladder.tasks
assert "torch" not in sys.modules and "pandas" not in sys.modules
from chomsky_ladder import grid, sweep, load, table
assert "wandb" not in sys.modules and "matplotlib" not in sys.modules
"""
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("package", ["chomsky_ladder", "chomsky_ladder.models", "chomsky_ladder.tasks"])
def test_every_name_is_there_and_stands_in_the_list(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == dir(module)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Residuel'"):
        _ = module.Residuel


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_refuses_to_run_without_its_guards() -> None:
    command = [sys.executable, "-O", "-c", "import chomsky_ladder"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("ladder: -O and PYTHONOPTIMIZE remove the assertions")
    assert done.stderr.count("\n") == 1


def test_its_types_are_for_others_too() -> None:
    assert (Path(chomsky_ladder.__file__).parent / "py.typed").exists()


def test_a_sample_is_for_people_and_for_models() -> None:
    some = sample("reverse_string", 4, length=9, settings={"num_symbols": 2})
    assert len(some) == len(some.strings) == 4 and str(some).count("\n") == 3
    left, _, right = some.strings[0].partition("  ->  ")
    assert left.split()[:4] == right.split()[::-1]
    model = preset_run("reverse_string", "lstm", protocol="quick").model.build(len(some.task.vocab))
    assert model(some.batch.tokens_BL).shape == (4, 8, len(some.task.vocab))
    assert torch.equal(sample(Parity(), 5).batch.tokens_BL, sample("parity", 5).batch.tokens_BL)
    for mistake, says in (({"n": 0}, "must lie in 1..1000000"), ({"settings": {"size": 1}}, "task has no setting")):
        with pytest.raises(ValueError, match=says):
            sample("parity", **mistake)


def test_a_model_needs_no_context_where_nothing_is_padding() -> None:
    model = preset_run("parity", "transformer", protocol="quick").model.build(3)
    tokens = torch.tensor([[1, 2, 1]])
    assert torch.equal(model(tokens), model(tokens, Context()))


def test_results_may_be_named_by_a_text() -> None:
    assert Exec(results="x").results == Path("x")  # pyright: ignore[reportArgumentType]
    assert Exec(results="x") == Exec(results=Path("x"))  # pyright: ignore[reportArgumentType]


def test_a_grid_takes_changes() -> None:
    runs = grid("word_problem", "lstm", protocol="xlstm_cpu", overrides={"train.steps": 9, "task.group": "S3"}, seeds=2)
    assert len(runs) == 4 and {(run.train.steps, run.task.group) for run in runs} == {(9, "S3")}
    one_rate = grid("parity", "lstm", protocol="xlstm_cpu", overrides={"train.lr": 5e-6, "model.d-model": 8})
    assert [(run.train.lr, run.train.lr_final, run.model.d_model) for run in one_rate] == [(5e-6, 5e-6, 8)] * 3
    assert grid("parity", "lstm") == grid("parity", "lstm", overrides={})
    for name, says in (
        ("steps", "'steps' names no setting: such are task"),
        ("train.step", "train has no setting 'step'; did you mean steps"),
        ("exec.device", "'exec.device' names no setting"),
    ):
        with pytest.raises(ValueError, match=says):
            grid("parity", "lstm", overrides={name: 1})


def test_records_and_tables_are_frames(tmp_path: Path) -> None:
    kept = frame(*(record(model="lstm", seed=seed) for seed in range(3)))
    kept.to_csv(tmp_path / "records.csv", index=False)
    found = records(str(tmp_path))
    assert isinstance(found, pd.DataFrame) and sorted(found["seed"]) == [0, 1, 2]
    made = table(results=tmp_path, models=["lstm"])
    assert isinstance(made, pd.DataFrame) and len(made) == 1
    with pytest.raises(ValueError, match="models is a list of names: \\['lstm'\\]"):
        table(results=tmp_path, models="lstm")
    with pytest.raises(ValueError, match="tasks is a list of names: \\['parity'\\]"):
        records(tmp_path, tasks="parity")
    published = records("published")
    assert len(published) > len(records("published", models=["lstm"], tasks=["par*"])) > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "def runs():\n    return None.steps\n",
            "breaks in line 2: AttributeError: 'NoneType' object has no attribute",
        ),
        ("import os\nos.nothing\ndef runs(): ...\n", "breaks in line 2: AttributeError: module 'os' has no"),
        ("def runs():\n    return {}['a']\n", "breaks in line 2: KeyError: 'a'"),
        ("run = 1\n", "has no function runs() that returns the runs of its sweep"),
    ],
)
def test_an_error_in_a_script_is_told_as_it_is(text: str, says: str, tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "mine.py"
    script.write_text(text)
    assert main(["plan", str(script)]) == 2
    said = capsys.readouterr().err
    assert f"{script} {says}" in said and said.count("\n") == 1
