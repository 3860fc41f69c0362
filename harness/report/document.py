"""A report before it has a format: sections of sentences, tables and pictures, and the commands that made them."""

from dataclasses import dataclass
from pathlib import Path

from chomsky_ladder.harness.tables.sheets import Sheet


@dataclass(frozen=True)
class Picture:
    file: Path
    """A PNG; beside it lie an SVG, a PDF and the numbers as CSV."""
    alt: str


@dataclass(frozen=True)
class Section:
    title: str
    sentences: tuple[str, ...]
    """Each is counted from the records."""
    sheets: tuple[Sheet, ...] = ()
    kind: str = ""
    """The kind of its tables."""
    pictures: tuple[Picture, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    title: str
    about: tuple[str, ...]
    sections: tuple[Section, ...]
