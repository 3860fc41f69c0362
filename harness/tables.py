"""Tables from records and nothing else: results/records.csv in, CSV and markdown out, the same bytes every time.

A table holds one protocol, its deviations named in the title. The learning rate of a cell is chosen on validation; the
cell shows test at that rate, at the last step: mean and standard deviation over seeds, with their number. The records
come from harness/collect.py.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.collect import Record as Record
from harness.collect import collect
from harness.collect import stored as stored
from harness.files import write_atomically

Row = dict[str, Any]  # a record's, in a frame

_LEVELS = ("regular", "counter", "context_free", "context_sensitive", "none")  # of tasks/base.py, which needs torch


def cells(records: pd.DataFrame) -> pd.DataFrame:
    """One row a protocol, task and model: the chosen rate, its seeds and what they scored."""
    places: dict[tuple[str, str, str], list[Row]] = {}
    for row in records.to_dict("records"):
        places.setdefault((row["protocol"], row["task"], row["model"]), []).append(row)
    rows = []
    for (protocol, task, model), cell in sorted(places.items()):
        by_rate_and_seed = Counter((row["lr"], row["seed"]) for row in cell)
        twice = [row["run_id"] for row in cell if by_rate_and_seed[row["lr"], row["seed"]] > 1]
        if twice:
            raise ValueError(f"{task}, {model}: runs of one rate and seed under one label: {', '.join(twice)}")
        base = {"protocol": protocol, "level": cell[0]["level"], "task": task, "model": model}
        counts = {**_fates(cell), "rates": len({row["lr"] for row in cell})}
        if all(row["status"] != "done" for row in cell):
            rows.append({**base, "n": 0, **counts})
            continue
        rate, other_rate = _best_rate(cell, "validation"), _best_rate(cell, "in_distribution")
        chosen = [row for row in cell if row["lr"] == rate and row["status"] == "done"]
        finished = sorted(chosen, key=lambda row: row["seed"])
        is_scaled = bool(pd.notna([row["test_scaled"] for row in finished]).all())  # not where several are right
        name = "test_scaled" if is_scaled else "test"
        shown = [row[name] for row in finished]
        floors = {floor: finished[0][floor] for floor in ("s_rand", "best_constant", "content_free")}
        rows.append(
            {
                **base,
                "n": len(finished),
                **counts,
                "lr": rate,
                "scaled": is_scaled,
                "mean": _mean(shown),
                "std": _spread(shown),
                "seeds": " ".join(f"{value:.4f}" for value in shown),
                "exact": _mean([row["test_exact"] for row in finished]),
                "validation": _mean([row["validation"] for row in finished]),
                "lr_in_distribution": other_rate,
                "mean_in_distribution": _mean([row[name] for row in cell if row["lr"] == other_rate]),
                **floors,
                "parameters": finished[0]["parameters"],
                "seconds": _mean([row["train_seconds"] + row["score_seconds"] for row in finished]),
            }
        )
    columns = dict.fromkeys([*max(rows, key=len), "scaled", "seconds", "parameters"])  # also where nothing finished
    return pd.DataFrame(rows).reindex(columns=list(columns)).astype({"parameters": "Int64"})


def _best_rate(cell: list[Row], column: str) -> float:
    """Of the rates at which a seed finished, the one with the highest mean; a seed that did not finish counts zero.

    A tie goes to the lower rate; the sums are exact, so that rounding never decides one.
    """
    runs = Counter(row["lr"] for row in cell)
    scores: dict[float, list[float]] = {}
    for row in cell:
        if row["status"] == "done":
            scores.setdefault(float(row["lr"]), []).append(row[column])
    means = {rate: math.fsum(values) / runs[rate] for rate, values in scores.items()}
    return max(sorted(means), key=means.__getitem__)


def _mean(values: Sequence[float]) -> float:
    """Of those there are, as pandas takes it."""
    array = np.array(values, dtype=float)  # None becomes nan
    there = ~np.isnan(array)
    return float(np.where(there, array, 0).sum() / there.sum()) if there.any() else math.nan


def _spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds; there is none of one."""
    there = np.array([value for value in values if pd.notna(value)], dtype=float)
    return float(there.std(ddof=1)) if len(there) > 1 else math.nan


def _fates(cell: list[Row]) -> dict[str, int]:
    return {fate: sum(row["status"] == fate for row in cell) for fate in ("diverged", "failed")}


def markdown(table: pd.DataFrame) -> str:
    """All cells as one table a protocol."""
    parts = [_one_protocol(str(protocol), group) for protocol, group in table.groupby("protocol", sort=True)]
    return "\n".join(parts)


def _one_protocol(protocol: str, table: pd.DataFrame) -> str:
    order = {level: place for place, level in enumerate(_LEVELS)}
    tasks = sorted(table["task"].unique(), key=lambda task: (order.get(_level(table, task), len(order)), task))
    models = sorted(table["model"].unique())
    by_place = {(row["task"], row["model"]): row for _, row in table.iterrows()}
    raw = set(table.loc[table["n"].gt(0) & table["scaled"].ne(True), "task"])
    kinds = [f"{_level(table, task).replace('_', '-')}{', raw' if task in raw else ''}" for task in tasks]
    header = ["model", *(f"{task}<br>{kind}" for task, kind in zip(tasks, kinds, strict=True)), "s a run"]
    lines = [header, ["---", *("---:" for _ in header[1:])]]
    for model in models:
        rows = [by_place.get((task, model)) for task in tasks]
        seconds = [row["seconds"] for row in rows if row is not None and row["n"]]
        lines.append([model, *map(_cell, rows), f"{sum(seconds) / len(seconds):.1f}" if seconds else "-"])
    for floor in ("best_constant", "content_free"):
        lines.append([f"*floor: {floor.replace('_', ' ')}*", *(_floor(table, task, floor) for task in tasks), ""])
    title = f"### {protocol}\n\nScaled test accuracy (0 is chance, 1 perfect), mean ± standard deviation over (seeds)"
    quick = " **Quick: a smoke run, not a result.**" if protocol.split()[0] == "quick" else ""
    rates = "" if table["rates"].max() == 1 else "; the learning rate of each cell chosen on validation"
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{title}{rates}.{quick}\n\n{body}\n"


def _level(table: pd.DataFrame, task: str) -> str:
    return str(table.loc[table["task"] == task, "level"].iloc[0])


def _cell(row: pd.Series | None) -> str:
    if row is None:
        return "-"
    fates = [f"{row[fate]} {fate}" for fate in ("diverged", "failed") if row[fate]]
    if not row["n"]:
        return ", ".join(fates)
    spread = f" ± {row['std']:.2f}" if row["n"] > 1 else ""
    return f"{_two_digits(row['mean'])}{spread} ({', '.join([str(row['n']), *fates])})"


def _floor(table: pd.DataFrame, task: str, floor: str) -> str:
    rows = table[(table["task"] == task) & table["n"].gt(0)]
    if rows.empty:
        return "-"
    if not rows["scaled"].iloc[0]:
        return _two_digits(rows[floor].iloc[0])
    chance = rows["s_rand"].iloc[0]
    return _two_digits((rows[floor].iloc[0] - chance) / (1 - chance))


def _two_digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00


def write(results: Path) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md}, and return the markdown."""
    table = cells(collect(results))
    folder = results / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    csv = table.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_atomically(folder / "accuracy.csv", csv.encode())
    text = markdown(table)
    write_atomically(folder / "accuracy.md", text.encode())
    return text
