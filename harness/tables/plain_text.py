"""Sheets for a terminal: columns in line, class by class where all of them together are too wide.

xlstm_cpu
Scaled test accuracy (0 is chance, 1 perfect): ...

                      regular
model              even_pairs     parity
lstm                 1.00 3/3   1.00 3/3
"""

import shutil
import textwrap
from collections.abc import Sequence
from itertools import groupby

from chomsky_ladder.harness.store.colours import Look, painted
from chomsky_ladder.harness.tables.sheets import SIGNS, Column, Entry, Line, Mark, Sheet

LEAST, MOST = 60, 160  # signs across
_LOOKS: dict[Mark, Look] = {"agrees": "good", "differs": "weak", "floor": "faint"}


def plain(sheets: Sequence[Sheet], *, across: int | None = None, colour: bool = False) -> str:
    """Write a sheet as wide as the terminal, or 100 without one. In colour, the best and the solved are green."""
    room = across or shutil.get_terminal_size((100, 24)).columns
    return "\n".join(_sheet(sheet, max(LEAST, min(MOST, room)), colour) for sheet in sheets)


def parts(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[list[int]]:
    """Split the columns, by number, into parts that fit side by side: whole groups where possible."""
    groups = [list(group) for _, group in groupby(range(len(columns)), key=lambda place: columns[place].group)]
    found: list[list[int]] = [[]]
    for group in groups:
        if found[-1] and _wide(found[-1] + group, widths) > room:
            found.append([])
        for place in group:
            if found[-1] and _wide([*found[-1], place], widths) > room:
                found.append([])
            found[-1].append(place)
    return [part for part in found if part]


def texts(entry: Entry) -> list[str]:
    """Return an entry's lines, with a mark's sign after the last and a star where it is bold."""
    lines = list(entry.lines)
    if entry.bold:
        lines[0] += "*"
    if sign := SIGNS.get(entry.mark):
        lines[-1] += f" {sign}"
    return lines


def _wide(places: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[place] + 2 for place in places)


def _sheet(sheet: Sheet, across: int, colour: bool) -> str:
    first = max(len(sheet.corner), *(len(line.name) for line in sheet.lines), 0)
    names = [column.title for column in sheet.columns]
    widths = [_column(names[place], [line.entries[place] for line in sheet.lines]) for place in range(len(names))]
    said = [
        painted(sheet.title, "strong", on=colour),
        *_wrapped(" ".join([*sheet.lead, *([sheet.warning] if sheet.warning else [])]), across),
        "",
    ]
    for part in parts(sheet.columns, widths, max(LEAST, across) - first):
        said += _block(sheet, part, names, widths, first, colour)
    if any(entry.bold for line in sheet.lines for entry in line.entries):
        said += ["A star stands for bold."]
    for note in (*sheet.stands_for, *sheet.notes):
        said += _wrapped(note, across)
    return "\n".join(line.rstrip() for line in said) + "\n"


def _block(
    sheet: Sheet, part: Sequence[int], names: Sequence[str], widths: Sequence[int], first: int, colour: bool
) -> list[str]:
    rows = []
    if any(sheet.columns[place].group for place in part):
        row = " " * first
        for group, own in groupby(part, key=lambda place: sheet.columns[place].group):
            row += "  " + group[: _wide(list(of := list(own)), widths) - 2].rjust(_wide(of, widths) - 2)
        rows.append(row)
    rows.append(sheet.corner.ljust(first) + "".join(f"  {names[place].rjust(widths[place])}" for place in part))
    rows.append("-" * (first + _wide(part, widths)))
    for line in sheet.lines:
        rows += _line(line, part, widths, first, colour)
    return [*rows, ""]


def _line(line: Line, part: Sequence[int], widths: Sequence[int], first: int, colour: bool) -> list[str]:
    cells = [texts(line.entries[place]) for place in part]
    looks: list[Look | None] = ["faint" if line.is_floor else _look(line.entries[place]) for place in part]
    rows = []
    for i in range(max(map(len, cells), default=1)):
        begin = (line.name if i == 0 else "").ljust(first)
        shown = [
            (cell[i] if i < len(cell) else "").rjust(widths[place]) for cell, place in zip(cells, part, strict=True)
        ]
        cells_of_line = (painted(text, look, on=colour) for text, look in zip(shown, looks, strict=True))
        rows.append(begin + "".join(f"  {text}" for text in cells_of_line))
    return rows


def _look(entry: Entry) -> Look | None:
    return _LOOKS.get(entry.mark) if entry.mark else "good" if entry.bold or entry.is_solved else None


def _column(name: str, entries: Sequence[Entry]) -> int:
    return max(len(name), *(len(text) for entry in entries for text in texts(entry)), 0)


def _wrapped(text: str, across: int) -> list[str]:
    return textwrap.wrap(text, across)
