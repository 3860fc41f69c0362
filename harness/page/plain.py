"""The page for who runs no script: the ladder and the accuracy of every protocol as plain tables.

Text of records is escaped. With a script the browser does not build any of it.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

from chomsky_ladder.harness.page.cells import Sheet
from chomsky_ladder.harness.stats.climb import CONDITIONAL
from chomsky_ladder.harness.stats.outcomes import MARKS
from chomsky_ladder.harness.stats.view import FLOORS, Cell

DASH = "–"


def tables(sheets: Sequence[Sheet], ladders: Sequence[dict[str, Any]]) -> str:
    return "\n".join([*(_ladder(found, sheets) for found in ladders), *map(_sheet, sheets)])


def _ladder(found: dict[str, Any], sheets: Sequence[Sheet]) -> str:
    sheet = sheets[found["protocol"]]
    heads = ["Model", "Rungs", *(rung["name"] for rung in found["rungs"])]
    lines = []
    for row in found["rows"]:
        boxes = [_box(step) if step["n"] else DASH for step in row["steps"]]
        lines.append([sheet.titles[row["model"]], f"{row['held']}/{row['run']}", *boxes])
    held, lost, missed = MARKS.values()
    where = (
        f"Seeds that hold a rung at lengths {found['where']}. {held} most do, {lost} most learn it and lose it, "
        f"{missed} most do not learn it. Theory: ✓ can, ✗ cannot, · open; {CONDITIONAL} unless TC0 = NC1."
    )
    return _table(f"The ladder: {sheet.label}", where, heads, lines)


def _box(step: dict[str, Any]) -> str:
    return f"{MARKS[step['outcome']]} {step['held']}/{step['n']} {step['sign']}"


def _sheet(sheet: Sheet) -> str:
    place = sheet.place
    at = [[place.get((model, task)) for task in sheet.tasks] for model in sheet.models]
    lines = [
        [sheet.titles[model], *(DASH if i is None else _cell(sheet.cells[i]) for i in line)]
        for model, line in zip(sheet.models, at, strict=True)
    ]
    first = {cell.stats.task: cell for cell in reversed(sheet.cells) if cell.runs}
    for floor in FLOORS:
        values = [first[task].scaled(first[task].runs[0][floor]) if task in first else None for task in sheet.tasks]
        lines.append([f"floor: {floor.replace('_', ' ')}", *(DASH if v is None else _two(v) for v in values)])
    raw = {cell.stats.task for cell in sheet.cells if cell.stats.measure == "test"}
    heads = ["Model", *(f"{task} (raw)" if task in raw else task for task in sheet.tasks)]
    about = "Test accuracy, 0 chance and 1 perfect: median over seeds, [lowest, highest], and how many runs solved it."
    return _table(sheet.label, about, heads, lines)


def _cell(cell: Cell) -> str:
    seen = cell.stats
    fates = [f"{count} {fate}" for fate, count in (("diverged", seen.diverged), ("failed", seen.failed)) if count]
    if seen.median is None:
        return f"none of {seen.diverged + seen.failed + seen.unfinished_elsewhere} finished"
    low, high = map(_two, seen.range)
    spread = f" [{low}, {high}]" if low != high else ""
    return f"{_two(seen.median)}{spread} {', '.join([f'{seen.reached.hits}/{seen.reached.n}', *fates])}"


def _table(title: str, about: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>\n'
        for name, *values in lines
    )
    return (
        f"<h2>{escape(title)}</h2><p>{escape(about)}</p>\n"
        f'<div class="scroll"><table class="numbers"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _two(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00
