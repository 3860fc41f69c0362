"""Make text from records, names and files harmless before a terminal sees it.

    a name that holds the byte 27 and [2J    is printed as \\x1b[2J, and clears no screen

`main` sends all output of commands through `Shown`. Text without control characters is not changed.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from chomsky_ladder.harness.store.colours import CODES

_OURS = re.compile(rf"(\x1b\[(?:0|{'|'.join(CODES.values())})m)")
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    """Return a text in which all characters that move, hide, reverse or colour output are spelled out."""
    if not _OBEYED.search(text):
        return text
    parts = _OURS.split(text)
    return "".join(part if place % 2 else _OBEYED.sub(_spelled, part) for place, part in enumerate(parts))


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class Shown:
    """A stream that makes all text written to it harmless."""

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        self.behind.write(shown(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.behind)


def behind(stream: TextIO) -> TextIO:
    """Return the raw stream, for our own control characters. Text between them must go through `shown`."""
    return stream.behind if isinstance(stream, Shown) else stream


@contextmanager
def showing() -> Iterator[None]:
    """Make all printed text harmless inside this context."""
    kept: dict[str, Any] = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    made: dict[str, Any] = {name: Shown(stream) for name, stream in kept.items() if not isinstance(stream, Shown)}
    for name, stream in made.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in made.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, kept[name])
