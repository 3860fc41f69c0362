"""The cells of a table, from records: the chosen learning rate, its seeds, and their scores.

The learning rate of a cell is chosen on validation. The cell holds test scores at that rate, at the last step. Seeds
are more often at 0 or 1 than between, so a mean may describe no run at all. A cell therefore says how many of its runs
solved the task, with the median and range of those that finished. Mean and standard deviation stand beside it, as in
papers.

    1.00 [0.99, 1.00] 3/3      0.34 [0.01, 1.00] 1/3

Names and settings (harness/store/labels.py) come last.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.labels import COLUMNS as IDENTITY
from chomsky_ladder.harness.store.labels import Identity

SOLVED = 0.9  # a run with this score has solved the task, unless its protocol says otherwise
FRESH = 1000  # the first of the seeds that choose nothing (harness/sweep/report_seeds.py)
_FEW = 8  # values that numpy, too, adds one after the other

Row = dict[str, Any]  # of a record in a frame
Place = tuple[str, str, str]  # protocol, task and model


def headline(records: pd.DataFrame) -> pd.DataFrame:
    """Return the records of fresh seeds at chosen learning rates for protocols in which every cell has some; else all
    others.

    A protocol that reports fresh seeds alone (`Protocol.report`) has no cell until it has some.
    """
    _refuse_mixed_sources(records)
    kept = [_of_protocol(group) for _, group in records.groupby("protocol", sort=False)]
    return records.loc[records.index.isin([index for group in kept for index in group])]


def _refuse_mixed_sources(records: pd.DataFrame) -> None:
    """Refuse runs of one label that different versions of a plugin's code made: they are no seeds of one model."""
    if "sources" not in records:
        return
    made = records[records["sources"].fillna("") != ""]
    for (protocol, task, model), cell in made.groupby(["protocol", "task", "model"], sort=True):
        if cell["sources"].nunique() > 1:
            one, other = as_rows(cell.drop_duplicates("sources").sort_values("seed", kind="stable"))[:2]
            raise ValueError(
                f"{protocol}, {task}, {model}: {one['run_id']} was made with {one['sources']}, {other['run_id']} with "
                f"{other['sources']}: no table has both. Take one out with `ladder clean {one['run_id']}` and "
                f"`ladder clean --records {one['run_id']}`. A raised `version` tells apart only what is run after it"
            )


def _of_protocol(records: pd.DataFrame) -> pd.Index:
    is_fresh = records["seed"] >= FRESH
    protocol = PROTOCOLS.get(str(records["protocol"].iloc[0]))
    reports = protocol is not None and protocol.report > 0
    if not reports and (not is_fresh.any() or is_fresh.all()):
        return records.index
    reported = []
    for _, cell in records.groupby(["task", "model"]):
        fresh, others = cell[cell["seed"] >= FRESH], cell[cell["seed"] < FRESH]
        rate = best_rate(as_rows(others), "validation")
        found = fresh[fresh["lr"] == rate]
        if rate is None:  # nothing was chosen: show the others, or the fresh ones
            found = fresh if others.empty or reports else others
        if found.empty and not reports:
            return records.index[~is_fresh]
        reported += list(found.index)
    return pd.Index(reported)


def set_aside(records: pd.DataFrame) -> list[str]:
    """Return a line for each protocol of which `headline` leaves out runs, with their number and the reason."""
    lines = []
    for protocol, group in records.groupby("protocol", sort=True):
        left = group.loc[group.index.difference(_of_protocol(group))]
        fresh = int((left["seed"] >= FRESH).sum())
        if fresh < len(left):
            why = f"they chose the learning rates, and seeds from {FRESH} on are shown in their place"
            lines.append(
                f"{protocol}: {len(left) - fresh} of {len(group)} runs, of seeds below {FRESH}, are left out: {why}"
            )
        elif fresh:
            why = "not every task and model of the protocol has some at its chosen learning rate"
            lines.append(f"{protocol}: {fresh} of {len(group)} runs, of seeds from {FRESH} on, are left out: {why}")
    return lines


