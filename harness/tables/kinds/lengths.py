"""Length generalisation: accuracy at the training lengths, by bin of the test lengths, and at lengths beyond them.

One sheet a task, since tasks may have bins of their own. Where a run has no score at a length there is a dash.
"""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats import view
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.cells import least_and_most, median_of, placed, tabled
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import (
    Column,
    Entry,
    Line,
    Sheet,
    cell_text,
    floor_name,
    range_entry,
)

Place = tuple[str, str]  # training, test, all or further; and the lengths
Scores = dict[Place, list[float]]  # a seed each

_NOT_TESTED = "Nothing may be bold: models are only tested against each other on all test lengths together."


def lengths(records: pd.DataFrame) -> Made:
    """Return the sheets of one protocol, in the hierarchy's order, and a row for every number in them."""
    by_place = placed(records)
    found = view.cells_in(by_place)
    texts = {(row["task"], row["model"]): cell_text(row) for _, row in tabled(by_place).iterrows()}
    sheets, rows = [], []
    for task in dict.fromkeys(cell.stats.task for cell in found):
        of_task = [cell for cell in found if cell.stats.task == task]
        if any(cell.runs for cell in of_task):
            scored = [_scores(cell) for cell in of_task]
            sheets.append(_sheet(of_task, scored, texts))
            rows += _rows(of_task, scored)
    columns = (
        "protocol",
        "level",
        "task",
        "model",
        "floor",
        "scaled",
        "kind",
        "lengths",
        "mean",
        "std",
        "median",
        "low",
        "high",
        "n",
    )
    return Made(tuple(sheets), pd.DataFrame(rows, columns=list(columns)))


def _sheet(cells_here: Sequence[view.Cell], scored: Sequence[Scores], texts: dict[tuple[str, str], str]) -> Sheet:
    seen = cells_here[0].stats
    places = _places(scored)
    lines = []
    for cell, scores in zip(cells_here, scored, strict=True):
        entries = [range_entry(scores.get(place, [])) for place in places]
        entries[places.index(("all", _all(places)))] = Entry((texts[cell.stats.task, cell.stats.model],))
        lines.append(Line(cell.stats.title, tuple(entries)))
    for floor in view.FLOORS:
        scores = _floor_scores(_with_runs(cells_here), floor, places)
        lines.append(
            Line(floor_name(floor), tuple(range_entry(scores.get(place, [])) for place in places), is_floor=True)
        )
    is_raw = any(cell.stats.measure == "test" for cell in cells_here)
    kind = "Accuracy (raw)" if is_raw else "Scaled accuracy (0 is chance, 1 perfect)"
    lead = f"{kind} by length: median over seeds, [lowest, highest] where they differ; over all test lengths k/n, too."
    names = {"training": "training", "test": "test", "all": "test", "further": "further"}
    columns = tuple(Column(shown, names[kind], "all" if kind == "all" else "") for kind, shown in places)
    title = f"{seen.protocol}: {seen.task}"
    warning = warning_of(seen.identity.protocol_name)
    return Sheet(title, (lead,), "model", columns, tuple(lines), (_NOT_TESTED,), warning)


def _rows(cells_here: Sequence[view.Cell], scored: Sequence[Scores]) -> list[dict[str, Any]]:
    places, rows = _places(scored), []
    for cell, scores in zip(cells_here, scored, strict=True):
        rows += [_row(cell, place, scores[place], n=len(scores[place])) for place in places if place in scores]
    for floor in view.FLOORS:
        one = _with_runs(cells_here)
        scores = _floor_scores(one, floor, places)
        rows += [
            {**_row(one, place, scores[place], n=0), "model": "", "floor": floor} for place in places if place in scores
        ]
    return rows


def _row(cell: view.Cell, place: Place, values: Sequence[float], *, n: int) -> dict[str, Any]:
    mean, std = mean_and_std(values)
    low, high = least_and_most(values)
    found = {"mean": mean, "std": std, "median": median_of(values), "low": low, "high": high, "n": n}
    return {**cell.place, "floor": "", "kind": place[0], "lengths": place[1], **found}


def _places(scored: Sequence[Scores]) -> list[Place]:
    """Return the columns that any model has: training first, then test bins, all test lengths, further lengths."""
    order = {"training": 0, "test": 1, "all": 2, "further": 3}
    found = {place for scores in scored for place in scores}
    return sorted(found, key=lambda place: (order[place[0]], _ends(place[1])))


def _all(places: Sequence[Place]) -> str:
    return next(shown for kind, shown in places if kind == "all")


def _scores(cell: view.Cell) -> Scores:
    """Return the scores of each seed, by column."""
    if not cell.runs:
        return {}
    scores: Scores = {}
    by_run = [json.loads(run["test_bins"]) for run in cell.runs]
    trained = view.training_lengths(cell.stats.identity, by_run[0])
    low_high = f"{trained[0]}..{trained[1]}" if trained else "as trained"
    edges = [_ends(name) for bins in by_run for name in bins]
    tested = f"{min(low for low, _ in edges)}..{max(high for _, high in edges)}" if edges else "as tested"
    for run, bins in zip(cell.runs, by_run, strict=True):
        of_run = {("training", low_high): run["in_distribution"], ("all", tested): run["test"]}
        of_run |= {("test", name): value for name, value in bins.items()}
        of_run |= {("further", name): value for name, value in json.loads(run["extrapolation"]).items()}
        for place, value in of_run.items():
            scaled = cell.scaled(value)
            if scaled is not None:
                scores.setdefault(place, []).append(scaled)
    return scores


def _floor_scores(cell: view.Cell, floor: str, places: Sequence[Place]) -> Scores:
    """Over all test lengths; by bin of the better floor alone, which is the only one that knows the length."""
    values = {("all", _all(places)): cell.runs[0][floor]}
    if floor == "content_free":
        values |= {("test", name): value for name, value in json.loads(cell.runs[0]["content_free_bins"]).items()}
    scaled = {place: cell.scaled(value) for place, value in values.items()}
    return {place: [value] for place, value in scaled.items() if value is not None}


def _with_runs(cells_here: Sequence[view.Cell]) -> view.Cell:
    return next(cell for cell in cells_here if cell.runs)


def _ends(name: str) -> tuple[int, int]:
    low, _, high = name.partition("..")
    return (int(low), int(high or low)) if low.isdigit() else (0, 0)


register(Kind(name="lengths", about="accuracy by length, a sheet a task", make=lengths, rank=2))
