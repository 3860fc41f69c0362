"""The values that papers report for the cells of a climb, and whether ours agree.

    count mod 2    PD-SSM has 1.00 on parity, Terzic et al. 2025 (arXiv:2509.22284), Table 2; ours 0.14    differs

harness/tables/papers/climb.json names the task of each paper that is a rung, or the nearest to it, and the protocol as
far as it is published. Values are scaled: 0 is chance. A paper solves a task at 0.9, as a seed holds a rung. Ours
agrees where both solve it, or where neither does and the two lie within 0.25 over the same lengths; a paper's best seed
is compared with our best. A reason is a difference between the two protocols that points the right way; nobody has
tested it. The nearest task always asks for as much as the rung or more, so it never explains why ours is lower.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import Protocol
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import Climb, Step, longest
from chomsky_ladder.harness.stats.equivalence import reported
from chomsky_ladder.harness.stats.view import ends
from chomsky_ladder.harness.tables.published import Published, Value, published
from chomsky_ladder.harness.tables.sheets import spread_text

NEAR = 0.25
_MORE = 2  # times our training strings, from where it is worth a word
_WIDE = 128  # at two blocks every model has more than twice the parameters of climb-v1

Word = Literal["agrees", "differs"]


@dataclass(frozen=True)
class Report:
    """A paper's value for a cell of a climb, beside ours."""

    paper: str
    where: str
    """The paper and its table."""
    model: str
    """The paper's name for it."""
    task: str
    value: float
    """Scaled."""
    spread: float | None
    reports: str
    """The statistic of the paper's seeds: their mean, median or best."""
    nearest: str
    """The difference of its task from the rung's; empty for the same task."""
    form: str
    """The difference of its model from ours; empty for the same form."""
    ours: float
    """Over the same lengths, or the nearest that were scored, and of our seeds the same."""
    lengths: str
    word: Word
    reason: str
    """A possible explanation of a difference; empty where the two agree."""

    @property
    def solved(self) -> bool:
        return self.value >= SOLVED

    @property
    def text(self) -> str:
        task = f"{self.task} ({self.nearest})" if self.nearest else self.task
        theirs = f"{self.model} has {spread_text(self.value, self.spread)} on {task}, {self.where}"
        return f"{theirs}; ours {self.ours + 0.0:.2f} at {self.lengths}" + (f". {self.reason}" if self.reason else "")


@cache
def entries() -> dict[str, dict[str, Any]]:
    """Return the papers that have a rung's task, and their protocols."""
    return json.loads((files("chomsky_ladder.harness.tables") / "papers" / "climb.json").read_text("utf-8"))


def literature(climb: Climb) -> dict[str, tuple[Report, ...]]:
    """Return the reports on a climb's cells by rung, without the rungs that have none.

    A climb with another budget than its protocol's has none.
    """
    identity = climb.identity
    protocol = PROTOCOLS.get(identity.protocol) if identity else None
    if protocol is None:
        return {}
    found = {step.rung.name: _reports(climb.model, step, protocol) for step in climb.steps if step.n}
    return {rung: reports for rung, reports in found.items() if reports}


def scaled(paper: Published, value: Value) -> tuple[float, float | None]:
    """Return a paper's value and its spread on the scale where chance is 0."""
    if paper.measure == "scaled":
        return value.value, value.spread
    hits, of = entries()[paper.name]["chance"][value.task]
    rest = 1 - hits / of
    return (value.value - hits / of) / rest, None if value.spread is None else value.spread / rest


def protocol_text(paper: str) -> str:
    """Return the protocol of a paper's runs in words, as far as it is published."""
    entry, source = entries()[paper], published(paper)
    budget = source.budget
    low, high = entry["tested"]
    words = [f"trained to length {entry['trained_to']}", f"tested at {low if low == high else f'{low}..{high}'}"]
    words += [f"{budget.steps:,} steps of {budget.batch:,} strings"] if budget.steps and budget.batch else []
    words += [f"width {budget.width}"] if budget.width else []
    words += [f"{budget.blocks} blocks"] if budget.blocks else []
    words += ["the last answer alone supervised"] if entry["supervised"] == "last" else []
    seeds = (
        f"{source.reports} of {budget.seeds} seeds" if budget.seeds else f"taken for the {source.reports} of its seeds"
    )
    words += [seeds]
    words += ["the best validation of each"] if entry.get("best_validation") else []
    words += [entry["note"]] if "note" in entry else []
    return ", ".join(words)


