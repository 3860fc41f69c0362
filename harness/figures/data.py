"""What each figure shows, as a table of its own: numbers from the records of one protocol, and none of matplotlib.

A cell is shown at the rate chosen on validation. Accuracies are scaled, (accuracy - s_rand) / (1 - s_rand), except
for tasks where several answers are right; the column `scaled` says which. In the ladder and in the cost, as in every
share and aggregate (harness/stats/cell_stats.py), a run that did not finish scores 0.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pandas as pd

from chomsky_ladder.harness.stats.aggregates import aggregate, suites
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.view import (
    CLASSES,
    FLOORS,
    Cell,
    _ends,
    training_lengths,
)

COSTS = ("parameters", "state_bytes", "train_seconds")
CURVE_COLUMNS = ("run_id", "step", "loss", "validation")
HELD = 0.9  # the mean scaled accuracy from which a task counts as held


def heat_map(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row for every cell, and for every floor of every task with a finished run."""
    rows = []
    for cell in cells:
        seen = cell.stats
        scores = {"lr": seen.lr, "mean": seen.mean, "std": seen.std, "n": seen.n}
        rows.append({**cell.place, **scores, "unfinished": seen.diverged + seen.failed})
    for cell in _one_a_task(cells):
        for floor in FLOORS:
            value = cell.scaled(cell.runs[0][floor])
            rows.append({**cell.place, "model": "", "floor": floor, "mean": value, "n": 0, "unfinished": 0})
    columns = ("protocol", "level", "task", "model", "floor", "scaled", "lr", "mean", "std", "n", "unfinished")
    return _table(rows, columns)


def lengths(cells: Sequence[Cell]) -> pd.DataFrame:
    """Accuracy by length: of the training lengths, of each bin of test lengths, of each further length.

    `kind` is training, test or further; test rows without a model are the length-and-position floor.
    """
    rows = []
    for cell in cells:
        for kind, low, high, values in _lengths(cell):
            rows.append({**cell.place, "kind": kind, "low": low, "high": high, **_spread(values)})
    for cell in _one_a_task(cells):
        for name, value in json.loads(cell.runs[0]["content_free_bins"]).items():
            low, high = _ends(name)
            spread = _spread([cell.scaled(value)])
            rows.append({**cell.place, "model": "", "kind": "test", "low": low, "high": high, **spread, "n": 0})
    columns = ("protocol", "level", "task", "model", "scaled", "kind", "low", "high", "mean", "min", "max", "n")
    return _table(rows, columns)


def _lengths(cell: Cell) -> Iterator[tuple[str, int, int, list[float | None]]]:
    if not cell.runs:
        return
    trained = training_lengths(cell.stats.protocol, json.loads(cell.runs[0]["test_bins"]))
    if trained:
        yield "training", *trained, [cell.scaled(run["in_distribution"]) for run in cell.runs]
    for kind, column in (("test", "test_bins"), ("further", "extrapolation")):
        by_run = [json.loads(run[column]) for run in cell.runs]
        for low, high in sorted({_ends(name) for bins in by_run for name in bins}):
            names = (f"{low}..{high}", str(low))
            found = [bins[name] for bins in by_run for name in names if name in bins]
            yield kind, low, high, [cell.scaled(value) for value in found]


def learning(cells: Sequence[Cell], curves: pd.DataFrame | None, *, of: Literal["validation", "loss"]) -> pd.DataFrame:
    """Validation accuracy, or training loss, by step over a cell's seeds.

    One that stopped early, its validation being perfect, keeps its last value to the last step of its cell.
    """
    columns = ("protocol", "level", "task", "model", "scaled", "step", "mean", "min", "max", "n")
    if curves is None:
        return _table([], columns)
    missing = [name for name in CURVE_COLUMNS if name not in curves]
    if missing:
        raise ValueError(f"curves have the columns {', '.join(CURVE_COLUMNS)}; these lack {', '.join(missing)}")
    twice = curves[curves.duplicated(["run_id", "step"])]
    if len(twice):
        raise ValueError(f"curves hold step {twice['step'].iloc[0]} of {twice['run_id'].iloc[0]} twice")
    by_run: dict[str, dict[int, float]] = {}
    for row in curves.dropna(subset=[of]).sort_values("step").to_dict("records"):
        by_run.setdefault(row["run_id"], {})[int(row["step"])] = float(row[of])
    rows = []
    for cell in cells:
        kept = [(run, by_run[run["run_id"]]) for run in cell.runs if run["run_id"] in by_run]
        for step in sorted({step for _, curve in kept for step in curve}):
            values = [_at(curve, step, holds=bool(run["stopped_early"])) for run, curve in kept]
            spread = _spread([cell.scaled(value) for value in values] if of == "validation" else values)
            if spread["n"]:
                rows.append({**cell.place, "step": step, **spread})
    return _table(rows, columns)


def _at(curve: dict[int, float], step: int, *, holds: bool) -> float | None:
    last = max(curve)
    return curve[last] if holds and step > last else curve.get(step)


