"""What the README and results/ show is what the records say, and its examples pass the check they name."""

import importlib.util
import re
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store.record import Record

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
_spec = importlib.util.spec_from_file_location("readme_table", ROOT / "scripts" / "readme_table.py")
readme_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(readme_table)


def test_the_readme_shows_the_records() -> None:
    assert readme_table.with_table(README) == README, "run scripts/readme_table.py"


def test_the_climb_says_how_many_rows_there_are() -> None:
    shown = README.split("<!-- climb-v1 -->")[1].split("<!-- /climb-v1 -->")[0]
    of_them, every = map(int, re.findall(r"The highest (\d+) of (\d+) rows", shown)[0])
    whole = (ROOT / readme_table.ALL).read_text()
    rows = [re.findall(r"^\| .*? \| \**[●◐○] \d/\d ", text, flags=re.MULTILINE) for text in (shown, whole)]
    assert (of_them, every) == tuple(map(len, rows))


def test_the_findings_say_how_many_cells_are_close() -> None:
    findings = (ROOT / "results" / "README.md").read_text()
    cells = re.findall(r"(?<= )\**\d/\d [✓✗·]°?( ≈)?", (ROOT / readme_table.ALL).read_text())
    assert f"in {cells.count(' ≈')} of {len(cells)} cells" in findings


@pytest.mark.parametrize(("name", "number"), [("running_mean", 0), ("first_symbol", 1)])
def test_the_examples_conform(name: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = [block for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "@register" in block]
    plugin = tmp_path / f"{name}.py"
    plugin.write_text(source[number])
    assert cli.main(["check", name, "--plugin", str(plugin)]) == 0
    assert f"{name}: conforms" in capsys.readouterr().out


@pytest.mark.full
def test_the_example_of_a_wrapped_module_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(block for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "wrap(" in block)
    plugin = tmp_path / "mine.py"
    plugin.write_text(source)
    assert cli.main(["check", "bigru", "--plugin", str(plugin), "--model.depth", "2"]) == 0
    assert "bigru: conforms" in capsys.readouterr().out


def test_the_example_of_a_plain_module_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(
        block for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "plain_model(" in block
    )
    plugin = tmp_path / "mine.py"
    plugin.write_text(source)
    assert cli.main(["check", "my_mean", "--plugin", str(plugin)]) == 0
    assert "my_mean: conforms" in capsys.readouterr().out


def test_every_command_of_the_readme_exists() -> None:
    assert set(re.findall(r"^ladder (\w+)", README, flags=re.MULTILINE)) <= set(cli.COMMANDS)


def test_the_columns_of_the_records_are_explained() -> None:
    explained = (ROOT / "results" / "README.md").read_text()
    listed = {
        name for row in re.findall(r"^\| ([\w, ]+) \|", explained, flags=re.MULTILINE) for name in row.split(", ")
    }
    assert set(Record.model_fields) <= listed | {"error"}
