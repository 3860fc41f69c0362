"""The report card of a model's climb: a line for each rung, similar models of the reference table, cost, and next
steps.

It is made from records alone. `plain` is the card as JSON values. harness/climb/text.py and harness/climb/page.py show
it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.theory import TRANSITIONS, Verdict, Word
from chomsky_ladder.harness.stats.aggregates import Estimate
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import (
    CLIMB,
    Climb,
    Meeting,
    Outcome,
    Step,
    longest,
    nearest,
    sign_of,
    strings_there,
)
from chomsky_ladder.harness.stats.families import family_scores
from chomsky_ladder.harness.store.labels import reproduce
from chomsky_ladder.harness.tables.literature import Report, literature

NEIGHBOURS, BEST = 2, 3
FURTHER = "512"
MORE, AT_ONCE = 10, 2  # multiple of the steps to try, and rungs to try them on


@dataclass(frozen=True)
class Row:
    """One rung."""

    rung: str
    asks: str
    task: str
    held: int
    n: int
    outcome: Outcome
    """The outcome of most seeds."""
    held_between: tuple[int, int]
    """The least and most seeds that hold it, given the number of test strings."""
    is_close: bool
    """True if the test has too few strings to say whether most seeds hold it."""
    learnt_at: int | None
    in_training: float | None
    at_longest: float | None
    lowest: float | None
    highest: float | None
    further: float | None
    theory: Word
    why: str
    meeting: Meeting
    beside: tuple[str, ...]
    """k/n of the models that stand beside it; "-" for one that was not run."""
    best: tuple[str, ...]
    """The reference models that hold it best, with their k/n."""
    run_ids: tuple[str, ...]
    command: str
    reports: tuple[Report, ...] = ()
    """The values that papers report for this model on this rung, beside ours."""

    @property
    def sign(self) -> str:
        return sign_of(Verdict(self.theory, self.why))


@dataclass(frozen=True)
class Card:
    model: str
    protocol: str
    longest: str
    strings: int
    """The number of test strings of those lengths, approximately."""
    transition: str
    parameters: int | None
    state_bytes: int | None
    tokens_per_s: float | None
    """Training speed on this machine: the median over runs."""
    decoded_per_s: float | None
    """Tokens per second when decoding one string after 256 tokens; None without a step form."""
    hours: float
    """Hours of training and scoring, over all runs at all learning rates."""
    held: int
    families: dict[str, Estimate]
    """The score of each family of rungs, if all of it was run."""
    run: int
    missing: int
    """Rungs that have not been run, or only in part."""
    beside: tuple[str, ...]
    chosen_beside: bool
    """True if the user chose the models beside it. Otherwise they are its nearest neighbours."""
    rows: tuple[Row, ...]
    next: tuple[str, ...]
    part: str = ""
    """The part of the climb it shows, if not the whole. Then no reference model stands beside it."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def card(
    climb: Climb,
    reference: Sequence[Climb],
    *,
    protocol: str,
    against: Sequence[str] = (),
    seeds: int = 0,
    hours: float,
    decoded_per_s: float | None = None,
    plugins: Sequence[str] = (),
    part: str = "",
) -> Card:
    """Return the card of a climb beside reference models: those named in `against`, else the nearest.

    `hours` is the time of all its runs, and `plugins` are needed by its commands. The card of a part of a climb has no
    reference models; `part` describes the part.
    """
    beside = [named(name, reference) for name in against] or nearest(climb, reference)[:NEIGHBOURS]
    others = [one for one in reference if one.model != climb.model]
    need = shlex.join([word for plugin in plugins for word in ("--plugin", plugin)])
    reports = literature(climb)
    rows = tuple(
        _row(step, place, beside, others, protocol, need, reports.get(step.rung.name, ()))
        for place, step in enumerate(climb.steps)
    )
    runs = [run for step in climb.steps if step.cell for run in step.cell.runs]
    speeds = [run["tokens_per_step"] * run["steps"] / run["train_seconds"] for run in runs if run["train_seconds"]]
    found = PROTOCOLS[protocol]
    wanted, rates = seeds or found.report or found.seeds, 1 if found.report else len(found.rates)
    missing = sum(step.n < wanted or (step.cell is not None and step.cell.stats.rates < rates) for step in climb.steps)
    return Card(
        model=climb.model,
        protocol=protocol,
        longest=longest(PROTOCOLS[protocol]),
        strings=strings_there(PROTOCOLS[protocol]),
        transition=climb.transition,
        parameters=min((int(run["parameters"]) for run in runs), default=None),
        state_bytes=next((int(run["state_bytes"]) for run in runs if not pd.isna(run["state_bytes"])), None),
        tokens_per_s=median(speeds) if speeds else None,
        decoded_per_s=decoded_per_s,
        hours=hours,
        held=climb.held,
        families=family_scores(climb),
        run=climb.run,
        missing=missing,
        beside=tuple(one.model for one in beside),
        chosen_beside=bool(against),
        rows=rows,
        next=tuple(_next_of_part(climb, missing, need) if part else _next(climb, rows, missing, protocol, need)),
        part=part,
    )


