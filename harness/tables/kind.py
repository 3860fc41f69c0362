"""The interface of a kind of table: one file of harness/tables/kinds/, or of a plugin, that makes sheets from records.

    def fastest(records: pd.DataFrame) -> Made:
        ...

    register(Kind(name="fastest", about="the fastest model of each task", make=fastest))

`ladder table --kind fastest` prints it in every format, `--all` writes it. A plugin's package announces its module by
an entry point of the group `ladder.tables`; a file of one's own comes with `--plugin`. Nothing here needs torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.rooms import open_room, registered
from chomsky_ladder.harness.tables.published import Published
from chomsky_ladder.harness.tables.sheets import Sheet

Row = Mapping[str, Any]  # a record's


@dataclass(frozen=True)
class Made:
    """A kind of table: as sheets, and its numbers unrounded."""

    sheets: tuple[Sheet, ...]
    data: pd.DataFrame
    kind: str = ""
    """Filled in by whoever asked for it."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    about: str
    """What it shows, in a few words."""
    make: Callable[[pd.DataFrame], Made]
    """Of the records of one protocol; no sheets where there is nothing to show."""
    against: Callable[[pd.DataFrame, Published], Made] | None = None
    """The same beside a paper's values; None: no paper has any."""
    wants: Callable[[Row], bool] = lambda row: True
    """Whether it is about a record."""
    subject: str = "any task"
    """What that asks of a record, for who has none such."""
    together: Callable[[Row], str] = lambda row: row["protocol"]
    """The records that stand in one sheet have this in common."""
    when: Callable[[pd.DataFrame], bool] = lambda records: True
    """Whether `--all` writes it of such records."""
    why_not: str = "no run has finished"
    """Said where there are records and nothing to show."""
    rank: int = 100
    """Its place in a list of kinds; equal ones go by name."""
    module: str = ""
    """Where it is registered; filled in by `register`."""


KINDS: list[Kind] = []
ROOM = open_room("table kind", "chomsky_ladder.harness.tables.kinds", "ladder.tables", KINDS)


def register(kind: Kind) -> Kind:
    """Make a kind known under its name."""
    return registered(kind, ROOM)


def all_kinds() -> list[Kind]:
    """Return the kinds whose name nothing else claims, in their order."""
    return sorted(ROOM.all(), key=lambda kind: (kind.rank, kind.name))
