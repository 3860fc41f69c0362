"""Split results/LOG.md into a page for each month, with a heading for each day and entry.

An entry is a paragraph that begins with its date and title, and what follows up to the next one:

    **2026-11-20, page faults.** The goal was ..
"""

import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from marked import escaped, joined, table, toctree

LOG = Path(__file__).resolve().parents[1] / "results" / "LOG.md"
_BEGIN = re.compile(r"^\*\*(\d{4}-\d{2})-(\d{2}), ([^*]+)\*\*", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


class Entry(NamedTuple):
    month: str
    day: str
    title: str
    text: str
    number: int
    """The entry's place in the log, which names its anchor."""

    @property
    def anchor(self) -> str:
        return f"log-{self.month}-{self.day}-{self.number}"


def entries(log: str) -> list[Entry]:
    """Return the entries of a log, the oldest day first."""
    found = list(_BEGIN.finditer(log))
    ends = [match.start() for match in found[1:]] + [len(log)]
    made = [
        Entry(match[1], match[2], " ".join(match[3].split()).rstrip("."), log[match.end() : end].strip(), number)
        for number, (match, end) in enumerate(zip(found, ends, strict=True), start=1)
    ]
    return sorted(made, key=lambda entry: (entry.month, entry.day))


def write(folder: Path) -> str:
    """Write a page for each month. Return the index of them all."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, months = [], []
    for month, own in groupby(entries(LOG.read_text("utf-8")), key=lambda entry: entry.month):
        kept = list(own)
        (folder / f"{month}.md").write_text(_page(month, kept), "utf-8")
        months.append(f"_generated/log/{month}")
        rows = [[entry.day, f"[{escaped(entry.title)}](#{entry.anchor})"] for entry in kept]
        parts += [f"## [{month}](_generated/log/{month}.md)", table(["day", "entry"], rows)]
    return "\n\n" + joined(parts) + toctree(months)


def _page(month: str, own: list[Entry]) -> str:
    parts = [f"# Log of {month}"]
    for day, of_day in groupby(own, key=lambda entry: entry.day):
        parts.append(f"## {month}-{day}")
        for entry in of_day:
            parts.append(f"({entry.anchor})=\n### {escaped(entry.title[0].upper() + entry.title[1:])}")
            parts.append(_LINK.sub(lambda match: f"](../../../results/{match[1]})", entry.text))
    return joined(parts)