def named(name: str, reference: Sequence[Climb]) -> Climb:
    """Return the reference climb with this label, or with this name if only one has it."""
    found = [one for one in reference if one.model == name] or [one for one in reference if one.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"--against {name}: which of {', '.join(one.model for one in found)}?")
    there = ", ".join(sorted(one.model for one in reference)) or "none: run `ladder climb NAME` first"
    raise ValueError(f"--against {name}: no climb of that model is among the reference rows; there are {there}")


def _row(
    step: Step,
    place: int,
    beside: Sequence[Climb],
    others: Sequence[Climb],
    protocol: str,
    need: str,
    reports: tuple[Report, ...],
) -> Row:
    runs = step.cell.runs if step.cell else ()
    ranked = sorted((one for one in others if one.steps[place].held), key=lambda one: -_share(one.steps[place]))
    return Row(
        rung=step.rung.name,
        asks=step.rung.asks,
        task=step.rung.task,
        held=step.held,
        n=step.n,
        outcome=step.outcome,
        held_between=step.held_between,
        is_close=step.is_close,
        learnt_at=step.learnt_at,
        in_training=step.in_training,
        at_longest=step.at(longest(PROTOCOLS[protocol])),
        lowest=min(step.scores, default=None),
        highest=max(step.scores, default=None),
        further=step.further,
        theory=step.theory.word,
        why=step.theory.why,
        meeting=step.meeting if step.n else "open",
        beside=tuple(_short(one.steps[place]) for one in beside),
        best=tuple(f"{one.model} {_short(one.steps[place])}" for one in ranked[:BEST]),
        run_ids=tuple(run["run_id"] for run in runs),
        command=_command(step, need),
        reports=reports,
    )


def _command(step: Step, need: str) -> str:
    """Return the command that repeats the cell's first run."""
    if step.cell is None or not step.cell.runs:
        return ""
    command, _ = reproduce(step.cell.stats.identity, lr=step.cell.stats.lr)
    return f"{command} --seed {step.cell.runs[0]['seed']} {need}".rstrip()


def _short(step: Step) -> str:
    return f"{step.held}/{step.n}" if step.n else "-"


def _share(step: Step) -> float:
    return step.held / step.n if step.n else 0.0


def _next(climb: Climb, rows: Sequence[Row], missing: int, protocol: str, need: str) -> list[str]:
    """Return what to do next, the most informative first."""
    said = []
    if missing:
        said.append(
            f"{missing} of {len(rows)} rungs have seeds or learning rates to come: the same command goes on where it "
            "stopped."
        )
    for row in rows:
        if row.meeting == "cannot, yet held" and row.run_ids:
            falls = f"; at length {FURTHER} it is at {row.further:.2f}" if row.further is not None else ""
            said.append(
                f"{row.rung}: theory says it cannot at every length, and it holds{falls}. Where does it fail? "
                f"ladder errors {row.run_ids[0]}"
            )
    more = f"--train.steps {MORE * PROTOCOLS[protocol].train['steps']}"
    gaps = [row for row in rows if row.meeting == "can, not held" and row.command]
    for row in gaps[:AT_ONCE]:
        said.append(
            f"{row.rung}: weights that do it exist, and {row.held} of {row.n} seeds found them. {MORE} times the "
            f"steps: {row.command} {more}"
        )
    near = [row for row in rows if row.meeting == "open" and row.command and _is_near(row)]
    for row in sorted(near, key=lambda row: -(row.at_longest or 0))[:AT_ONCE]:
        said.append(
            f"{row.rung}: {row.in_training:.2f} at the lengths of training and {row.at_longest:.2f} at the longest. "
            f"{MORE} times the steps: {row.command} {more}"
        )
    torn = [f"{row.rung} ({row.held} of {row.n})" for row in rows if 0 < row.held < row.n]
    if torn or not said:
        more_seeds = "10" if PROTOCOLS[protocol].report else "5"
        seeds = f"{_whole(climb)} --seeds {more_seeds} {need}".rstrip()
        said.append(f"Seeds differ on {', '.join(torn)}. More of them: {seeds}" if torn else f"More seeds: {seeds}")
    if not climb.transition and any(row.n and row.theory == "open" for row in rows):
        said.append(
            "Theory has nothing to say, since the model declares no `transition`: how its state moves, one of "
            f"{', '.join(TRANSITIONS)}."
        )
    return said


def _next_of_part(climb: Climb, missing: int, need: str) -> list[str]:
    said = [f"{missing} of {len(climb.steps)} rungs have seeds to come: the same command goes on."] if missing else []
    return [*said, f"The whole climb, which compares with the reference rows: {_whole(climb)} {need}".rstrip()]


def _whole(climb: Climb) -> str:
    """Return the command of the whole climb."""
    own = climb.identity.settings.items() if climb.identity else ()
    changes = [word for key, value in own if key.startswith("model.") for word in (f"--{key}", str(value))]
    protocol = climb.identity.protocol_name if climb.identity else CLIMB
    changes += ["--protocol", protocol] if protocol != CLIMB else []
    return shlex.join(["ladder", "climb", climb.name, *changes])


def _is_near(row: Row) -> bool:
    """Return True if the model learnt the training lengths and is above chance at the longest, but does not hold."""
    learnt = row.in_training is not None and row.in_training >= SOLVED
    return learnt and row.at_longest is not None and 2 * row.held <= row.n and row.at_longest > SOLVED / 2
