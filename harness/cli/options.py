"""Options of a command: tyro builds the typed tree, and whatever is wrong with a line comes back as one ValueError.

Nothing here needs torch; harness/cli/arguments.py adds the options of a run.
"""

import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import tyro

from chomsky_ladder.harness.cli.help import print_help
from chomsky_ladder.harness.store.places import with_published

Options = TypeVar("Options")

_STYLE = (tyro.conf.FlagCreatePairsOff,)


def parse(cls: type[Options], arguments: Sequence[str], *, prog: str) -> Options:
    """Parse the dataclass `cls` from its options. `--help` prints and exits; a mistake is a ValueError of one line."""
    arguments = with_published(arguments)
    if asks_for_help(arguments):
        print_help(cls, prog)
        raise SystemExit(0)
    if any(word.startswith("--tyro-") for word in arguments):
        raise ValueError("a shell completes by the script of `ladder completion SHELL`")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = tyro.cli(cls, args=arguments, prog=prog, config=_STYLE)
    except SystemExit:
        raise ValueError(_one_line(said.getvalue())) from None
    _refuse_empty_paths(options, arguments)
    return options


def asks_for_help(words: Sequence[str]) -> bool:
    return bool({"--help", "-h"} & set(words))


def take(arguments: list[str], option: str) -> list[str]:
    """Remove every `--option VALUE` (or `--option=VALUE`) from the list and return the values."""
    values = []
    while (place := next((i for i, a in enumerate(arguments) if a.split("=")[0] == option), None)) is not None:
        word = arguments.pop(place)
        if "=" in word:
            values.append(word.partition("=")[2])
        elif place < len(arguments):
            values.append(arguments.pop(place))
        else:
            raise ValueError(f"{option} needs a value")
    return values


def take_flag(arguments: list[str], option: str) -> bool:
    present = option in arguments
    arguments[:] = [a for a in arguments if a != option]
    return present


def name_first(words: list[str], otherwise: str, *, helped: Callable[[], object]) -> str:
    """Remove and return the name a line begins with; `helped` prints the help of a line without one, and ends."""
    if not words or words[0].startswith("-"):
        if asks_for_help(words):
            helped()
        raise ValueError(otherwise)
    return words.pop(0)


def _refuse_empty_paths(options: Any, arguments: Sequence[str], inside: str = "") -> None:
    """An empty name is a variable of the shell that is not set; as a path it would be the folder that one is in."""
    for field in dataclasses.fields(options):
        value, name = getattr(options, field.name), f"{inside}{field.name}".replace("_", "-")
        if dataclasses.is_dataclass(value):
            _refuse_empty_paths(value, arguments, f"{name}.")
        elif Path() in (value if isinstance(value, tuple) else (value,)):
            words = [word.replace("_", "-") for word in arguments]
            behind = [word for option, word in pairwise(words) if option == f"--{name}"]
            if f"--{name}=" in words or "" in (behind or words):  # `words` for what is named by its place
                raise ValueError(f"{name} needs a path, not an empty one")


def _one_line(said: str) -> str:
    """tyro's framed message without its frame: the sentence, and the options it thinks were meant."""
    parts = re.split(r"\n\s*[-─]{5,}\s*(?:\n|$)", said.replace("│", " "))
    sentence = " ".join(parts[1].split()) if len(parts) > 1 else " ".join(said.split())
    sentence = re.sub(r"^Error parsing (task|model|train|eval|exec|\w+Options): ", "", sentence)
    sentence = re.sub(r"Expected one of \(([^)]*)\)", _choices, sentence)
    meant = re.findall(r"^\s+(--[\w.-]+)", parts[2], flags=re.MULTILINE) if "Perhaps you meant" in said else []
    return sentence + (f"; did you mean {' or '.join(meant[:2])}?" if meant else "")


def _choices(match: re.Match[str]) -> str:
    """Return the choices of an option; for the parser, None is among those of one that may be left out."""
    words = [word.strip().strip("'") for word in match[1].split(",") if word.strip()]
    shown = sorted(set(words) - {"None"}) if "None" in words else words
    return f"Expected one of {', '.join(shown)}"
