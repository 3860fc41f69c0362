"""A package of somebody else's brings a model and a task by entry points, and both work from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import contextlib, io, json, sys
from chomsky_ladder.harness.cli.main import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(words) == 0, words
    print(json.dumps(said.getvalue()))
"""
SWEEP = """
from dataclasses import replace
from chomsky_ladder import grid

def small(run):
    train = replace(run.train, steps=9, batch=8, stop_after=0)
    return replace(run, train=train, eval=replace(run.eval, test=16, validation=16, every=0))

def runs():
    return [small(run) for run in grid("first_symbol", "running_mean", protocol="quick")[:2]]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example package is installed beside the project, without touching it."""
    site, build = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("build")
    subprocess.run(["cp", "-r", str(HERE / "example_plugin"), str(build)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, "--target", str(site), str(build / "example_plugin")], check=True)
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


@pytest.mark.full
def test_a_package_from_end_to_end(installed: dict[str, str], tmp_path: Path) -> None:
    sizes = ("--train.steps", "9", "--train.batch", "8", "--eval.test", "16", "--eval.validation", "16")
    same = ("--protocol", "quick", *sizes, "--train.stop-after", "0", "--eval.every", "0")  # as the sweep's runs
    options = (*same, "--model.d-model", "8", "--exec.results", str(tmp_path))
    script = tmp_path / "two_seeds.py"
    script.write_text(SWEEP)
    commands = [
        ["check", "first_symbol"],
        ["check", "running_mean"],
        ["doctor", "--json"],
        ["run", "first_symbol", "running_mean", *options, "--json", "--quiet"],
        ["table", "--results", str(tmp_path)],
        ["run", "first_symbol", "min_gru", *options, "--exec.backend", "unfolded_conv", "--json", "--quiet"],
        ["sweep", str(script), "--engine", "backwards", "--word", "so", "--exec.results", str(tmp_path)],
        ["table", "--kind", "spread", "--results", str(tmp_path)],
        ["table", "--kind", "metrics", "--results", str(tmp_path)],
        ["figures", "--results", str(tmp_path)],
        ["page", "--results", str(tmp_path)],
    ]
    process = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(process, env=installed, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    task, model, machine, trained, table, fast, _, spread, metrics, _, _ = map(json.loads, done.stdout.splitlines())
    assert json.loads(machine)["plugins"] == {"problems": "none"}
    assert "first_symbol: conforms" in task
    assert "running_mean: conforms" in model
    result = json.loads(trained)
    assert result["status"] == "done"
    assert result["state_bytes"] == 2 * (8 * 4 + 8)  # two blocks of eight fp32 sums and one count
    assert "running_mean" in table
    assert "unfolded_conv" in json.loads(fast)["backends"]
    said = [line for line in done.stderr.splitlines() if line.startswith("so: ")]
    assert len(said) == 2 and "-s1-" in said[0] and "-s0-" in said[1]
    assert "| lowest | highest |" in spread and "| first_answer | prefix |" in metrics
    drawn = [*(tmp_path / "figures").glob("*/seeds.png")]
    assert len(drawn) == 1 and all(path.with_suffix(".csv").exists() for path in drawn), "one for the one protocol"
    assert "A dot for every seed" in (tmp_path / "page.html").read_text()
