"""Plugins that are named: a file with its neighbours, a folder, a package, a module of the working folder, all found
again by what a run's config remembers. A process that was told nothing says what it needs, and loads nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cases import some

MODEL = """
from dataclasses import dataclass
from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMConfig
{line}

@register
@dataclass(frozen=True, kw_only=True)
class OwnConfig(LSTMConfig):
    name = "own"
    scale: float = SCALE
"""
SMALL = "--protocol quick --train.steps 3 --train.batch 4 --train.stop-after 0 --eval.test 8 --eval.validation 8"
RUN = ["run", "parity", "own", *SMALL.split(), "--model.d-model", "8", "--eval.every", "0", "--quiet"]


def ladder(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chomsky_ladder", *words]
    variables = {"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **variables})


WAYS = ["FILE", "FOLDER", "PACKAGE", "MODULE", "LADDER_PLUGINS"]


@pytest.mark.full
@pytest.mark.parametrize("way", some(WAYS, always=["FOLDER"]))
def test_it_is_found_again(way: str, tmp_path: Path) -> None:
    here, elsewhere, results = tmp_path / "mine", tmp_path / "elsewhere", str(tmp_path / "results")
    elsewhere.mkdir()
    package = way in ("PACKAGE", "MODULE")
    folder = here / "lab" if package else here
    folder.mkdir(parents=True)
    (folder / "size_of_it.py").write_text("SCALE = 0.5\n")
    line = f"from {'.' if package else ''}size_of_it import SCALE"
    (folder / "own_model.py").write_text(MODEL.format(line=line))
    if package:
        (folder / "__init__.py").touch()
    named = {"FILE": "own_model.py", "FOLDER": ".", "PACKAGE": "lab", "MODULE": "lab.own_model"}.get(way)
    words = ["--plugin", named] if named else []
    variables = {} if named else {"LADDER_PLUGINS": os.pathsep.join([str(here / "own_model.py")])}
    ran = ladder(*RUN, *words, "--exec.results", results, cwd=here, **variables)
    assert ran.returncode == 0, ran.stderr
    (config,) = (tmp_path / "results" / "runs").glob("*/config.json")
    remembered = json.loads(config.read_text())["plugins"]
    assert remembered == [str(folder if package else folder / "own_model.py")]
    command = ["errors", config.parent.name, "--results", results]
    untold = ladder(*command, cwd=elsewhere)
    assert untold.returncode == 2 and untold.stderr.count("\n") == 1
    assert untold.stderr.endswith(f"if you trust it: --plugin {remembered[0]}\n")
    again = ladder(*command, "--plugin", remembered[0], cwd=elsewhere)
    assert again.returncode == 0, again.stderr
