"""Each cell of the xLSTM paper's table from every source that has it: that paper, others, and our longest training.

    xLSTM 1.00          the paper
    SLiCE 0.28 ≠        another paper, for the same model and task; ≈ within NEAR of the first, ≠ not
    ours 0.33 ○ ≠       our runs, and their outcome

All values are scaled: 0 is chance.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from chomsky_ladder.harness.stats.equivalence import reported
from chomsky_ladder.harness.stats.outcomes import LEGEND, MARKS, Outcome
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.literature import NEAR, entries, scaled
from chomsky_ladder.harness.tables.most_trained import ByPlace, by_place, most_trained
from chomsky_ladder.harness.tables.published import published
from chomsky_ladder.harness.tables.sheets import DASH, SIGNS, Column, Entry, Line, Sheet, spread_text, two_digits

FIRST = "xlstm"
OTHERS = {"grazzi": "Grazzi", "slice": "SLiCE", "mamba3": "Mamba-3", "deltaformer": "DeltaFormer"}
COLUMNS = ("model", "task", "source", "value", "spread", "reports", "outcome", "seeds", "protocol", "where")


@dataclass(frozen=True)
class Value:
    """The value of one source in a cell."""

    model: str
    task: str
    source: str
    value: float
    spread: float | None
    reports: str
    where: str
    outcome: Outcome | None = None
    seeds: int | None = None
    protocol: str = ""


def sources_table(records: pd.DataFrame) -> Made:
    """Make the table of all cells, and their values by source as data."""
    values = list(_values(records))
    if not any(value.source == "ours" for value in values):
        return Made((), pd.DataFrame(columns=list(COLUMNS)))
    data = pd.DataFrame([[getattr(value, name) for name in COLUMNS] for value in values], columns=list(COLUMNS))
    return Made((_sheet(values),), data.astype({"seeds": "Int64"}))


def _values(records: pd.DataFrame) -> Iterator[Value]:
    """Yield the values of each cell: the first paper's, the others', and ours last."""
    first, cells = published(FIRST), by_place(records)
    for model in first.models:
        for task in first.tasks:
            for name in (FIRST, *OTHERS):
                paper, where = published(name), entries()[name]["where"]
                value = paper.of(task, model)
                if value is not None and (paper.measure == "scaled" or value.task in entries()[name]["chance"]):
                    source = OTHERS.get(name, "xLSTM")
                    yield Value(model, task, source, *scaled(paper, value), paper.reports, where)
            yield from _ours(cells, model, task)


def _ours(cells: ByPlace, model: str, task: str) -> Iterator[Value]:
    cell = most_trained(cells.get((model, task), []), [FIRST])
    if cell is None or cell.stats.measure != "test_scaled":
        return
    stats = cell.stats
    mean = reported(stats.scores, "mean")
    yield Value(model, task, "ours", mean, stats.std, "mean", "", stats.outcome, stats.n, stats.protocol)


def _sheet(values: Sequence[Value]) -> Sheet:
    """Make models x tasks, a line for each source in a cell."""
    cells = {key: tuple(own) for key, own in groupby(values, key=lambda value: (value.model, value.task))}
    tasks = list(published(FIRST).tasks)
    lines = []
    for model in published(FIRST).models:
        shown = tuple(_entry(cells[model, task]) if (model, task) in cells else DASH for task in tasks)
        lines.append(Line(title_of(Identity.of({"protocol": FIRST, "task": tasks[0], "model": model})), shown))
    lead = (
        "Scaled accuracy at lengths 40 to 256: 0 is chance, 1 perfect. The first line is the xLSTM paper's. ≈ within "
        f"{NEAR:g} of it, ≠ not. Ours is the mean of our seeds under the protocol with most training strings. Most of "
        "ours have far fewer than the paper's runs, so a lower value is no contradiction.",
        f"The outcome of ours: {LEGEND}.",
    )
    return Sheet(
        "The xLSTM paper's table, by source", lead, "model", tuple(map(Column, tasks)), tuple(lines), _notes(cells)
    )


def _entry(values: Sequence[Value]) -> Entry:
    first = next((value for value in values if value.source == "xLSTM"), None)
    return Entry(tuple(_line(value, first) for value in values))


def _line(value: Value, first: Value | None) -> str:
    outcome = f" {MARKS[value.outcome]}" if value.outcome else ""
    if value is first:
        return f"{value.source} {spread_text(value.value, value.spread)}"
    mark = "" if first is None else f" {SIGNS['agrees' if _near(value, first) else 'differs']}"
    return f"{value.source} {two_digits(value.value)}{outcome}{mark}"


def _near(value: Value, other: Value) -> bool:
    return abs(value.value - other.value) <= NEAR


def _notes(cells: dict[tuple[str, str], tuple[Value, ...]]) -> tuple[str, ...]:
    """Say how many cells have which source, who agrees with whom, and where the sources are."""
    by_source = {key: {value.source: value for value in own} for key, own in cells.items()}
    names = ["xLSTM", *OTHERS.values()]
    notes = [
        f"{sum('xLSTM' in own for own in by_source.values())} cells of the paper, "
        f"{sum({'xLSTM', 'ours'} <= set(own) for own in by_source.values())} of them with a run of ours."
    ]
    for name in names:
        both = [own for own in by_source.values() if {name, "ours"} <= set(own)]
        notes += [f"Ours lies within {NEAR:g} of {name} in {_near_of(both, name)}{_above(both, name)}."] if both else []
    contested = [own for own in by_source.values() if {"xLSTM", "SLiCE", "ours"} <= set(own)]
    apart = [own for own in contested if not _near(own["xLSTM"], own["SLiCE"])]
    if apart:
        with_xlstm, with_slice = (sum(_near(own[name], own["ours"]) for own in apart) for name in ("xLSTM", "SLiCE"))
        notes.append(
            f"On {len(apart)} cells with a run of ours the xLSTM paper and SLiCE's lie more than {NEAR:g} apart. Ours "
            f"lies within {NEAR:g} of the xLSTM paper on {with_xlstm} of them, and of SLiCE's on {with_slice}."
        )
    used = {value.source for own in cells.values() for value in own}
    named = [(name, OTHERS.get(name, "xLSTM")) for name in (FIRST, *OTHERS)]
    notes += [f"{title}: {entries()[name]['where']}." for name, title in named if title in used]
    ours = Counter(value.protocol for own in cells.values() for value in own if value.protocol)
    counted = ", ".join(f"{label} ({_cells(count)})" for label, count in sorted(ours.items()))
    return (*notes, f"Ours are of {counted}.")


def _near_of(cells: Sequence[dict[str, Value]], name: str) -> str:
    return f"{sum(_near(own[name], own['ours']) for own in cells)} of {_cells(len(cells))}"


def _above(cells: Sequence[dict[str, Value]], name: str) -> str:
    """Count again without the cells in which both are near chance: two failures agree easily."""
    above = [own for own in cells if max(own[name].value, own["ours"].value) > NEAR]
    return f", and where one of the two is above {NEAR:g} in {_near_of(above, name)}" if above else ""


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _wants(row: Row) -> bool:
    return not published(FIRST).why_not(Identity.of(row))


register(
    Kind(
        name="sources",
        about="the xLSTM paper's cells in that paper, in replications and here",
        make=sources_table,
        wants=_wants,
        subject="a protocol of the xLSTM paper's family (xlstm_20k, xlstm_cpu)",
        together=lambda row: "",
        when=lambda records: any(map(_wants, records.drop_duplicates("protocol").to_dict("records"))),
        rank=1,
    )
)
