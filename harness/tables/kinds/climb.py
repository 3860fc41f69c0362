"""The table of a climb: how many seeds of each model hold each rung, beside what theory says of it.

lstm    ● 3/3 ✓    ● 2/3 ✓ ≈    ◐ 0/3 ✗    of three seeds so many hold it; ● held, ◐ learnt and lost, ○ not learnt;
                                           ✓ can, ✗ cannot, · open; ≈ close
"""

from collections import Counter
from statistics import median

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.stats.cells import FRESH, SOLVED, best_rate
from chomsky_ladder.harness.stats.climb import (
    CLOSE,
    CONDITIONAL,
    MEETINGS,
    Climb,
    Step,
    climbs,
    longest,
    rung_of,
    strings_there,
)
from chomsky_ladder.harness.stats.families import FAMILIES, family_scores, family_text
from chomsky_ladder.harness.stats.outcomes import LEARNT, MARKS
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet

COLUMNS = (
    *("protocol", "model", "rung", "asks", "task", "outcome", "held", "lost", "not_learnt", "n"),
    *("held_least", "held_most", "median", "median_further", "in_training", "learnt_at"),
    *("lr", "lr_by_training", "held_by_training", "theory", "why", "meeting"),
)


SIZE = 0.1  # share by which a model may miss the protocol's size without a word


def of_a_climb(row: Row) -> bool:
    return has_rungs(row["protocol"])  # by its label: other settings are another protocol


def climb(records: pd.DataFrame) -> Made:
    found = climbs(cells_of(records))
    if not found:
        return Made((), pd.DataFrame(columns=list(COLUMNS)))
    label = str(records["protocol"].iloc[0])
    rates = _tuned(found, label, records) if PROTOCOLS[label].report else _rates(found, label)
    return Made((_rungs(found, label), rates, _meetings(found, label)), _data(found, label))


def step_text(step: Step) -> str:
    close = f" {CLOSE}" if step.is_close else ""
    return f"{MARKS[step.outcome]} {step.held}/{step.n} {step.sign}{close}"


def _rungs(found: list[Climb], label: str) -> Sheet:
    where = longest(PROTOCOLS[label])
    rungs = [step.rung for step in found[0].steps]
    lines = []
    for one in found:
        entries = [Entry((step_text(step),), bold=step.holds) if step.n else DASH for step in one.steps]
        scores = family_scores(one)
        families = [Entry((family_text(scores.get(family)),)) for family in FAMILIES]
        lines.append(Line(one.title, (*families, *entries)))
    held, lost, missed = MARKS.values()
    lead = (
        f"k/n: of n seeds so many hold the rung, that is scaled accuracy of {SOLVED:g} or more at lengths {where}, at "
        f"the learning rate chosen on validation. {held} most seeds hold it (bold). {lost} most learn it, {LEARNT:g} "
        f"at the lengths of training, and lose it. {missed} most do not learn it. Theory: ✓ can, ✗ cannot, · open; "
        f"{CONDITIONAL} unless TC0 = NC1. "
        f"{CLOSE}: {strings_there(PROTOCOLS[label])} strings there do not say whether most do (Wilson's interval of "
        "each seed, 95 %). The first four columns are the mean scaled accuracy there over the rungs of a family, with "
        "a bootstrap interval over seeds (95 %). Rows stand by how many rungs they hold.",
    )
    columns = (*map(Column, FAMILIES), *(Column(rung.name, about=rung.asks) for rung in rungs))
    return Sheet(label, lead, "model", columns, tuple(lines), _other_sizes(found, label))


def _other_sizes(found: list[Climb], label: str) -> tuple[str, ...]:
    """Name the models that are far from the protocol's size."""
    wanted, notes = PROTOCOLS[label].params, []
    for one in found if wanted else ():
        sizes = [int(run["parameters"]) for step in one.steps if step.cell for run in step.cell.runs]
        if sizes and abs(median(sizes) / wanted - 1) > SIZE:
            notes.append(f"{one.title} {median(sizes):,.0f}")
    return (f"Other sizes than {wanted:,} parameters: {'; '.join(notes)}.",) if notes else ()


def _rates(found: list[Climb], label: str) -> Sheet:
    """Return the sheet of learning rates chosen, and of what another choice would change, by rung."""
    rates, where = sorted(PROTOCOLS[label].rates), longest(PROTOCOLS[label])
    lines = []
    for place, first in enumerate(found[0].steps):
        steps = [one.steps[place] for one in found if one.steps[place].lr is not None]
        chosen = [str(sum(step.lr == rate for step in steps)) for rate in rates]
        others = [step for step in steps if step.lr_by_training != step.lr]
        held = [2 * step.held_at(step.lr_by_training, where) > step.n for step in others]
        gained = sum(now and not step.holds for now, step in zip(held, others, strict=True))
        lost = sum(step.holds and not now for now, step in zip(held, others, strict=True))
        shown = [*chosen, str(len(others)), str(gained), str(lost)]
        lines.append(Line(first.rung.name, tuple(Entry((text,)) for text in shown)))
    lead = (
        f"Models that chose each learning rate on validation, whose strings have the lengths of the test. "
        f"{'Both are' if len(rates) == 2 else 'The least and the greatest are'} edges of the grid. Other: models for "
        "which validation at the lengths of training would have chosen another; of those, how many would hold the rung "
        "then and do not now, and how many the other way round.",
    )
    columns = [*(f"{rate:g}" for rate in rates), "other", "gained", "lost"]
    return Sheet(f"{label}: learning rates", lead, "rung", tuple(map(Column, columns)), tuple(lines), ())


def _tuned(found: list[Climb], label: str, records: pd.DataFrame) -> Sheet:
    """The learning rates that the tuning seeds chose, and what a choice by the test would be, by rung."""
    protocol = PROTOCOLS[label]
    tuning = [row for row in as_rows(records) if row["seed"] < FRESH]
    lines = []
    for rung in protocol.rungs:
        own = [row for row in tuning if rung_of(row["task_name"], Identity.of(row).settings, protocol) == rung]
        cells = [[row for row in own if row["model"] == one.model] for one in found]
        chosen = [(best_rate(cell, "validation"), best_rate(cell, "test")) for cell in cells if cell]
        counts = [sum(rate == by_training for by_training, _ in chosen) for rate in sorted(protocol.rates)]
        others = sum(by_training != by_test for by_training, by_test in chosen)
        lines.append(Line(rung.name, tuple(Entry((str(count),)) for count in (*counts, others))))
    lead = (
        "Models whose tuning seed chose each learning rate at the lengths of training; of equal rates it takes the one "
        "that learnt sooner. The least and the greatest are edges of the grid. Other: models for which the same seed "
        "scores more in the test at another rate, which nobody may choose by.",
    )
    columns = [*(f"{rate:g}" for rate in sorted(protocol.rates)), "other"]
    return Sheet(f"{label}: learning rates", lead, "rung", tuple(map(Column, columns)), tuple(lines), ())


def _meetings(found: list[Climb], label: str) -> Sheet:
    """Return the sheet that counts how often theory and practice agree, by rung."""
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
            *(label, one.model, step.rung.name, step.rung.asks, step.rung.task, step.outcome),
            *(*(step.outcomes.count(outcome) for outcome in MARKS), step.n, *step.held_between),
            *(step.at(where), step.further, step.in_training, step.learnt_at, step.lr, step.lr_by_training),
            *(step.held_at(step.lr_by_training, where), *step.theory, step.meeting),
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
