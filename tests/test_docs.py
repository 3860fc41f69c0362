"""The documentation leads nowhere wrong, names commands that exist, and its site builds without a warning."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli

ROOT = Path(__file__).parents[1]
FILES = (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "findings").glob("*.md"))
PAGES = {str(path.relative_to(ROOT / "docs")): path.read_text("utf-8") for path in sorted(FILES)}
FINDINGS = {name: text for name, text in PAGES.items() if name.startswith("findings/")}
_spec = importlib.util.spec_from_file_location("plain_english", ROOT / "scripts" / "plain_english.py")
plain_english = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plain_english)


GENERATED = re.compile(r"<!-- (\w+)[^\n]*-->.*?<!-- /\1 -->", re.DOTALL)  # scripts/shown_numbers.py fills it


def test_every_link_leads_to_a_file() -> None:
    links = [(name, link) for name, text in PAGES.items() for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)]
    assert len(links) > 100
    assert not [(name, link) for name, link in links if not (ROOT / "docs" / name).parent.joinpath(link).exists()]


def test_every_command_exists() -> None:
    commands = {
        word for text in PAGES.values() for word in re.findall(r"(?:^|`|/)ladder ([a-z]+)", text, flags=re.MULTILINE)
    }
    assert len(commands) > 20 and commands <= set(cli.COMMANDS)


def test_sentences_are_short() -> None:
    for name, text in PAGES.items():
        written = GENERATED.sub("", text)
        assert not list(map(str, plain_english.sentences(Path("docs") / name, written)))


def test_findings_have_two_numbers_at_most_and_a_page() -> None:
    found = re.findall(r"^- \*\*.*?(?=^- |^$)", PAGES["findings.md"], flags=re.MULTILINE | re.DOTALL)
    assert len(found) > 20
    assert {f"findings/{page}" for page in re.findall(r"\]\(findings/(\w+\.md)\)", "".join(found))} == FINDINGS.keys()
    for text in found:
        assert "](findings/" in text
        sentence = re.sub(r"\([^)]*\)|\[[^]]*\]", "", re.sub(r"\]\([^)]*\)", "]", text))
        assert len(re.findall(r"(?<![\w.-])[\d.,]*\d\b", sentence)) <= 2, text


def test_numbers_in_the_prose_of_a_finding_are_among_those_generated_from_records() -> None:
    for name, text in FINDINGS.items():
        generated = set(_decimals(" ".join(match[0] for match in GENERATED.finditer(text))))
        prose = re.sub(r"`[^`]*`|!?\[[^]]*\]\([^)]*\)|arXiv:\S+|Table \d", "", GENERATED.sub("", text))
        assert generated and not set(_decimals(prose)) - generated, name


def _decimals(text: str) -> list[float]:
    """Return the numbers of a text that are no part of a name, such as A5, xLSTM[0:1] or [-1, 1]."""
    found = re.findall(r"(?<![\w.,:\[-])-?\d[\d,]*(?:\.\d+)?(?![\w:\]-])(?!, -?\d\])", text)
    return [float(number.strip(",").replace(",", "")) for number in found]


def test_counts_in_findings_are_those_of_the_table() -> None:
    table = (ROOT / "results" / "tables" / "climb.md").read_text("utf-8")
    marks = re.findall(r"\| \**([●◐○]) \d/\d", table.split("### climb-v1: learning rates")[0])
    theory = table.split("### climb-v1: theory")[1]
    sums = [sum(column) for column in zip(*_numbers(theory, 5), strict=True)]
    said = PAGES["findings.md"]
    assert f"{marks.count('●')} cells are held, and {marks.count('◐')} are learnt and lost" in said
    assert (
        f"in {sums[2]} of {sums[2] + sums[3]} cells" in said and f"{sums[0]} of {sums[0] + sums[1]} such cells" in said
    )
    rates = _numbers(table.split("### climb-v1: learning rates")[1].split("### climb-v1: theory")[0], 5)
    moved = sum(row[3] + row[4] for row in rates)
    assert f"moves {moved} marks" in said and f"in {sum(row[2] for row in rates)} cells" in " ".join(said.split())


def _numbers(table: str, columns: int) -> list[list[int]]:
    rows = re.findall(r"^\| [^|]+ ((?:\| \d+ ){" + str(columns) + r"})\|$", table, flags=re.MULTILINE)
    assert len(rows) == 12
    return [[int(cell) for cell in row.split("|")[1:]] for row in rows]


@pytest.mark.full
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb", reason="the docs extra is not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", tmp_path / "trees"]
    made = subprocess.run(
        [*command, ROOT / "docs", tmp_path / "site"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LADDER_SOURCE_URL": "https://example.org/blob/main"},
    )
    assert made.returncode == 0, made.stderr
    generated = tmp_path / "site" / "_generated"
    task = (generated / "tasks" / "parity.html").read_text("utf-8")
    assert "Floors" in task and "../models/lstm.html" in task and "3 of 3" in task
    model = (generated / "models" / "lstm.html").read_text("utf-8")
    assert "c_t = s(f) c_{t-1}" in model and "arxiv.org/abs/1906.01615" in model
    helped = (generated / "cli.html").read_text("utf-8")
    assert all(f"ladder {name}" in helped for name in cli.COMMANDS) and "--report-seeds" in helped
    assert "https://example.org/blob/main/results/tables/climb.md" in (tmp_path / "site" / "index.html").read_text()
    lines = [line for text in PAGES.values() for line in re.findall(r"^ladder [a-z]+ .*", text, flags=re.MULTILINE)]
    finding = (tmp_path / "site" / "findings" / "negative_eigenvalues.html").read_text()
    assert "_images/negative_eigenvalues.svg" in finding and 'href="../../index.html#ladder?cell=' in finding
    assert list((generated / "log").glob("20*.html"))
    for name in ("tour", "bring_your_own"):  # executed
        shown = (generated / "notebooks" / f"{name}.html").read_text()
        assert re.search(r'<img [^>]*alt="Accuracy [^>]*src="[^"]*_images/\w+\.png"', shown)
    options = {option for line in lines for option in re.findall(r"--[a-z][a-z.-]*", line)}
    assert len(options) > 30
    shown = re.sub(r"<[^>]+>", "", helped)
    assert not [option for option in options if "." not in option and option not in shown]
