"""Share what all numbers on a page of findings need: markers, records, climbs, tables and commands."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.climb import Climb, climbs_of
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.store.record import stored

ROOT = Path(__file__).parents[1]
CLIMB = "climb-v1"


@dataclass(frozen=True)
class Shown:
    """The words of a marker."""

    words: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> "Shown":
        return cls(dict(word.split("=", 1) for word in shlex.split(text)))

    def listed(self, name: str) -> list[str]:
        return [word.strip() for word in self.words.get(name, "").split(";") if word.strip()]

    @property
    def protocol(self) -> str:
        return self.words.get("protocol", CLIMB)

    @property
    def climbs(self) -> list[Climb]:
        return climbs_under(self.protocol, begun="begun" in self.words)

    @property
    def found(self) -> list[Cell]:
        return cells_under(self.protocol, begun="begun" in self.words)


@cache
def records_there() -> pd.DataFrame:
    """Return the committed records, read once."""
    return stored(ROOT / "results" / "records.csv")


def all_records(*, begun: bool) -> pd.DataFrame:
    return pd.concat([records_there(), runs_under_way().reset_index()], ignore_index=True) if begun else records_there()


@cache
def climbs_under(protocol: str, *, begun: bool = False) -> list[Climb]:
    return climbs_of(all_records(begun=begun), protocol)


@cache
def cells_under(protocol: str, *, begun: bool = False) -> list[Cell]:
    records = all_records(begun=begun)
    return cells_of(records[records["protocol"] == protocol])


def cells_of_study(runs: Iterable[Run]) -> list[Cell]:
    """Return the cells of these runs that have begun."""
    own = {tuple(identity_of(run).labels().values()) for run in runs}
    return [
        cell
        for cell in cells_of(all_records(begun=True))
        if (cell.stats.protocol, cell.stats.task, cell.stats.model) in own and cell.runs
    ]


@cache
def runs_under_way() -> pd.DataFrame:
    return stored(ROOT / "results" / "underway" / "records.csv").set_index("run_id")


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def escaped(text: str) -> str:
    return re.sub(r"([\[\]|])", r"\\\1", text)


def shell(lines: Sequence[str]) -> str:
    return "\n".join(["```sh", *lines, "```"])


def address(cell: Cell) -> str:
    place = "|".join((cell.stats.protocol, cell.stats.task, cell.stats.model))
    view = "ladder" if climbs_under(cell.stats.protocol) else "matrix"
    of = "" if view == "ladder" else f"protocol={quote(cell.stats.protocol)}&"
    return f"On the interactive page: `index.html#{view}?{of}cell={quote(place, safe='~|')}`"
