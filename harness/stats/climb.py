"""A climb, from its records: how many seeds of a model hold each rung, and what theory says.

A seed holds a rung if its scaled accuracy on the longest test strings is at least 0.9, at the learning rate chosen on
validation. Its outcome is one of three (harness/stats/outcomes.py). A cell is k of n, never a mean, and its outcome is
that of most seeds. A test has a limited number of strings. A cell is close if other strings might change whether most
seeds hold it. Beside it stands the verdict of theory on the model's transition (harness/config/theory.py), and how the
two agree:

    can, and held        can, and not held (training did not find it)
    cannot, and not held        cannot, and yet held (look: a shortcut, or a solution for these lengths)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, Protocol, Rung
from chomsky_ladder.harness.config.theory import Verdict, verdict
from chomsky_ladder.harness.stats.cells import SOLVED, best_rate
from chomsky_ladder.harness.stats.outcomes import Outcome, of_most, outcome_of
from chomsky_ladder.harness.stats.sampling import wilson
from chomsky_ladder.harness.stats.view import Cell, cells_of, ends
from chomsky_ladder.harness.store.labels import Identity

Meeting = Literal["can, held", "can, not held", "cannot, not held", "cannot, yet held", "open"]
MEETINGS: tuple[Meeting, ...] = ("can, held", "can, not held", "cannot, not held", "cannot, yet held", "open")

CLIMB = "climb-v1"  # by default
DRAWN = {"climb-v1": 142, "climb-v2": 1078}  # counted test strings of the longest lengths, on the rung with fewest
SIGNS = {"can": "✓", "cannot": "✗", "open": "·"}
CONDITIONAL = "°"  # after the sign of what is proven unless TC0 = NC1
CLOSE = "≈"


def sign_of(theory: Verdict) -> str:
    return f"{SIGNS[theory.word]}{CONDITIONAL if 'unless TC0 = NC1' in theory.why else ''}"


@dataclass(frozen=True)
class Step:
    """A model on a rung."""

    rung: Rung
    cell: Cell | None
    """The cell; None if it was not run."""
    scores: tuple[float, ...] = ()
    """Scaled accuracy of each run on the longest test strings; 0 for one that did not finish."""
    strings: int = 0
    """Approximate number of these strings, as lengths are drawn."""

    @property
    def n(self) -> int:
        return len(self.scores)

    @property
    def held(self) -> int:
        return sum(score >= SOLVED for score in self.scores)

    @property
    def holds(self) -> bool:
        """True if most seeds hold the rung."""
        return 2 * self.held > self.n

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcome of each seed."""
        in_training = [*self._in_training, *[None] * (self.n - len(self._in_training))]  # None: it did not finish
        return tuple(
            outcome_of(holds=score >= SOLVED, in_training=value)
            for score, value in zip(self.scores, in_training, strict=True)
        )

    @property
    def outcome(self) -> Outcome:
        """The outcome of most seeds."""
        return of_most(self.outcomes)

    @property
    def lr(self) -> float | None:
        return self.cell.stats.lr if self.cell and self.cell.runs else None

    @property
    def lr_by_training(self) -> float | None:
        """The learning rate that validation at the lengths of training would have chosen."""
        return best_rate(list(self.cell.tried), "in_distribution") if self.cell and self.cell.tried else None

    def held_at(self, lr: float | None, lengths: str) -> int:
        """Count the seeds that hold the rung at another learning rate."""
        runs = [run for run in self.cell.tried if run["lr"] == lr] if self.cell else []
        found = [self.cell.scaled(_measured(run).get(lengths)) for run in runs] if self.cell else []
        return sum(value is not None and value >= SOLVED for value in found)

    @property
    def _in_training(self) -> list[float | None]:
        return [self.cell.scaled(run["in_distribution"]) for run in self.cell.runs] if self.cell else []

    @property
    def held_between(self) -> tuple[int, int]:
        """Return the least and most seeds that may hold the rung, given the intervals of so many test strings."""
        if self.cell is None or not self.cell.runs:
            return self.held, self.held
        chance = self.cell.chance
        goal = chance + SOLVED * (1 - chance)
        shares = [min(1.0, max(0.0, chance + score * (1 - chance))) for score in self.scores]
        intervals = [wilson(share, self.strings) for share in shares]
        return sum(low >= goal for low, _ in intervals), sum(high >= goal for _, high in intervals)

    @property
    def is_close(self) -> bool:
        """Return True if these test strings do not settle whether most seeds hold the rung."""
        least, most = self.held_between
        return (2 * least > self.n) != (2 * most > self.n)

    @property
    def theory(self) -> Verdict:
        if self.cell is None or not self.cell.runs:
            return Verdict("open", "not run")
        row = self.cell.runs[0]
        model = self.cell.stats.identity.model_name
        return verdict(str(row.get("transition") or ""), str(row.get("demand") or ""), model=model)

    @property
    def sign(self) -> str:
        """Return the sign for theory's verdict, and for the condition it depends on."""
        return sign_of(self.theory)

    @property
    def meeting(self) -> Meeting:
        """Return how theory and practice agree."""
        found: dict[tuple[str, bool], Meeting] = {
            ("can", True): "can, held",
            ("can", False): "can, not held",
            ("cannot", False): "cannot, not held",
            ("cannot", True): "cannot, yet held",
        }
        return found.get((self.theory.word, self.holds), "open")

    def at(self, lengths: str) -> float | None:
        """Return the median over seeds of the scaled accuracy at a bin or a length, `225..256` or `512`."""
        if self.cell is None:
            return None
        found = [self.cell.scaled(_measured(run).get(lengths)) for run in self.cell.runs]
        there = [value for value in found if value is not None]
        return median(there) if there else None

    @property
    def further(self) -> float | None:
        """Return the median over seeds at the longest strings beyond the test's.

        Legal lengths may be a little shorter.
        """
        runs = self.cell.runs if self.cell else ()
        found = [json.loads(run["extrapolation"]) for run in runs]
        longest_there = max((int(length) for one in found for length in one), default=None)
        return None if longest_there is None else self.at(str(longest_there))

    @property
    def in_training(self) -> float | None:
        """Return the median over seeds at training lengths."""
        there = [value for value in self._in_training if value is not None]
        return median(there) if there else None

    @property
    def learnt_at(self) -> int | None:
        """Return the step by which most seeds have validated at 99 %; None if fewer got there."""
        runs = self.cell.runs if self.cell else ()
        steps = sorted(int(run["steps_to_99"]) for run in runs if not pd.isna(run["steps_to_99"]))
        return steps[self.n // 2] if len(steps) > self.n // 2 else None


@dataclass(frozen=True)
class Climb:
    """A model on all rungs of a protocol."""

    model: str
    """The model's label."""
    name: str
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """Return the name in tables; for a part of a climb, or one in progress, with how far it goes."""
        name = next((step.cell.stats.title for step in self.steps if step.cell), self.model)
        if self.is_complete:
            return name
        fewest = min((step.n for step in self.steps if step.n), default=0)
        seeds = f"{fewest} seed{'' if fewest == 1 else 's'}"
        return f"{name} (a part: {self.run} of {len(self.steps)} rungs, {seeds})"

    @property
    def identity(self) -> Identity | None:
        """Return the identity of one of its cells; None if it has none."""
        return next((step.cell.stats.identity for step in self.steps if step.cell), None)

    @property
    def transition(self) -> str:
        """Return the model's transition, the same on every rung."""
        return next(
            (str(step.cell.runs[0]["transition"] or "") for step in self.steps if step.cell and step.cell.runs), ""
        )

    @property
    def held(self) -> int:
        return sum(step.holds for step in self.steps if step.n)

    @property
    def run(self) -> int:
        """Return the number of rungs that were run."""
        return sum(step.n > 0 for step in self.steps)

    @property
    def seeds(self) -> int:
        """Return the number of seeds of the rung that has the fewest."""
        return min(step.n for step in self.steps)

    @property
    def is_complete(self) -> bool:
        """Return True if every rung has the seeds that its protocol needs. Only then it may be compared with others."""
        protocol = PROTOCOLS.get(self.identity.protocol_name) if self.identity else None
        return protocol is not None and self.seeds >= (protocol.report or protocol.seeds)

    @property
    def is_whole(self) -> bool:
        return self.run == len(self.steps)


def longest(protocol: Protocol) -> str:
    """Return the bin of lengths that decides whether a rung is held."""
    bins = protocol.eval["bins"]
    return f"{bins[-2] + 1}..{bins[-1]}"


def strings_there(protocol: Protocol) -> int:
    """Return the number of test strings in that bin: counted, or estimated, as all lengths are equally likely."""
    counted = next((DRAWN[name] for name in DRAWN if PROTOCOLS[name] is protocol), None)
    if counted is not None:
        return counted
    (low, high), (shortest, most) = ends(longest(protocol)), protocol.eval["lengths"]
    return round(protocol.eval["test"] * (high - low + 1) / (most - shortest + 1))


def climbs(cells: Sequence[Cell]) -> list[Climb]:
    """Return the climb of every model in these cells, the most rungs held first, incomplete climbs last.

    The list is empty if the cells' protocol has no rungs. Runs with other settings of training or scoring belong to
    another protocol, as their label says.
    """
    protocol = PROTOCOLS.get(cells[0].stats.protocol) if cells else None
    if protocol is None or not protocol.rungs:
        return []
    by_model: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rung = _rung(cell, protocol)
        if rung is not None:
            by_model.setdefault(cell.stats.model, {})[rung.name] = cell
    found = []
    for model, on in by_model.items():
        steps = tuple(_step(rung, on.get(rung.name), protocol) for rung in protocol.rungs)
        found.append(Climb(model, next(iter(on.values())).stats.identity.model_name, steps))
    return sorted(found, key=lambda climb: (not climb.is_complete, -climb.held, -_share(climb), climb.model))


def part_of(records: pd.DataFrame, protocol: Protocol, rungs: Sequence[Rung]) -> Climb | None:
    """Return the climb of one model on some rungs of a protocol, from its records; None without records."""
    cells = cells_of(records) if len(records) else []
    on = {rung.name: cell for cell in cells if (rung := _rung(cell, protocol)) is not None}
    if not on:
        return None
    first = next(iter(on.values())).stats
    steps = tuple(_step(rung, on.get(rung.name), protocol) for rung in rungs)
    return Climb(first.model, first.identity.model_name, steps)


def climbs_of(records: pd.DataFrame, protocol: str) -> list[Climb]:
    """Return the climbs of one protocol from records of any."""
    of_it = records[records["protocol"] == protocol]
    return climbs(cells_of(of_it)) if len(of_it) else []


def rung_of(task: str, settings: Mapping[str, Any], protocol: Protocol) -> Rung | None:
    """Return the rung of a task with these settings; None if the protocol has none."""
    own = {key.removeprefix("task."): value for key, value in settings.items() if key.startswith("task.")}
    usual = protocol.tasks.get(task, {})
    for rung in protocol.rungs:
        if rung.task == task and own == {key: value for key, value in rung.settings.items() if usual.get(key) != value}:
            return rung
    return None


def _rung(cell: Cell, protocol: Protocol) -> Rung | None:
    return rung_of(cell.stats.identity.task_name, cell.stats.identity.settings, protocol)


def _step(rung: Rung, cell: Cell | None, protocol: Protocol) -> Step:
    if cell is None:
        return Step(rung, None)
    found = [cell.scaled(_measured(run).get(longest(protocol))) for run in cell.runs]
    lost = cell.stats.diverged + cell.stats.failed
    scores = (*(0.0 if value is None else value for value in found), *([0.0] * lost))
    return Step(rung, cell, scores, strings_there(protocol))


def _measured(run: dict[str, Any]) -> dict[str, float]:
    return json.loads(run["test_bins"]) | json.loads(run["extrapolation"])


def _share(climb: Climb) -> float:
    """Return the share of all seeds that hold their rung."""
    return sum(step.held for step in climb.steps) / max(1, sum(step.n for step in climb.steps))


def nearest(climb: Climb, others: Sequence[Climb]) -> list[Climb]:
    """Return the other climbs, those first whose share of holding seeds on common rungs is most similar."""

    def distance(other: Climb) -> float:
        pairs = [(a, b) for a, b in zip(climb.steps, other.steps, strict=True) if a.n and b.n]
        return sum(abs(a.held / a.n - b.held / b.n) for a, b in pairs) / len(pairs) if pairs else float("inf")

    return sorted((other for other in others if other.model != climb.model), key=distance)
