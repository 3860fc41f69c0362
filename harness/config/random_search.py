"""Runs whose settings are drawn from ranges and lists.

    random_search("parity", "lstm", count=20, over={"train.lr": log_uniform(1e-4, 1e-2), "model.num_blocks": [1, 2]})

A value is a hash of (seed, number of the draw, name of the setting), so no generator and no clock decides it. A larger
count only adds runs, and a further setting in `over` changes no value of the others.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import Any

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.protocols import overridden, preset_run
from chomsky_ladder.harness.config.run import Run

_MISSES = 10_000  # draws in a row without a new run: there are hardly more


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, drawn with three digits, so that a command can name them."""

    low: float
    high: float
    log: bool

    def at(self, share: float) -> float:
        """Return the number below which this share of the range lies."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = low + share * (high - low)
        return min(max(float(f"{math.exp(value) if self.log else value:.3g}"), self.low), self.high)


def uniform(low: float, high: float) -> Range:
    """Return the range of numbers in which all are equally likely."""
    require(-math.inf < low < high < math.inf, f"uniform takes a low and a higher number, not {low!r} and {high!r}")
    return Range(low, high, log=False)


def log_uniform(low: float, high: float) -> Range:
    """Return the range of positive numbers in which each order of magnitude is equally likely."""
    rises = 0 < low < high < math.inf
    require(rises, f"log_uniform takes a positive number and a higher one, not {low!r} and {high!r}")
    return Range(low, high, log=True)


def random_search(
    task: str,
    model: str,
    *,
    count: int,
    over: Mapping[str, Range | Sequence[Any]],
    seed: int = 0,
    protocol: str = "xlstm_20k",
    overrides: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Return `count` different runs of a task and model with settings drawn from `over`.

    `over` has a range or a list of values for each name of a setting. Other settings are those of the protocol, or of
    `overrides`, as in `grid`. `seed` keys the draws alone: the runs themselves have seed 0.
    """
    overrides = overrides or {}
    require(count >= 1, f"count is the number of runs to draw, not {count}")
    require(bool(over), "over names no setting to draw, such as train.lr")
    for name, values in over.items():
        listed = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
        example = "a list of values or a range such as log_uniform(1e-4, 1e-2)"
        require(listed or isinstance(values, Range), f"over[{name!r}] must be {example}, not {values!r}")
        require(name not in overrides, f"{name} is drawn from over, so overrides cannot have it")
    base, tried, found, misses = preset_run(task, model, protocol=protocol), set[str](), dict[str, Run](), 0
    for number in count_up():
        drawn = {name: _drawn(values, f"{seed}/{number}/{name}") for name, values in over.items()}
        text = repr(drawn)
        if text not in tried:
            tried.add(text)
            run = overridden(base, {**overrides, **drawn})
            misses = misses if run.run_id in found else -1
            found[run.run_id] = run
        misses += 1
        require(misses < _MISSES, f"over has hardly more than {len(found)} different settings, and count is {count}")
        if len(found) == count:
            break
    return list(found.values())


def _drawn(values: Range | Sequence[Any], address: str) -> Any:
    share = random.Random(address).random()  # a hash: strings give the same number on every machine
    return values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
