"""A class by its name in place of a model's: found, run, remembered, and refused in one line where it does not work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config.classes import is_class
from chomsky_ladder.harness.config.origin import origin
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.scripts import runs_of
from chomsky_ladder.harness.train.build import load
from chomsky_ladder.models.block import Context

LAYERS = '''"""Layers of a project of its own."""

import torch
from torch import nn


class Heads(nn.Module):
    """Causal attention of torch's own."""

    cost, version = "quadratic", 3

    def __init__(self, width, heads=2):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    @property
    def device(self):
        return "anywhere"

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)


class Needy(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.out = nn.Linear(width, width * heads)

    def forward(self, x):
        return self.out(x)


class Thin(nn.Module):
    def __init__(self):
        super().__init__()


class Odd(nn.Module):
    sees = "tomorrow"


class NoModule:
    pass


def same(x):
    return x
'''
SMALL = "--protocol quick --train.steps 4 --train.batch 4 --eval.test 8 --eval.validation 8 --model.d-model 8 --quiet"
WORD = "grove.layers:Heads"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package that is not installed, where somebody works."""
    (tmp_path / "grove").mkdir()
    (tmp_path / "grove" / "__init__.py").touch()
    (tmp_path / "grove" / "layers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "grove"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def ladder(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in its own process, which has not imported any class yet."""
    command = [sys.executable, "-m", "chomsky_ladder", *words]
    root = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("word", "whether"),
    [("a.b:C", True), ("a.py:C", True), ("/x/a.b:C_1", True), ("lstm", False), ("a:", False), ("a:b.c", False)],
)
def test_what_is_the_name_of_a_class(word: str, whether: bool) -> None:
    assert is_class(word) == whether


def test_a_class_is_a_model_whose_arguments_are_its_settings(project: Path) -> None:
    cls = find_model(WORD)
    assert cls is find_model(WORD) is find_model("grove_layers_heads"), "registered once"
    assert (cls.cost, cls.version, cls.device, cls.stepwise) == ("quadratic", 3, "any", False)
    one, other = (preset_run("parity", WORD, protocol="quick") for _ in range(2))
    assert one.run_id == other.run_id and one.run_id.startswith("parity-grove_layers_heads-s0-")
    spelled = [Run.from_plain(_with_args(one, args)) for args in ('{"heads":4}', '{ "heads" : 4 }')]
    assert spelled[0].run_id == spelled[1].run_id != one.run_id, "however it is spelled"
    assert spelled[0].model.module().inner.num_heads == 4
    assert one.plugins == [f"{project}/{WORD}"], "where another process, elsewhere, finds it"
    found = origin(cls)
    assert found is not None and [path.name for path in found.files] == ["layers.py"]


def _with_args(run: Run, args: str) -> dict:
    tree = run.plain()
    return tree | {"model": tree["model"] | {"args": args}}


def test_a_file_beside_the_script_of_a_sweep_is_found(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = project / "grove" / "some.py"
    script.write_text(
        f"from chomsky_ladder import grid\ndef runs():\n    return grid('parity', {'layers.py:Heads'!r})\n"
    )
    monkeypatch.chdir("/")
    assert {run.model.name for run in runs_of(str(script))} == {"layers_heads"}
    with pytest.raises(ValueError, match=r"leaves\.py:Heads does not import: FileNotFoundError"):
        find_model("leaves.py:Heads")


@pytest.mark.full
def test_a_run_is_remembered_with_its_class(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    results, elsewhere = str(project / "results"), tmp_path_factory.mktemp("elsewhere")
    assert main(["run", "parity", WORD, *SMALL.split(), "--exec.results", results]) == 0
    (folder,) = (project / "results" / "runs").iterdir()
    made = json.loads((folder / "result.json").read_text())["provenance"]["plugins"]["model grove_layers_heads"]
    assert made["from"] == "grove.layers" and len(made["sha256"]) == 12
    model, task, _ = load(folder.name, results=results)
    assert model(torch.tensor([[1, 2]]), Context()).shape == (1, 2, len(task.vocab))

    command = ["errors", "parity-grove", "--results", results]
    untold = ladder(elsewhere, *command)
    assert untold.returncode == 2 and untold.stderr.count("\n") == 1
    assert untold.stderr.endswith(f"if you trust it: --plugin {project}/{WORD}\n")
    done = ladder(elsewhere, *command, "--plugin", f"{project}/{WORD}")
    assert done.returncode == 0 and "accuracy by answer slot" in done.stdout, done.stderr


def test_an_edited_class_is_not_the_one_a_result_was_made_with(project: Path) -> None:
    words = ["run", "parity", "grove/layers.py:Heads", *SMALL.split()]
    assert main(words) == main(words) == 0
    with (project / "grove" / "layers.py").open("a") as file:
        file.write("EDITED = True\n")
    assert main(words) == 2
    (project / "grove" / "layers.py").write_text(LAYERS)
    assert main(words) == 0, "put back, it is"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["grove.layers:Haeds"], "grove.layers has no class 'Haeds'; did you mean Heads?"),
        (["grove.layers:zzz"], "grove.layers has no class 'zzz'; there are Heads, Needy, Thin, Odd"),
        (["grove.leaves:Heads"], "plugin grove.leaves:Heads does not import: ModuleNotFoundError: No module named"),
        (["layers.py:Heads"], "plugin layers.py:Heads does not import: FileNotFoundError: there is no such file"),
        (["grove.layers:NoModule"], "grove.layers:NoModule is no nn.Module, which a model is made of"),
        (["grove.layers:same"], "grove_layers_same is no nn.Module and no function that makes one: at d_model=8 it"),
        (["grove.layers:Odd"], "grove_layers_odd: sees is one of past, prompt, all, not 'tomorrow'"),
        (["chomsky_ladder.models.lstm:LSTMConfig"], "is a model's config: put @register on it, and name the model by"),
        ([WORD, "--model.args", "[2]"], "args must be a JSON object such as '{\"heads\": 2}'"),
        (
            [WORD, "--model.args", '{"hands": 2}'],
            "Heads(8, hands=2): got an unexpected keyword argument 'hands'. It is",
        ),
        ([WORD, "--model.args", '{"heads": 3}'], "cannot be made at d_model=8: AssertionError: embed_dim must be div"),
        (["grove.layers:Needy"], "Needy(8): missing a required argument: 'heads'. It is given the width and --model"),
        (["grove.layers:Thin"], "Thin(8): too many positional arguments. It is given the width and --model.args, a"),
        (
            ["grove.layers:Needy", "--model.args", '{"heads": 2}'],
            "Needy must return a tensor of its input's shape (2, 8, 8), not (2, 8, 16)",
        ),
    ],
)
def test_mistakes_are_one_line_before_any_work(words: list[str], says: str, project: Path, capsys: Capture) -> None:
    assert (
        main(["run", "parity", words[0], *SMALL.split(), *words[1:], "--exec.results", str(project / "results")]) == 2
    )
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1, said
    assert not list(project.glob("results/runs/*")), "something was written before the mistake was seen"


def test_every_command_that_takes_a_model_takes_a_class(project: Path, capsys: Capture) -> None:
    assert main(["describe", WORD]) == main(["check", WORD]) == 0
    assert "Layers of a project of its own." in capsys.readouterr().out
    assert {run.model.name for run in climb_runs(climber(find_model(WORD)), seeds=1)} == {"grove_layers_heads"}
    assert main(["climb", "grove.layers:Heds"]) == main(["throughput", "--models", "grove.layers:Heds"]) == 2
    assert capsys.readouterr().err.count("did you mean Heads?") == 2
