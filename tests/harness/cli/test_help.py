"""The help of every command as a pseudo-terminal shows it: clean, in colour or not, narrow or wide."""

import os
import re
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli.commands import Command
from chomsky_ladder.harness.cli.help import help_text, options_of

NAMED = ("run parity lstm", "climb lstm", "describe lstm", "sample parity", "export parity", "check lstm", "wandb sync")
EVERY = (*cli.COMMANDS, *NAMED, "wandb report", "plan some.py --engine processes")
EVERY += ("sweep --engine ray", "sweep --engine slurm")
OURS = re.compile(r"\x1b\[[01]m")


def in_terminal(act: Callable[[], object], *, columns: int) -> str:
    """Return what a terminal of so many columns is sent."""
    ours, its = os.openpty()
    termios.tcsetwinsize(its, (50, columns))
    read: list[bytes] = []

    def reads() -> None:
        while chunk := _read(ours):
            read.append(chunk)

    reader = threading.Thread(target=reads)
    reader.start()
    kept = sys.stdout
    try:
        with os.fdopen(its, "w", encoding="utf-8") as sys.stdout:
            act()
    finally:
        sys.stdout = kept
    reader.join()
    os.close(ours)
    return b"".join(read).decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # nobody holds the other end any more
        return b""


def helped(words: Sequence[str]) -> None:
    """Ask for help, which ends the process if a command gives it."""
    with suppress(SystemExit):
        assert cli.main(words) == 0, words


@pytest.mark.parametrize(("columns", "other"), [(80, "NO_COLOR"), (200, "TERM")])
def test_the_help_of_every_command_is_clean_in_a_terminal(
    columns: int, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LADDER_RESULTS", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    for line in ("", "help", "help run", *EVERY):
        words = line.split() if line.startswith("help") else [*line.split(), "--help"]
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        coloured = in_terminal(lambda words=words: helped(words), columns=columns)
        monkeypatch.setenv(other, "dumb")
        plain = in_terminal(lambda words=words: helped(words), columns=columns)
        assert OURS.sub("", coloured) == plain, line
        wrong = rf"\x1b|\\x1b|None|\[\[|default: (\)|'')|{re.escape(str(tmp_path))}"
        assert not re.search(wrong, plain), plain
        assert all(len(text) < columns and text == text.rstrip() for text in plain.splitlines()), plain
        if line and not line.startswith("help"):
            assert coloured != plain and plain.startswith(f"usage: ladder {line.split()[0]}"), line


@dataclass
class Options:
    """A stranger wrote \x1b[2J, which clears a screen."""

    many: tuple[str, ...] = ()
    """Names \x1b]0;title\x07."""
    format: Literal["b", "a"] | None = None
    lengths: tuple[int, int] = (3, 40)
    """Shortest and longest."""
    on: bool = True
    place: Path | None = None


def test_what_others_wrote_is_still_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(cli.COMMANDS, "theirs", Command("main:theirs", "", "explore"))
    monkeypatch.setattr(
        cli, "theirs", lambda words: print(help_text(Options, "x", columns=80, colour=True)) or 0, raising=False
    )
    shown = in_terminal(lambda: helped(["theirs", "--help"]), columns=80)
    assert "\\x1b[2J" in shown and "\\x1b]0;title\\x07" in shown and "\x1b" not in OURS.sub("", shown)


def test_an_option_says_what_it_takes_and_what_it_is_without() -> None:
    said = {option.left: option.help for option in options_of(Options)}
    assert list(said) == ["--many TEXT ..", "--format {b,a}", "--lengths INT INT", "--no-on", "--place PATH"]
    assert said["--lengths INT INT"].endswith("longest. (default:\xa03\xa040)") and said["--place PATH"] == ""


def test_help_without_a_name_lists_what_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    for line, options in (
        ("run", ["TASK MODEL", "--protocol", "--train.lr", "--eval.test", "--exec.results", "--model.*", "--plugin"]),
        ("climb", ["MODEL", "--all", "--seeds", "--against", "--model.*", "--plugin"]),
        ("sweep", ["SCRIPT", "--engine", "--shard", "--exec.threads"]),
        ("describe", ["NAME", "--protocol NAME", "--task.* or --model.*"]),
        ("adapt", ["RUN_ID TASK", "--rank", "--layers"]),
        ("wandb", ["wandb sync", "wandb report"]),
    ):
        said = []
        for words in ([line, "--help"], ["help", line]):
            helped(words)
            said.append(capsys.readouterr().out)
        assert said[0] == said[1] and [option for option in options if option not in said[0]] == [], said[0]