def placed(records: pd.DataFrame) -> dict[Place, list[Row]]:
    """Return the records that count, by protocol, task and model."""
    places: dict[Place, list[Row]] = {}
    for row in as_rows(headline(records)):
        places.setdefault((row["protocol"], row["task"], row["model"]), []).append(row)
    return places


def cells(records: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each protocol, task and model: the chosen learning rate, its seeds and their scores."""
    return tabled(placed(records))


def cell_rows(places: dict[Place, list[Row]]) -> list[Row]:
    """Return a row for each cell. One without a finished run has few entries."""
    rows: list[Row] = []
    for (protocol, task, model), cell in sorted(places.items()):
        by_rate_and_seed = Counter((row["lr"], row["seed"]) for row in cell)
        twice = [row["run_id"] for row in cell if by_rate_and_seed[row["lr"], row["seed"]] > 1]
        if twice:
            raise ValueError(f"{task}, {model}: runs of one rate and seed under one label: {', '.join(twice)}")
        base = {"protocol": protocol, "level": cell[0]["level"], "task": task, "model": model}
        identity = Identity.of(cell[0]).columns()
        counts = {**_fates(cell), "rates": len({row["lr"] for row in cell})}
        if all(row["status"] != "done" for row in cell):
            rows.append({**base, "n": 0, **counts, **identity})
            continue
        rate, other_rate = best_rate(cell, "validation"), best_rate(cell, "in_distribution")
        chosen = [row for row in cell if row["lr"] == rate and row["status"] == "done"]
        finished = sorted(chosen, key=lambda row: row["seed"])
        is_scaled = _is_scaled(cell)
        name = "test_scaled" if is_scaled else "test"
        shown = [row[name] for row in finished]
        low, high = least_and_most(shown)
        floors = {floor: finished[0][floor] for floor in ("s_rand", "best_constant", "content_free")}
        rows.append(
            {
                **base,
                "n": len(finished),
                "fresh": all(row["seed"] >= FRESH for row in finished),
                **counts,
                "lr": rate,
                "scaled": is_scaled,
                "mean": _mean(shown),
                "std": _spread(shown),
                "median": median_of(shown),
                "low": low,
                "high": high,
                "solved": solved_among(finished),
                "runs": sum(row["lr"] == rate for row in cell),  # unfinished ones, too
                "overflowed": sum(overflowed(row) for row in finished),
                "seeds": " ".join(f"{value:.4f}" for value in shown),
                "exact": _mean([row["test_exact"] for row in finished]),
                "validation": _mean([row["validation"] for row in finished]),
                "lr_in_distribution": other_rate,
                "mean_in_distribution": _mean([row[name] for row in cell if row["lr"] == other_rate]),
                **floors,
                "parameters": finished[0]["parameters"],
                "seconds": _mean([row["train_seconds"] + row["score_seconds"] for row in finished]),
                **identity,
            }
        )
    return rows


def tabled(places: dict[Place, list[Row]]) -> pd.DataFrame:
    """Return the rows of cells as a frame."""
    rows = cell_rows(places)
    certain = ("fresh", "scaled", "seconds", "parameters")  # known even if nothing finished
    if not rows:
        return pd.DataFrame(columns=["protocol", "level", "task", "model", "n", *IDENTITY])
    measured = [name for name in max(rows, key=len) if name not in IDENTITY]
    columns = dict.fromkeys([*measured, *certain, *IDENTITY])
    whole = {name: "Int64" for name in ("parameters", "solved", "runs") if name in columns}
    return pd.DataFrame(rows).reindex(columns=list(columns)).astype(whole)


def _is_scaled(cell: list[Row]) -> bool:
    """Return True if a cell shows scaled accuracies. Every run must have one, or none, if several answers are right."""
    done = [row for row in cell if row["status"] == "done"]
    without = [row["run_id"] for row in done if pd.isna(row["test_scaled"])]
    if without and len(without) < len(done):
        raise ValueError(
            f"{without[0]} has no scaled accuracy, and other runs of its cell have: `ladder clean {without[0]}` "
            f"removes its run, and `ladder clean --records {without[0]}` its line"
        )
    return not without


def solved_among(finished: Sequence[Row]) -> int:
    """Count the runs of a cell that solve the task, as its protocol says; raw where nothing is scaled."""
    protocol = PROTOCOLS.get(Identity.of(finished[0]).protocol_name) if finished else None
    enough, is_raw = (protocol.solved, protocol.measure == "raw") if protocol else (SOLVED, False)
    return sum(
        bool(row["test" if is_raw or pd.isna(row["test_scaled"]) else "test_scaled"] >= enough) for row in finished
    )


def solved_text(protocol: str) -> str:
    """Return the score at which a run counts as solved in its protocol: `scaled accuracy of 0.9 or more`."""
    known = PROTOCOLS.get(protocol)
    measure, least = (known.measure, known.solved) if known else ("scaled", SOLVED)
    return f"{measure} accuracy of {least:g} or more"


def best_rate(cell: Iterable[Row], column: str) -> float | None:
    """Return the learning rate with the highest mean, where unfinished seeds count zero; None if no seed finished.

    A tie goes to the lower learning rate, or if the protocol says so, to the one that validated at 0.99 after fewer
    steps. Sums are exact, so rounding never decides.
    """
    cell = list(cell)
    runs = Counter(row["lr"] for row in cell)
    scores: dict[float, list[float]] = {}
    for row in cell:
        if row["status"] == "done":
            scores.setdefault(float(row["lr"]), []).append(row[column])
    means = {rate: math.fsum(values) / runs[rate] for rate, values in scores.items()}
    steps = _steps_to_learn(cell) if cell and _ties_by_steps(cell[0]) else {}
    return max(sorted(means), key=lambda rate: (means[rate], -steps.get(rate, 0.0)), default=None)


def _ties_by_steps(row: Row) -> bool:
    protocol = PROTOCOLS.get(str(row.get("protocol_name")))
    return protocol is not None and protocol.ties == "sooner"


def _steps_to_learn(cell: Iterable[Row]) -> dict[float, float]:
    """Return the summed steps to 0.99 of all seeds of a learning rate; infinite if one never got there."""
    steps: dict[float, float] = {}
    for row in cell:
        first = row["steps_to_99"] if row["status"] == "done" else None
        rate = float(row["lr"])
        steps[rate] = steps.get(rate, 0.0) + (math.inf if first is None or pd.isna(first) else first)
    return steps


def _mean(values: Sequence[float | None]) -> float:
    """Return the mean of the values that are there, as pandas takes it."""
    if len(values) < _FEW:
        there = [float(value) for value in values if value is not None and not math.isnan(value)]
        return reduce(add, there) / len(there) if there else math.nan
    array = np.array(values, dtype=float)  # None becomes nan
    found = ~np.isnan(array)
    return float(np.where(found, array, 0).sum() / found.sum()) if found.any() else math.nan


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; nan for a single one."""
    there = np.array([value for value in values if pd.notna(value)], dtype=float)
    return float(there.std(ddof=1)) if len(there) > 1 else math.nan


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are there."""
    there = [float(value) for value in values if value is not None and math.isfinite(value)]
    return median(there) if there else None


def least_and_most(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the least and the greatest of the values that are not None."""
    there = [float(value) for value in values if value is not None and math.isfinite(value)]
    return (min(there), max(there)) if there else (None, None)


def overflowed(row: Row) -> bool:
    """Return True if logits of some test strings of a finished run are not numbers; their answers count as wrong."""
    return bool(row["status"] == "done" and pd.isna(row["test_loss"]))


def _fates(cell: list[Row]) -> dict[str, int]:
    return {fate: sum(row["status"] == fate for row in cell) for fate in ("diverged", "failed")}
