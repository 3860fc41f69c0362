"""A repository with its own models/, tasks/ and harness/ packages works beside the ladder's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cases import full

FILES = {
    "models/__init__.py": "",
    "models/resnet.py": "DEPTH = 3\n",
    "tasks/vision.py": "CLASSES = 10\n",  # without an __init__, as many have it
    "harness/__init__.py": "from models.resnet import DEPTH\n",
    "harness/loop.py": "from harness import DEPTH\nfrom tasks.vision import CLASSES\n\nTOTAL = DEPTH * CLASSES\n",
    "plugin.py": """
from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMConfig
from harness.loop import TOTAL


@register
@dataclass(frozen=True, kw_only=True)
class OwnConfig(LSTMConfig):
    name, family, year, paper = "own", "recurrent", 2026, "none"

    d_model: int = TOTAL
""",
    "sweep.py": """
from dataclasses import replace

from chomsky_ladder import grid, sweep
from harness.loop import TOTAL


def small(run):
    train = replace(run.train, steps=4, batch=4, stop_after=0)
    return replace(run, train=train, eval=replace(run.eval, test=8, validation=8, every=2, batch=TOTAL))


def runs():
    return [small(run) for run in grid("parity", "own", protocol="quick")[:2]]
""",
    "tests/test_own.py": """
import models.resnet
import chomsky_ladder.models.lstm
from chomsky_ladder import preset_run
from harness.loop import TOTAL


def test_both() -> None:
    assert TOTAL == 30 and models.resnet.__name__ == "models.resnet"
    assert preset_run("parity", "lstm").model.d_model == 128
""",
}
NOTEBOOK = """
import models.resnet, harness.loop, plugin
from chomsky_ladder import load
model, task, history = load(sys.argv[1], results=pathlib.Path("out"))
print(plugin.OwnConfig().d_model, model.config.d_model, task.name, harness.loop.TOTAL, len(history) > 0)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("theirs")
    for name, content in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content)
    return root


def said(repository: Path, *words: str) -> str:
    """Return the output of a program started at the root of the repository, which finds its packages there."""
    paths = [str(repository), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("engine", ["serial", full("ray")])
def test_a_sweep_a_plugin_and_a_notebook(engine: str, repository: Path) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    out = f"out_{engine}"
    words = ("sweep", "sweep.py", "--plugin", "plugin.py", "--engine", engine, "--exec.results", out, "--json")
    report = json.loads(said(repository, "-m", "chomsky_ladder", *words))
    assert report["complete"] and report["done"] == 2
    run_id = next((repository / out / "runs").iterdir()).name
    code = f"import sys, pathlib{NOTEBOOK}".replace('"out"', f'"{out}"')
    assert said(repository, "-c", code, run_id) == "30 64 parity 30 True\n"


@pytest.mark.full
def test_their_pytest_collects_and_passes(repository: Path) -> None:
    assert "1 passed" in said(repository, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