def cost(cells: Sequence[Cell]) -> pd.DataFrame:
    """Mean scaled accuracy over tasks, with its bootstrap interval, against what a model costs.

    The tasks are those that keep most cells when every model shown must have them all (`chosen_tasks`). `front_*`
    marks the models for which no other is as good at no more of that cost, and better in one of the two. Models
    without some of the tasks have no runs here.
    """
    fair = [cell for cell in cells if cell.stats.measure != "test" and cell.stats.level != "none"]
    tasks = chosen_tasks(fair)
    columns = ["protocol", "model", "tasks", "runs", "mean", "low", "high", *COSTS, "device"]
    columns += [f"front_{name}" for name in COSTS]
    if not tasks:
        return _table([], columns)
    models = {cell.stats.model for cell in cells}
    of_model: dict[str, list[Cell]] = {}
    for cell in fair:
        if cell.stats.task in tasks:
            of_model.setdefault(cell.stats.model, []).append(cell)
    shown = {model: own for model, own in of_model.items() if len(own) == len(tasks)}
    found = suites([cell.stats for own in shown.values() for cell in own], tasks=tasks)
    left_out = [{"protocol": fair[0].stats.protocol, "model": model, "runs": 0} for model in models - set(shown)]
    rows = []
    for model, own in sorted(shown.items()):
        estimate = aggregate(found[model].scores)
        runs = [run for cell in own for run in cell.runs]
        costs = {name: mean_and_std([float(run[name]) for run in runs if pd.notna(run[name])])[0] for name in COSTS}
        scores = dict(zip(("mean", "low", "high"), estimate.mean, strict=True))
        labels = {"protocol": own[0].stats.protocol, "model": model, "tasks": "; ".join(tasks)}
        devices = "; ".join(sorted({run["device"] or "unknown" for run in runs}))
        rows.append({**labels, "runs": estimate.runs, **scores, **costs, "device": devices})
    for name in COSTS:
        for row in rows:
            row[f"front_{name}"] = bool(row[name]) and not any(_beats(other, row, name) for other in rows)
    if not any(row[name] for row in rows for name in COSTS):
        return _table([], columns)
    return _table(sorted([*rows, *left_out], key=lambda row: row["model"]), columns)


def chosen_tasks(cells: Sequence[Cell]) -> list[str]:
    """Of the models' sets of tasks, and what all have in common: the one with most cells of models that have it all."""
    have: dict[str, frozenset[str]] = {}
    for cell in cells:
        have[cell.stats.model] = have.get(cell.stats.model, frozenset()) | {cell.stats.task}
    if not have:
        return []
    choices = {*have.values(), frozenset.intersection(*have.values())}
    return min(
        (sorted(tasks) for tasks in choices),
        key=lambda tasks: (-len(tasks) * sum(own.issuperset(tasks) for own in have.values()), -len(tasks), tasks),
    )


def _beats(other: dict[str, Any], row: dict[str, Any], name: str) -> bool:
    if not other[name]:
        return False
    is_as_good = other[name] <= row[name] and other["mean"] >= row["mean"]
    return is_as_good and (other[name] < row[name] or other["mean"] > row["mean"])


Rung = Literal["held", "missed", "unknown"]


def ladder(cells: Sequence[Cell], *, held: float = HELD) -> pd.DataFrame:
    """A row for every model and class. `climbed` marks the one on which it stands.

    A task is measured where a run finished or diverged, and where the floor of length and position lies under `held`;
    it is held where the mean over runs reaches `held`. A class is held if at least half of its measured tasks are,
    unknown if none is measured. A model stands on the highest held class with no missed one below it.
    """
    floors = {cell.stats.task: cell.scaled(cell.runs[0]["content_free"]) for cell in _one_a_task(cells)}
    tasks: dict[tuple[str, str], dict[str, bool]] = {}
    models = sorted({cell.stats.model for cell in cells if cell.stats.level in CLASSES})
    for cell in cells:
        seen, floor = cell.stats, floors.get(cell.stats.task)
        if seen.measure != "test" and (seen.n or seen.diverged) and (floor is None or floor < held):
            mean = math.fsum(seen.outcomes) / len(seen.outcomes)
            tasks.setdefault((seen.model, seen.level), {})[seen.task] = mean >= held
    rows = []
    for model in models:
        stands, is_open = None, True
        for level in CLASSES:
            own = tasks.get((model, level), {})
            rung: Rung = "unknown" if not own else "held" if 2 * sum(own.values()) >= len(own) else "missed"
            is_open = is_open and rung != "missed"
            stands = level if is_open and rung == "held" else stands
            names = {
                "held_tasks": "; ".join(sorted(task for task, is_held in own.items() if is_held)),
                "missed_tasks": "; ".join(sorted(task for task, is_held in own.items() if not is_held)),
            }
            counts = {"held": sum(own.values()), "measured": len(own)}
            rows.append({"model": model, "level": level, "rung": rung, **counts, **names})
        for row in rows[-len(CLASSES) :]:
            row["climbed"] = row["level"] == stands
    protocol = {"protocol": cells[0].stats.protocol} if cells else {}
    columns = ("protocol", "model", "level", "rung", "held", "measured", "climbed", "held_tasks", "missed_tasks")
    if not tasks:
        return _table([], columns)
    return _table([{**protocol, **row} for row in rows], columns)


def _one_a_task(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each task that has a finished run."""
    first: dict[str, Cell] = {}
    for cell in cells:
        if cell.runs:
            first.setdefault(cell.stats.task, cell)
    return list(first.values())


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    there = [value for value in values if value is not None and math.isfinite(value)]
    ends = (min(there), max(there)) if there else (None, None)
    return dict(zip(("mean", "min", "max", "n"), (mean_and_std(there)[0], *ends, len(there)), strict=True))


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))
