"""A cell as figures and the page need it: its statistics with the runs that made it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.cell_stats import CellStats, stats_of
from chomsky_ladder.harness.stats.cells import Place, Row, placed
from chomsky_ladder.harness.store.labels import Identity

CLASSES = {"regular": "regular", "counter": "counter", "context_free": "context-free"}
CLASSES |= {"context_sensitive": "context-sensitive"}  # from the lowest rung to the highest
LEVELS = (*CLASSES, "none")  # those of tasks/base.py, which needs torch
FLOORS = ("best_constant", "content_free")

_TRAINED = (3, 40)  # the default of harness/config/run.py, which needs torch
_BINS = (40, 64, 96, 128, 160, 192, 224, 256)


@dataclass(frozen=True)
class Cell:
    """A cell's statistics with its finished runs, in the order of their seeds."""

    stats: CellStats
    runs: tuple[dict[str, Any], ...]
    tried: tuple[dict[str, Any], ...] = ()
    """The finished runs at every learning rate."""

    @property
    def place(self) -> dict[str, Any]:
        names = {name: getattr(self.stats, name) for name in ("protocol", "level", "task", "model")}
        return {**names, "scaled": self.stats.measure != "test"}

    @property
    def chance(self) -> float:
        """Return the raw accuracy that this cell shows as 0."""
        return 0.0 if self.stats.measure == "test" else self.runs[0]["s_rand"]

    def scaled(self, value: float | None) -> float | None:
        """Return an accuracy as this cell shows it."""
        if value is None or math.isnan(value):
            return None
        return (
            round((value - self.chance) / (1 - self.chance), 12) + 0.0
        )  # a floor at chance is 0, not a rounding error


def cells_of(records: pd.DataFrame) -> list[Cell]:
    """Return the cells of one protocol, sorted by class, task and model."""
    return cells_in(placed(records))


def cells_in(places: dict[Place, list[Row]]) -> list[Cell]:
    """Return the same cells, given records by place."""
    found = []
    for stats in stats_of(places):
        runs = places[stats.protocol, stats.task, stats.model]
        tried = sorted((run for run in runs if run["status"] == "done"), key=lambda run: (run["lr"], run["seed"]))
        found.append(Cell(stats, tuple(run for run in tried if run["lr"] == stats.lr), tuple(tried)))
    return sorted(found, key=lambda cell: (rank(cell.stats.level), cell.stats.task, cell.stats.model))


def common_tasks(cells: Sequence[Cell]) -> list[str]:
    """Return the set of tasks that gives most cells, if only models that have all of them count."""
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


def rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def tested_lengths(cells: Sequence[Cell]) -> tuple[int, int] | None:
    """Return the shortest and longest test length in bins, over all tasks."""
    found = [ends(name) for cell in cells for run in cell.runs for name in json.loads(run["test_bins"])]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def training_lengths(identity: Identity, test_bins: Sequence[str] = ()) -> tuple[int, int] | None:
    """Return the training lengths of a protocol with its changes; None if it is no preset here.

    A task with lengths of its own, whose bins are not the protocol's, is trained on the lengths of its tests.
    """
    if identity.protocol_name not in PROTOCOLS:
        return None
    preset, settings = PROTOCOLS[identity.protocol_name], identity.settings
    edges = settings.get("eval.bins") or preset.eval.get("bins", _BINS)
    known = {f"{low if low == edges[0] else low + 1}..{high}" for low, high in pairwise(edges)}
    own = [ends(test_bin) for test_bin in test_bins if test_bin not in known]
    if own:
        return min(low for low, _ in own), max(high for _, high in own)
    low, high = settings.get("train.lengths") or preset.train.get("lengths", _TRAINED)
    stages = settings.get("train.curriculum", preset.train.get("curriculum", ()))
    return low, stages[-1] if stages else high


def ends(name: str) -> tuple[int, int]:
    """Return the ends of a bin given by its name, `65..96`, or of one length."""
    low, _, high = name.partition("..")
    return int(low), int(high or low)
