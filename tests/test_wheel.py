"""A wheel installed away from any clone does what a clone does."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import contextlib, io, json, sys
from pathlib import Path
import chomsky_ladder
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.store.files import CHECKOUT
assert not (CHECKOUT / "pyproject.toml").exists(), CHECKOUT
said = {"from": str(Path(chomsky_ladder.__file__).parents[1])}
for name, words in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0, words
    said[name] = out.getvalue()
print(json.dumps(said))
"""
SWEEP = """
from chomsky_ladder import preset_run
from dataclasses import replace

def runs():
    run = preset_run("parity", "mamba", protocol="quick")
    score = replace(run.eval, test=8, validation=8, every=0)
    return [replace(run, train=replace(run.train, steps=3, batch=4, stop_after=0), eval=score)]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no clone gets a build folder."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = ("chomsky_ladder", "harness", "models", "tasks", "pyproject.toml", "README.md", "LICENSE")
    subprocess.run(["cp", "-r", "--no-dereference", *(str(ROOT / name) for name in names), str(copy)], check=True)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(out)]
    subprocess.run([sys.executable, *build, str(copy)], check=True)
    return next(out.glob("*.whl"))


def test_it_holds_the_rooms_and_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"chomsky_ladder", next(top for top in tops if top.endswith(".dist-info"))}
    code = {str(path.relative_to(ROOT)) for room in ("harness", "models", "tasks") for path in (ROOT / room).rglob("*")}
    wanted = {name for name in code if (ROOT / name).is_file() and "__pycache__" not in name}
    wanted = {f"chomsky_ladder/{name}" for name in wanted if not name.endswith(".md")}
    assert wanted <= set(names)


@pytest.mark.full
def test_it_does_all_that_a_clone_does(wheel: Path, tmp_path: Path) -> None:
    """Runs in an environment with the clone's packages, and only the wheel of the project."""
    site, fresh = tmp_path / "site", tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    (folder,) = fresh.glob("lib/python*/site-packages")
    (folder / "beside.pth").write_text(f"{site}\n{sysconfig.get_paths()['purelib']}\n")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *install], check=True)
    (tmp_path / "mine.py").write_text(SWEEP)
    report = ROOT / "results" / "throughput" / "cpu" / "report.json"
    records = tmp_path / "results" / "records.csv"
    records.parent.mkdir()
    records.write_bytes((ROOT / "results" / "records.csv").read_bytes())
    small = ["--train.steps", "3", "--train.batch", "4", "--eval.test", "8", "--eval.validation", "8", "--quiet"]
    commands = {
        "list": ["list", "tasks"],
        "suite": ["run", "parity", "xlstm", "--protocol", "ladder-v1", *small, "--eval.extrapolate"],
        "sweep": ["sweep", "mine.py", "--json"],
        "table": ["table", "--against", "xlstm"],
        "figures": ["figures", "--protocol", "quick"],
        "page": ["page"],
        "climb": ["climb", "lstm", "--card", "--json", "--exec.results", "elsewhere"],
        "throughput": ["throughput", "--report", str(report), "--out", "costs", "--device", "cpu"],
    }
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LADDER_RESULTS")}
    command = [str(fresh / "bin" / "python"), "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["from"] == str(site)
    assert "  parity: " in said["list"] and "weighing" not in done.stderr
    results = [json.loads(path.read_text()) for path in (tmp_path / "results" / "runs").glob("*/result.json")]
    by_model = {result["model_name"]: result for result in results}
    assert json.loads(said["sweep"])["complete"] and set(by_model) == {"xlstm", "mamba"}
    if by_model["mamba"]["numerics"]["compiled"]:  # there is a compiler here
        assert "native_scan" in by_model["mamba"]["backends"], "the C sources came along"
    assert by_model["xlstm"]["protocol_name"] == "ladder-v1" and "paper " in said["table"]
    assert (tmp_path / "results" / "page.html").stat().st_size > 100_000
    assert (tmp_path / "results" / "figures" / "quick" / "ladder.png").exists()
    climb = json.loads(said["climb"])
    assert (climb["run"], climb["missing"], len(climb["beside"])) == (12, 0, 2), "the reference rows came along"
    assert (tmp_path / "costs" / "throughput.md").exists()
