"""README and results/ show what the records say, and README's examples pass the check they name."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store.record import Record

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))  # as when one of them is run
README = (ROOT / "README.md").read_text()
EXTEND = (ROOT / "docs" / "extend.md").read_text()
_spec = importlib.util.spec_from_file_location("shown_numbers", ROOT / "scripts" / "shown_numbers.py")
shown_numbers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shown_numbers)


@pytest.mark.parametrize("name", shown_numbers.SHOWN)
def test_the_numbers_shown_are_those_of_the_records(name: str) -> None:
    text = (ROOT / name).read_text()
    assert shown_numbers.filled(name, text) == text, "run scripts/shown_numbers.py"


def test_the_pages_of_findings_have_the_numbers_of_the_records() -> None:
    texts = {name: (ROOT / name).read_text() for name in shown_numbers.FINDINGS}
    assert len(texts) > 20
    assert not [name for name, text in texts.items() if shown_numbers.filled(name, text) != text], (
        "run scripts/shown_numbers.py"
    )


def test_a_finding_follows_the_records() -> None:
    """One more model that composes A5, and recalls, makes the sentence another one."""
    records = shown_numbers.finding_numbers.records_there()
    is_cell = (records["protocol"] == "climb-v1") & (records["model"] == "xlstm") & (records["task"] == "word_problem")
    changed = records.copy()
    for column, value in {"test_bins": '{"225..256":1.0}', "in_distribution": 1.0}.items():
        changed.loc[is_cell, column] = value
    assert "Seven of 53 models compose A5 on most seeds, 23 recall, one does both" in shown_numbers.findings(records)
    assert "Eight of 53 models compose A5 on most seeds, 23 recall, two do both" in shown_numbers.findings(changed)


def test_it_is_read_in_three_minutes() -> None:
    assert README.count("\n") <= 150
    prose = re.sub(r"```.*?```|<[^>]*>|\([^)]*\)|^\|.*?$", " ", README, flags=re.DOTALL | re.MULTILINE)
    sentences = re.split(r"(?<=[.:?!])\s|\n\n|\n- ", prose)
    assert not [sentence for sentence in sentences if len(sentence.split()) > 30]
    pictures = re.findall(r'src="(docs/pictures/[^"]+)"', README)
    assert len(pictures) == 2 and all((ROOT / name).stat().st_size < 120_000 for name in pictures)


def test_every_file_it_names_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links and not [link for link in links if not (ROOT / link).exists()]


def test_the_findings_say_how_many_cells_are_close() -> None:
    findings = (ROOT / "results" / "README.md").read_text()
    cells = re.findall(r"(?<= )\**\d/\d [✓✗·]°?( ≈)?", (ROOT / "results" / "tables" / "climb.md").read_text())
    assert f"in {cells.count(' ≈')} of {len(cells)} cells" in findings


@pytest.mark.parametrize(("name", "number"), [("running_mean", 0), ("first_symbol", 1)])
def test_the_examples_conform(name: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = [block for block in re.findall(r"```python\n(.*?)```", EXTEND, flags=re.DOTALL) if "@register" in block]
    plugin = tmp_path / f"{name}.py"
    plugin.write_text(source[number])
    assert cli.main(["check", name, "--plugin", str(plugin)]) == 0
    assert f"{name}: conforms" in capsys.readouterr().out


@pytest.mark.full
def test_the_example_of_a_wrapped_module_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(block for block in re.findall(r"```python\n(.*?)```", EXTEND, flags=re.DOTALL) if "wrap(" in block)
    plugin = tmp_path / "mine.py"
    plugin.write_text(source)
    assert cli.main(["check", "bigru", "--plugin", str(plugin), "--model.depth", "2"]) == 0
    assert "bigru: conforms" in capsys.readouterr().out


def test_the_example_of_a_plain_module_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(
        block for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "nn.Module" in block
    )
    (tmp_path / "mine.py").write_text(source)
    assert cli.main(["check", f"{tmp_path}/mine.py:Mean"]) == 0
    assert "conforms" in capsys.readouterr().out


def test_every_command_of_the_readme_exists() -> None:
    assert set(re.findall(r"^ladder (\w+)", README, flags=re.MULTILINE)) <= set(cli.COMMANDS)


def test_the_columns_of_the_records_are_explained() -> None:
    explained = (ROOT / "results" / "README.md").read_text()
    listed = {
        name for row in re.findall(r"^\| ([\w, ]+) \|", explained, flags=re.MULTILINE) for name in row.split(", ")
    }
    assert set(Record.model_fields) <= listed | {"error"}
