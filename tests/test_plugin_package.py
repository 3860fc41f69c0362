"""A package of somebody else's brings a model and a task by entry points, and both work from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LADDER = [sys.executable, "-m", "chomsky_ladder"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example package is installed beside the project, without touching it."""
    site, build = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("build")
    subprocess.run(["cp", "-r", str(HERE / "example_plugin"), str(build)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, "--target", str(site), str(build / "example_plugin")], check=True)
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


def test_a_package_from_end_to_end(installed: dict[str, str], tmp_path: Path) -> None:
    def ladder(*words: str) -> str:
        command = subprocess.run([*LADDER, *words], env=installed, cwd=tmp_path, capture_output=True, text=True)
        assert command.returncode == 0, command.stdout + command.stderr
        return command.stdout

    listing = json.loads(ladder("list", "--json"))
    assert "first_symbol" in {task["name"] for task in listing["tasks"]}
    assert "running_mean" in {model["name"] for model in listing["models"]}
    assert listing["problems"] == []
    assert "first_symbol: conforms" in ladder("check", "first_symbol")
    assert "running_mean: conforms" in ladder("check", "running_mean")
    sizes = ("--train.steps", "20", "--train.batch", "8", "--eval.test", "16", "--eval.validation", "16")
    options = (*sizes, "--model.d-model", "8", "--eval.extrapolate", "64", "--exec.results", str(tmp_path))
    result = json.loads(ladder("run", "first_symbol", "running_mean", *options, "--json", "--quiet"))
    assert result["status"] == "done"
    assert result["state_bytes"] == 2 * (8 * 4 + 8)  # two blocks of eight fp32 sums and one count
    assert "running_mean" in ladder("table", "--results", str(tmp_path))
