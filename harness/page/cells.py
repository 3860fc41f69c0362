"""Every cell of every protocol for the page's script: what it shows, the runs behind it, and a paper's value beside it.

Runs and cells stand once each, in columns (harness/page/columns.py); cells name their runs by place.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs, warning_of
from chomsky_ladder.harness.page.columns import Packed, packed, shortened, table, value_of
from chomsky_ladder.harness.stats.cells import solved_text
from chomsky_ladder.harness.stats.view import FLOORS, Cell, rank, training_lengths
from chomsky_ladder.harness.store.labels import Identity, Label, reproduce
from chomsky_ladder.harness.tables.against import beside
from chomsky_ladder.harness.tables.published import papers, published

RUN_COLUMNS = (
    *("seed", "lr", "status", "steps", "stopped_early", "test", "test_scaled", "test_exact", "validation"),
    *("in_distribution", "steps_to_99", "tokens_per_step", "parameters", "state_bytes", "train_seconds"),
    *("score_seconds", "device", "torch", "backends", "fingerprint", "mixed_numerics", "commit", "dirty", "error"),
)
BINS = ("test_bins", "content_free_bins", "extrapolation")
CURVES = ("validation", "loss")
BITS_OF = "train.qat"
SHORT = 10  # letters of a commit's hash
_CURVE_NUMBERS = 40_000  # over all curves of a page


@dataclass(frozen=True)
class Sheet:
    """The cells of one protocol, with its tasks and models in order."""

    label: str
    cells: list[Cell]
    tasks: list[str]  # by class
    models: list[str]
    levels: dict[str, str]

    @property
    def protocol(self) -> Identity:
        """Return the identity of a cell, for all cells of a sheet have one protocol."""
        return self.cells[0].stats.identity

    @property
    def named(self) -> dict[tuple[str, str], Label]:
        """Return the parts of every label, by ("task", ..) and ("model", ..)."""
        found = [cell.stats for cell in self.cells]
        tasks = {("task", seen.task): seen.identity.task_parts() for seen in found}
        return tasks | {("model", seen.model): seen.identity.model_parts() for seen in found}

    @property
    def titles(self) -> dict[str, str]:
        return {cell.stats.model: cell.stats.title for cell in self.cells}

    @classmethod
    def of(cls, label: str, cells: list[Cell]) -> "Sheet":
        levels = {cell.stats.task: cell.stats.level for cell in reversed(cells)}
        tasks = sorted(levels, key=lambda task: (rank(levels[task]), levels[task], task))
        return cls(label, cells, tasks, sorted({cell.stats.model for cell in cells}), levels)

    @property
    def place(self) -> dict[tuple[str, str], int]:
        return {(cell.stats.model, cell.stats.task): i for i, cell in enumerate(self.cells)}


def protocols(records: pd.DataFrame, sheets: Sequence[Sheet]) -> list[dict[str, Any]]:
    """Return each protocol with the grid of its cells, by their number among all cells."""
    found, start = [], 0
    for sheet in sheets:
        own, place = records[records["protocol"] == sheet.label], sheet.place
        name, changes = sheet.protocol.protocol_parts()
        grid = [[place.get((model, task)) for task in sheet.tasks] for model in sheet.models]
        found.append(
            {
                "label": sheet.label,
                "name": name,
                "changes": changes,
                "source": PROTOCOLS[name].source if name in PROTOCOLS else "",
                "warning": warning_of(name),
                "solved": solved_text(name),
                "bits": sheet.protocol.settings.get(BITS_OF, 0),
                "unrounded": sheet.protocol.protocol_parts(BITS_OF).whole,
                "models": sheet.models,
                "tasks": sheet.tasks,
                "levels": [sheet.levels[task] for task in sheet.tasks],
                "cells": [[None if i is None else start + i for i in line] for line in grid],
                "papers": [] if has_rungs(name) else _papers(sheet),
                "rates": sorted(own["lr"].unique().tolist()),
                "facts": _facts(own, name),
            }
        )
        start += len(sheet.cells)
    return found


def cells(records: pd.DataFrame, sheets: Sequence[Sheet]) -> dict[str, Packed]:
    rows: dict[tuple[str, str, str], list[int]] = {}
    for i, names in enumerate(zip(records["protocol"], records["task"], records["model"], strict=True)):
        rows.setdefault(names, []).append(i)
    found = [
        _cell(number, sheet, cell, rows[sheet.label, cell.stats.task, cell.stats.model])
        for number, sheet in enumerate(sheets)
        for cell in sheet.cells
    ]
    return table(found, list(found[0]) if found else [])


def _cell(number: int, sheet: Sheet, cell: Cell, rows: list[int]) -> dict[str, Any]:
    seen = cell.stats
    command, notes = reproduce(seen.identity, lr=seen.lr)
    first = cell.runs[0] if cell.runs else {}
    floors = [cell.scaled(first[name]) for name in FLOORS] if first else [None, None]
    return {
        "protocol": number,
        "task": sheet.tasks.index(seen.task),
        "model": sheet.models.index(seen.model),
        "lr": seen.lr,
        "raw": seen.measure == "test",
        "median": value_of(seen.median),
        "range": value_of(seen.range) if seen.scores else None,
        "solved": [seen.reached.hits, seen.reached.n],
        "lost": [seen.diverged, seen.failed],
        "chance": value_of(first.get("s_rand")) or 0,
        "floors": value_of(floors),
        "trained": training_lengths(seen.identity, json.loads(first["test_bins"]) if first else []),
        "rows": rows,
        "command": command.removeprefix(f"ladder run {seen.identity.task_name} {seen.identity.model_name} "),
        "notes": notes,
    }


def _papers(sheet: Sheet) -> list[dict[str, Any]]:
    """Return the papers comparable with this protocol: by place in the grid value, spread and what ours has more."""
    found = []
    for name in papers():
        paper = published(name)
        comparable = [
            (column, task)
            for column, task in enumerate(sheet.tasks)
            if not paper.why_not(replace(sheet.protocol, task_name=task))
        ]
        values = {}
        for row, model in enumerate(sheet.models):
            for column, task in comparable:
                value, at = paper.of(task, model), sheet.place.get((model, task))
                if value is None:
                    continue
                cell = None if at is None else sheet.cells[at]
                first = {"task": task, "model": model, "s_rand": cell.runs[0]["s_rand"]} if cell and cell.runs else {}
                both = beside(cell.stats, first, paper) if cell and first else None
                of_both = [both.difference, both.mark] if both else [None, None]
                values[f"{row} {column}"] = value_of([value.value, value.spread, *of_both])
        if values:
            about = {"source": paper.source, "reports": paper.reports, "measure": paper.measure}
            found.append({"name": name, **about, "values": values})
    return found


def runs(records: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of all records that the page shows."""
    short = records["commit"].map(lambda commit: commit[:SHORT], na_action="ignore")
    found = table(records.assign(commit=short).to_dict("records"), RUN_COLUMNS)
    lengths: dict[tuple[str, ...], int] = {}
    bins: dict[str, Any] = {}
    for name in BINS:
        found_bins = [_bins(text, lengths) for text in records[name]]
        bins[f"{name}_at"] = packed([place for place, _ in found_bins])
        bins[name] = packed([values for _, values in found_bins])
    ids = [_id(run_id, seed) for run_id, seed in zip(records["run_id"], records["seed"], strict=True)]
    found["run_id"], found["digest"] = packed([start for start, _ in ids]), packed([end for _, end in ids])
    return found | bins | {"lengths": [list(names) for names in lengths]}


