"""Names that lead elsewhere, a plugin that breaks, a home that is not there: refused in a line, or no matter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.train.build import load
from chomsky_ladder.harness.train.loop import execute
from support.cases import full
from support.faults import assert_same, outcome, put_into, the_run

RUN = the_run()
NAMES = ["../../escaped", "/proc/escaped", "two\nlines", "a/b", "", "nul\0", ".hidden"]
TINY = (
    *("--train.steps", "1", "--train.batch", "2", "--model.d-model", "8", "--eval.test", "2", "--eval.validation", "2"),
    *("--eval.lengths", "8", "12", "--eval.bins", "8", "12", "--eval.extrapolate", "14", "--eval.extrapolation", "2"),
)
HOSTILE = """
from dataclasses import dataclass

from chomsky_ladder.models.base import register as register_model
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import register as register_task
from chomsky_ladder.tasks.parity import Parity


@register_{kind}
@dataclass(frozen=True, kw_only=True)
class Hostile({base}):
    name = {name!r}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that nothing happened to."""
    results = tmp_path_factory.mktemp("whole")
    execute(RUN, put_into(results), quiet=True)
    return results


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["task", "model"])
def test_a_part_with_a_hostile_name_is_refused(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name is a part of a folder's: one that leads elsewhere, or is no name, brings nothing into the registries."""
    plugin = tmp_path / "hostile.py"
    plugin.write_text(HOSTILE.format(kind=kind, base={"task": "Parity", "model": "LSTMConfig"}[kind], name=name))
    words = (name, "lstm") if kind == "task" else ("parity", name)
    results = tmp_path / "deep" / "results"
    code = cli.main(["run", *words, *TINY, "--exec.results", str(results), "--plugin", str(plugin)])
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("ladder: ") and said.count("\n") == 1
    assert "hostile.py does not import" in said
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"hostile.py"}
    assert all(name not in found for found in (all_tasks(), all_models()))


@pytest.mark.parametrize("run_id", ["../{}", "../../results/runs/{}", "{}/", "./{}", "{}\n", "*", "[a-z]*", "..", "\0"])
def test_a_hostile_run_id_finds_nothing(
    run_id: str, tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the folder of runs lies one that such an id could lead to."""
    results = tmp_path / "results"
    shutil.copytree(whole, results)
    shutil.copytree(results / "runs" / RUN.run_id, results / RUN.run_id)
    asked = run_id.format(RUN.run_id)
    for find in (lambda: find_run(results, asked), lambda: load(asked, results=results)):
        with pytest.raises(ValueError, match="no run"):
            find()
    for words in (["errors", asked], ["diff", RUN.run_id, asked], ["diff", asked, RUN.run_id]):
        assert cli.main([*words, "--results", str(results)]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("ladder: ") and said.err.count("\n") == 1


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if request.param == "unset":
        for name in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LADDER_RESULTS"):
            environment.pop(name, None)
    else:  # nobody can write below a file, not even root
        (tmp_path / "file").touch()
        environment["HOME"] = str(tmp_path / "file" / "home")
    return environment


@pytest.mark.full
@pytest.mark.parametrize("home", ["unset", full("unwritable")], indirect=True)
def test_a_run_needs_no_home(home: dict[str, str], tmp_path: Path, whole: Path) -> None:
    """A real process, with a package beside it whose plugin breaks at import."""
    site = tmp_path / "site"
    (site / "broken-1.dist-info").mkdir(parents=True)
    (site / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (site / "broken-1.dist-info" / "entry_points.txt").write_text("[ladder.tasks]\nbroken = broken_at_import\n")
    (site / "broken_at_import.py").write_text("open('was_imported', 'w')\nraise OSError('broken at import')\n")
    tree, results = tmp_path / "run.json", tmp_path / "results"
    tree.write_text(json.dumps(RUN.plain()))
    program = (
        "import json, sys; from pathlib import Path; from chomsky_ladder import Exec, Run, execute; "
        f"execute(Run.from_plain(json.loads(Path(sys.argv[1]).read_text())), {put_into(results)!r})"
    ).replace("PosixPath", "Path")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tree)],
        env=home | {"PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).parents[3])])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,  # the first process on a machine compiles the kernels
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "was_imported").exists() and "broken at import" not in done.stderr
    assert_same(outcome(results, RUN), outcome(whole, RUN))


TASK = """
from dataclasses import dataclass

from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.layout import Classification


@register
@dataclass(frozen=True, kw_only=True)
class Broken(Classification):
    name, version, level = "broken_task", 1, "regular"
    vocab, answers = ("PAD", "a", "b"), (1, 2)

    def symbols(self, draw, size_B, columns):
        return {symbols}

    def prefix_answers(self, x_BL):
        return x_BL[:, :1].expand_as(x_BL)
"""
POSITIONS = """
import torch
from torch import nn


class Short(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.positions = nn.Embedding(10, width)

    def forward(self, x):
        return x.cumsum(1) + self.positions(torch.arange(x.shape[1]))
"""


@pytest.mark.parametrize(
    ("symbols", "said"),
    [
        ("draw.integers(2, (columns + 1,)) + 1", "broken_task draws no strings: RuntimeError: "),
        ("[][columns]", "broken_task draws no strings: IndexError: list index out of range (broken.py:15)"),
        ("draw.integers(3, (columns,)) + 1", "broken_task draws a symbol 3, but names 3; see `ladder check"),
    ],
)
@pytest.mark.parametrize("command", [("run", "broken_task", "lstm", *TINY), ("sample", "broken_task")])
def test_somebodys_own_task_that_breaks(
    symbols: str, said: str, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, place = tmp_path / "broken.py", tmp_path / "results"
    file.write_text(TASK.replace("{symbols}", symbols))
    words = [*command, *(["--exec.results", str(place)] if command[0] == "run" else [])]
    try:
        assert cli.main([*words, "--plugin", str(file)]) == 2
    finally:
        all_tasks().pop("broken_task", None)
    assert f"ladder: {said}" in capsys.readouterr().err
    assert not list(place.glob("runs/*"))


def test_somebodys_own_model_that_does_not_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, place = tmp_path / "short.py", tmp_path / "results"
    file.write_text(POSITIONS)
    assert cli.main(["run", "parity", f"{file}:Short", *TINY, "--exec.results", str(place)]) == 2
    said = "cannot read 39 positions, as many as it is trained or scored on: IndexError: index out of range in self"
    assert f"{said} (short.py:12)\n" in capsys.readouterr().err
    assert not list(place.glob("runs/*"))
