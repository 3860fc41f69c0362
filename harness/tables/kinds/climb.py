"""The table of a climb: how many seeds of each model hold each rung, beside what theory says of it.

lstm    3/3 ✓    2/3 ✓ ≈    0/3 ✗        of three seeds so many hold it; ✓ can, ✗ cannot, · open; ≈ close
"""

from collections import Counter

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import CLOSE, MEETINGS, SIGNS, Climb, Step, climbs, longest, strings_there
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet

COLUMNS = (
    *("protocol", "model", "rung", "asks", "task", "held", "n", "held_least", "held_most", "median", "median_further"),
    *("in_training", "learnt_at", "theory", "why", "meeting"),
)


def of_a_climb(row: Row) -> bool:
    return has_rungs(row["protocol"])  # by its label: other settings are another protocol


def climb(records: pd.DataFrame) -> Made:
    found = climbs(cells_of(records))
    if not found:
        return Made((), pd.DataFrame(columns=list(COLUMNS)))
    label = str(records["protocol"].iloc[0])
    return Made((_rungs(found, label), _meetings(found, label)), _data(found, label))


def step_text(step: Step) -> str:
    return f"{step.held}/{step.n} {SIGNS[step.theory.word]}{f' {CLOSE}' if step.is_close else ''}"


def _rungs(found: list[Climb], label: str) -> Sheet:
    where = longest(PROTOCOLS[label])
    rungs = [step.rung for step in found[0].steps]
    lines = []
    for one in found:
        entries = [Entry((step_text(step),), bold=step.holds) if step.n else DASH for step in one.steps]
        lines.append(Line(one.title, (Entry((f"{one.held}/{one.run}",)), *entries)))
    lead = (
        f"Seeds that hold a rung, of those run: scaled accuracy at lengths {where} of {SOLVED:g} or more, at the "
        "learning rate chosen on validation. Bold: most do. Theory: ✓ can, ✗ cannot, · open. "
        f"{CLOSE}: some {strings_there(PROTOCOLS[label])} strings there do not say whether most do (Wilson's interval "
        "of each seed, 95 %).",
    )
    columns = (Column("rungs"), *(Column(rung.name, about=rung.asks) for rung in rungs))
    return Sheet(label, lead, "model", columns, tuple(lines), ())


def _meetings(found: list[Climb], label: str) -> Sheet:
    """How often theory and practice agree, by rung."""
    lines = []
    for place, step in enumerate(found[0].steps):
        counts = Counter(one.steps[place].meeting for one in found if one.steps[place].n)
        lines.append(Line(step.rung.name, tuple(Entry((str(counts[meeting]),)) for meeting in MEETINGS)))
    lead = (
        "Theory beside practice: models of each kind, by rung. A model has learnt a rung where most seeds hold it.",
    )
    return Sheet(f"{label}: theory", lead, "rung", tuple(map(Column, MEETINGS)), tuple(lines), ())


def _data(found: list[Climb], label: str) -> pd.DataFrame:
    where = longest(PROTOCOLS[label])
    rows = [
        (
            *(label, one.model, step.rung.name, step.rung.asks, step.rung.task, step.held, step.n, *step.held_between),
            *(step.at(where), step.further, step.in_training, step.learnt_at, *step.theory, step.meeting),
        )
        for one in found
        for step in one.steps
        if step.n
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"learnt_at": "Int64"})


register(
    Kind(
        name="climb",
        about="how many seeds of each model hold each rung of a climb, beside what theory says",
        make=climb,
        wants=of_a_climb,
        subject="a protocol with rungs (climb-v1)",
        when=lambda records: any(map(has_rungs, records["protocol"].unique())),
        rank=0,
    )
)
