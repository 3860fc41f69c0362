"""Output for a person: rows as columns, counts, sizes and times; JSON for a program."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.store import status as statuses
from chomsky_ladder.harness.store.colours import Look, in_colour, painted

if TYPE_CHECKING:
    import pandas as pd


def print_json(tree: Any) -> int:
    print(json.dumps(tree, indent=1))
    return 0


def columns(rows: Iterable[Sequence[str]], *, title: str = "", looks: Mapping[str, Look] | None = None) -> None:
    """Rows as aligned columns under a title, the last column free; nothing where there are none.

    `looks` is the colour of a row by its first column, where a terminal has any.
    """
    rows, colour = list(rows), in_colour(sys.stdout)
    if rows and title:
        print(painted(title, "strong", on=colour))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
        print(painted("  " + "  ".join([*cells, row[-1]]).rstrip(), (looks or {}).get(row[0]), on=colour))


def said(text: str, look: Look) -> None:
    """Print a line of good or bad news in its colour."""
    print(painted(text, look, on=in_colour(sys.stdout)))


def say_warnings(records: "pd.DataFrame", results: Path) -> None:
    """Warn of each plugin whose code has changed since it made records, and of seeds that are not shown."""
    from chomsky_ladder.harness.stats.cells import set_aside  # with pandas
    from chomsky_ladder.harness.stats.edited import edited

    for line in (*edited(records, results), *set_aside(records)):
        print(f"ladder: {line}", file=sys.stderr)


def duration(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{left:02d}s" if minutes else f"{left}s"


def size(count: float) -> str:
    """Bytes, in the unit that suits them."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def count_of(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def counts_of(found: dict[statuses.State, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in found.items())


def short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def aligned(heads: Sequence[str], rows: Any) -> list[str]:
    """Columns under their heads, names to the left and numbers to the right."""
    table = [list(heads), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = []
    for row in table:
        cells = [
            f"{cell:>{width}}" if head not in ("", "probe", "against", "layer") else f"{cell:{width}}"
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines
