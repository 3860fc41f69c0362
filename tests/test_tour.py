"""The notebooks: their cells are Python, name what there is and hold no outputs; with `--all` they run."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import chomsky_ladder

SCRIPTS = Path(__file__).parents[1] / "scripts"
NOTEBOOKS = ("tour", "bring_your_own")


def code(name: str) -> list[str]:
    """Return the source of each code cell, without `%%writefile`."""
    cells = json.loads((SCRIPTS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    kept = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not [cell for cell in kept if cell["outputs"] or cell["execution_count"]], "the docs build executes it"
    return ["".join(cell["source"]) for cell in kept]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_their_cells_name_what_there_is(name: str) -> None:
    sources = [source.removeprefix("%%writefile mine.py\n") for source in code(name)]
    names = {
        node.attr
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ladder"
    }
    assert len(sources) >= 4 and names <= set(chomsky_ladder.__all__)


@pytest.mark.full
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_their_cells_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    scope: dict[str, Any] = {"__name__": "__main__"}
    for source in code(name):
        if source.startswith("%%writefile mine.py"):
            (tmp_path / "mine.py").write_text(source.partition("\n")[2])
        else:
            exec(compile(source, f"{name}.ipynb", "exec"), scope)
    if name == "tour":
        pairs = zip(scope["runs"], scope["results"], strict=True)
        held = {run.model.name: result["test"]["scaled"] for run, result in pairs}
        assert held["lstm"] > 0.9 and held["min_gru"] < 0.5  # what the text makes of them
        assert scope["right"].double().mean() > 0.9
    else:
        said = capsys.readouterr().out
        assert "my_mean: conforms" in said and "1 of 12 rungs" in said
