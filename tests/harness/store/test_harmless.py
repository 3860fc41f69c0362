"""Text from names and files: no terminal obeys it and no spreadsheet computes it."""

import csv
import io
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store.harmless import cell_of, csv_of
from chomsky_ladder.harness.store.record import Record, keep, recorded
from chomsky_ladder.harness.store.shown import Shown, behind, showing, shown
from support.folders_to_merge import RUN, finished, row_of

Capture = pytest.CaptureFixture[str]
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil"


@given(st.text())
def test_no_sign_that_a_terminal_obeys_is_left(text: str) -> None:
    out = shown(text)
    assert all(sign in "\n\t" or (sign >= " " and not "\x7f" <= sign <= "\x9f") for sign in out)
    assert not set(out) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert out == text or shown(out) == out


@pytest.mark.parametrize("text", ["lstm 0.5\n\ta", "日本 ünï ✓", "\x1b[38;5;28mlearnt\x1b[0m"])
def test_what_is_ours_stays(text: str) -> None:
    assert shown(text) == text


def test_what_commands_print_is_shown(tmp_path: Path, capsys: Capture) -> None:
    """Names of folders, errors of a run, and words that a person gave."""
    folder = tmp_path / "runs" / f"a{HOSTILE}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"task": {"name": "\\u001b[2J"}, "model": {}}')
    (folder / "failure.json").write_text('{"error": "\\u001b[8mhidden"}')
    for words in (["status", "--all"], ["table"], ["page"], ["errors", "a"], ["clean", "--failed", "--yes"]):
        cli.main([*words, "--results", str(tmp_path)])
    cli.main(["diff", HOSTILE, HOSTILE, "--results", str(tmp_path)])
    cli.main([HOSTILE])
    said = "".join(capsys.readouterr())
    assert "\\x1b[2J" in said and not set(said) & set("\x1b\x07\x9b\u202e")


def test_our_own_signs_go_past(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with showing():
        assert isinstance(sys.stderr, Shown) and not sys.stderr.isatty()
        behind(sys.stderr).write("\x1b[K")
        sys.stderr.write("\x1b[K")
    assert sys.stderr is stream and stream.getvalue() == "\x1b[K\\x1b[K"


def rows(text: str) -> tuple[list[str], list[list[str]]]:
    head, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    return head, lines


FORMULAS = ("=cmd|' /C calc'!A1", "+A1", "-1+2", "-1 -2+3", "@SUM(A1)", "\tx", "\rx", "'=1", "''@")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_text_in_every_csv_and_comes_back(text: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": [text, "lstm"], "number": [-0.5, 1.0]})
    _, (first, second) = rows(csv_of(frame))
    assert first == [f"'{text}", "-0.5"] and cell_of(first[0]) == text
    assert second == ["lstm", "1.0"]
    line = Record(**row_of(RUN, status="failed", error=text))
    for _ in range(3):
        keep(tmp_path, {line.run_id: line})
        assert recorded(tmp_path / "records.csv")[line.run_id].error == text


@given(st.text(alphabet="'=+-@\t\r ab"))
def test_every_cell_comes_back(text: str) -> None:
    _, ((cell, _),) = rows(csv_of(pd.DataFrame({"a": [text], "b": [1]})))
    assert cell_of(cell) == text and not cell.startswith(tuple("=+-@\t\r"))


def test_ordinary_tables_keep_their_bytes(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": ["lstm (d=2)", None, "x=1"], "b": [-1.0, None, 2.5], "c": ['{"a":-1}', "", "-0.0123 0.2 -1e-05"]}
    )
    assert csv_of(frame) == frame.to_csv(index=False, lineterminator="\n")
    finished(tmp_path, RUN)
    assert cli.main(["table", "--results", str(tmp_path)]) == 0