def _reports(model: str, step: Step, protocol: Protocol) -> tuple[Report, ...]:
    found = []
    for name, entry in entries().items():
        paper = published(name)
        theirs, form = entry.get("models", {}).get(model, (paper.models.get(model, ""), ""))
        for task, nearest in entry["rungs"].get(step.rung.name, {}).items():
            value = paper.values.get((task, theirs))
            if value is not None:
                found.append(_report(paper, entry, value, nearest, form, step, protocol))
    return tuple(found)


def _report(
    paper: Published,
    entry: Mapping[str, Any],
    value: Value,
    nearest: str,
    form: str,
    step: Step,
    protocol: Protocol,
) -> Report:
    theirs, spread = scaled(paper, value)
    scores, lengths = _ours(step, entry["tested"], protocol)
    ours = reported(scores, paper.reports)
    holds = step.held > 0 if paper.reports == "best" else step.holds
    agrees = holds == (theirs >= SOLVED) and (holds or abs(ours - theirs) <= NEAR)
    reason = (
        "" if agrees else _reason(paper, entry, nearest, form, step, protocol, is_lower=_is_lower(ours, theirs, holds))
    )
    return Report(
        paper=paper.name,
        where=entry["where"],
        model=value.model,
        task=value.task,
        value=theirs,
        spread=spread,
        reports=paper.reports,
        nearest=nearest,
        form=form,
        ours=ours,
        lengths=lengths,
        word="agrees" if agrees else "differs",
        reason=reason,
    )


def _is_lower(ours: float, theirs: float, holds: bool) -> bool:
    """Return True if it is ours that falls short."""
    return not holds if holds != (theirs >= SOLVED) else ours < theirs


def _ours(step: Step, tested: Sequence[int], protocol: Protocol) -> tuple[Sequence[float], str]:
    """Return the scores of our seeds at a paper's test lengths, or at all of ours where it has others."""
    low, high = ends(longest(protocol))
    if tested[0] >= low and tested[1] <= high:
        return step.scores, longest(protocol)
    done = [run["test_scaled"] for run in step.cell.runs] if step.cell else []
    low, high = protocol.eval["lengths"]
    return [*done, *[0.0] * (step.n - len(done))], f"{low}..{high}"


def _reason(
    paper: Published,
    entry: Mapping[str, Any],
    nearest: str,
    form: str,
    step: Step,
    protocol: Protocol,
    *,
    is_lower: bool,
) -> str:
    """Name the differences of protocol that may explain why ours is lower or higher."""
    words = [f"another form, {form}"] if form else []
    (longer, most), budget = (protocol.train["lengths"][1], protocol.eval["lengths"][1]), paper.budget
    if is_lower:
        times = (budget.steps or 0) * (budget.batch or 0) / (protocol.train["steps"] * protocol.train["batch"])
        words += [f"{times:,.0f} times as many training strings"] if times >= _MORE else []
        words += [f"training to length {entry['trained_to']}"] if entry["trained_to"] > longer else []
        words += [f"width {budget.width}, not {protocol.params:,} parameters"] if budget.width == _WIDE else []
        words += ["a run's best validation, not its last test"] if entry.get("best_validation") else []
    else:
        words += [f"another task, {nearest}"] if nearest else []
        dense = protocol.tasks.get(step.rung.task, {}).get("supervision") == "dense"
        words += ["the last answer alone supervised"] if dense and entry["supervised"] == "last" else []
        words += [f"tests to length {entry['tested'][1]}"] if entry["tested"][1] > most else []
    return f"There: {'; '.join(words)}" if words else "Why is not known"