def _id(run_id: str, seed: int) -> tuple[str, str]:
    """Split a run's id around its seed: runs of one task and model share the start. Else return the whole id."""
    start, between, digest = run_id.rpartition(f"{seed}-")
    return (start, digest) if between and "-" not in digest else (run_id, "")


def _bins(text: Any, lengths: dict[tuple[str, ...], int]) -> tuple[int, list[Any]]:
    """Return the place of the lengths' names among `lengths`, and the values by length."""
    opened: Mapping[str, float] = json.loads(text) if isinstance(text, str) and text else {}
    order = tuple(sorted(opened, key=lambda name: int(name.partition("..")[0])))
    place = lengths.setdefault(order, len(lengths)) if order else 0
    return place, [shortened(opened[name]) for name in order]


def curves(records: pd.DataFrame, sheets: Sequence[Sheet], points: pd.DataFrame | None) -> dict[str, Any]:
    """Return both curves of each run at its cell's learning rate, thinned evenly. A run is named by its place.

    Steps stand once, for runs validate alike; a curve names its own by their place.
    """
    if points is None:
        return {"most": 0, "steps": [], "runs": {}}
    found_cells = [cell.stats for sheet in sheets for cell in sheet.cells]
    rates = {(seen.protocol, seen.task, seen.model): seen.lr for seen in found_cells}
    keys = zip(records["protocol"], records["task"], records["model"], strict=True)
    shown = records["run_id"][[rates.get(key) == lr for key, lr in zip(keys, records["lr"], strict=True)]]
    kept = points[points["run_id"].isin(set(shown))].sort_values(["run_id", "step"])
    most = max(10, min(200, _CURVE_NUMBERS // (2 * max(1, kept["run_id"].nunique()))))
    places = {run_id: place for place, run_id in enumerate(records["run_id"])}
    steps: dict[tuple[int, ...], int] = {}
    found: list[dict[str, Any]] = []
    for run_id, own in kept.groupby("run_id", sort=True):
        row: dict[str, Any] = {"run": places[run_id]}
        for name in CURVES:
            pairs = list(_thinned(own, name, most))
            row[f"{name}_at"] = steps.setdefault(tuple(step for step, _ in pairs), len(steps)) if pairs else None
            row[name] = [value for _, value in pairs] or None
        if any(row[name] for name in CURVES):
            found.append(row)
    columns = table(found, ["run", *CURVES, *(f"{name}_at" for name in CURVES)])
    return {"most": most, "steps": [list(own) for own in steps], "runs": columns}


def _thinned(own: pd.DataFrame, name: str, most: int) -> Iterator[tuple[int, float | int | None]]:
    pairs = [
        (int(step), float(f"{value:.3g}"))
        for step, value in zip(own["step"], own[name].astype(float), strict=True)
        if math.isfinite(value)
    ]
    places = range(len(pairs)) if len(pairs) <= most else (i * (len(pairs) - 1) // (most - 1) for i in range(most))
    for i in places:
        step, value = pairs[i]
        yield step, shortened(value)


def _facts(own: pd.DataFrame, name: str) -> dict[str, str]:
    """Return where a protocol's runs come from."""
    dirty = int(own["dirty"].eq(True).sum())
    hours = (own["train_seconds"].astype(float).sum() + own["score_seconds"].astype(float).sum()) / 3600
    found = {
        "Runs": ", ".join(f"{count:,} {status}" for status, count in counted(own["status"])),
        "Seeds": ", ".join(map(str, sorted(own["seed"].unique()))),
        "Learning rates": ", ".join(map(str, sorted(own["lr"].unique()))),
        "Time": f"{hours:,.2f} h of training and scoring",
        "Commits": "; ".join(f"{commit[:SHORT] or 'unknown'} ({count:,})" for commit, count in counted(own["commit"])),
        "Uncommitted changes": f"in the code of {dirty:,} runs" if dirty else "",
        "Devices": "; ".join(f"{device} ({count:,})" for device, count in counted(own["device"]) if device),
        "torch": "; ".join(f"{version} ({count:,})" for version, count in counted(own["torch"]) if version),
        "Fast paths": "; ".join(f"{paths} ({count:,})" for paths, count in counted(own["backends"]) if paths),
        "Source": PROTOCOLS[name].source if name in PROTOCOLS else "",
    }
    return {key: value for key, value in found.items() if value}


def counted(values: pd.Series) -> Iterator[tuple[str, int]]:
    """Return each value with how often it occurs, the commonest first."""
    yield from sorted(Counter(map(str, values)).items(), key=lambda pair: (-pair[1], pair[0]))
