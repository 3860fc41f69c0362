"""Colour on a terminal that has it, and not a sign of it anywhere else; no colour says what words do not."""

import io
import re

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.store.colours import CODES, in_colour, painted
from chomsky_ladder.harness.store.shown import shown
from chomsky_ladder.harness.tables.plain_text import plain
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet

PAINT = re.compile(r"\x1b\[[\d;]+m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_colours_unless_it_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert in_colour(Terminal()) and not in_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not in_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not in_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "")  # empty is not set
    assert in_colour(Terminal())


@pytest.mark.parametrize("look", CODES)
def test_a_colour_of_ours_reaches_the_terminal(look: str) -> None:
    text = painted("word", look, on=True)  # pyright: ignore[reportArgumentType]
    assert shown(text) == text and PAINT.sub("", text) == "word" != text
    assert painted("word", look, on=False) == "word"  # pyright: ignore[reportArgumentType]
    assert shown(text.replace("m", "J", 1)) != text  # what would clear the screen does not


def contrast(code: str, behind: float) -> float:
    """The contrast of a colour of the 6 x 6 x 6 cube with a grey (WCAG 2), between 1 and 21."""
    place = int(code.rpartition(";")[2]) - 16
    shares = [(0, 95, 135, 175, 215, 255)[place // by % 6] / 255 for by in (36, 6, 1)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (max(light, behind) + 0.05) / (min(light, behind) + 0.05)


def test_every_colour_reads_on_black_and_on_white() -> None:
    for code in (code for look, code in CODES.items() if look not in ("strong", "faint")):
        assert contrast(code, 0.0) > 3.8 and contrast(code, 1.0) > 3.8


def test_a_table_in_colour_is_the_table() -> None:
    entries = (
        Entry(("1.00", "3/3"), bold=True),
        Entry(("0.10",), mark="floor"),
        Entry(("0.60",)),
        Entry(("0.99",), is_solved=True),
    )
    columns = tuple(Column(name) for name in ("parity", "even_pairs", "majority", "dyck"))
    sheet = Sheet(title="a protocol", lead=(), corner="model", columns=columns, lines=(Line("lstm", entries),))
    bare, bright = plain([sheet], across=80), plain([sheet], across=80, colour=True)
    assert PAINT.sub("", bright) == bare and "\x1b" not in bare
    assert re.search(r"\x1b\[38;5;28m +1\.00\*\x1b\[0m", bright) and "\x1b[1ma protocol\x1b[0m" in bright
    assert re.search(r"\x1b\[2m +0\.10 ·\x1b\[0m", bright)
    assert re.search(r"\x1b\[38;5;28m *0\.99\x1b\[0m", bright)
    assert not re.search(r"\x1b\[(?!0m)[\d;]+m[^\x1b]*0\.60", bright)


def test_a_check_is_green_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["check", "even_pairs"]) == 0
    bare = capsys.readouterr().out
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["check", "even_pairs"]) == 0
    bright = terminal.getvalue()
    assert "\x1b[38;5;28meven_pairs: conforms\x1b[0m" in bright and PAINT.sub("", bright) == bare
