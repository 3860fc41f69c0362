"""The table of what papers report for the cells of a climb: those where ours differs, those where it agrees.

A last sheet holds the cells in which papers contradict each other, beside our runs under the papers' own protocol.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import Climb, Step, climbs
from chomsky_ladder.harness.stats.equivalence import reported
from chomsky_ladder.harness.stats.outcomes import MARKS
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.literature import NEAR, Report, entries, literature, protocol_text, scaled
from chomsky_ladder.harness.tables.most_trained import ByPlace, by_place, most_trained
from chomsky_ladder.harness.tables.published import published
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Mark, Sheet, spread_text

COLUMNS = ("protocol", "model", "rung", "paper", "source", "paper_model", "paper_task", "nearest", "form")
COLUMNS += ("paper_value", "paper_spread", "reports", "outcome", "held", "n", "ours", "lengths", "verdict", "reason")

Found = tuple[Climb, Step, Report]


def literature_table(records: pd.DataFrame) -> Made:
    found = list(_found(records))
    if not found:
        return Made((), pd.DataFrame(columns=list(COLUMNS)))
    labels = list(dict.fromkeys(_label(climb) for climb, _, _ in found))
    sheets = [
        _sheet([one for one in found if _label(one[0]) == label], label, word) for label in labels for word in WORDS
    ]
    contradictions = _contradictions(records)
    return Made((*sheets, *contradictions), _data(found))


WORDS = {
    "differs": "The two differ: one solves the task and the other does not, or neither does and they lie more than "
    f"{NEAR:g} apart.",
    "agrees": f"The two agree: both solve the task, or neither does and they lie within {NEAR:g}.",
}


def _found(records: pd.DataFrame) -> Iterator[Found]:
    for label in sorted(records["protocol"].unique()):
        if has_rungs(label):
            for climb in climbs(cells_of(records[records["protocol"] == label])):
                reports = literature(climb)
                yield from ((climb, step, one) for step in climb.steps for one in reports.get(step.rung.name, ()))


def _label(climb: Climb) -> str:
    return climb.identity.protocol if climb.identity else ""


def _sheet(found: list[Found], label: str, word: str) -> Sheet:
    """One of the two sheets of a climb: what papers solve and ours does not hold comes first."""
    rungs = [rung.name for rung in PROTOCOLS[label].rungs]
    own = [one for one in found if one[2].word == word]
    own.sort(key=lambda one: (not one[2].solved, rungs.index(one[1].rung.name), one[0].title, one[2].paper))
    columns = ["rung", "paper", "ours", "source", *(["why it may be"] if word == "differs" else [])]
    lead = (
        f"{len(own)} of {len(found)} values of papers. {WORDS[word]} All are scaled: 0 is chance; {SOLVED:g} solves a "
        "task. Paper: the value, its task where that is not the rung's, and what it is of the seeds. Ours: the outcome "
        f"({', '.join(f'{mark} {name}' for name, mark in MARKS.items())}), seeds that hold the rung, and the same of "
        "our seeds over the lengths of the paper's tests, or the nearest we scored."
        + (
            " A reason is a difference of protocol that points the right way, and was not tested."
            if own and word == "differs"
            else ""
        ),
    )
    papers = [name for name in entries() if any(one[2].paper == name for one in own)]
    notes = [f"{entries()[name]['where']}: {protocol_text(name)}." for name in papers]
    return Sheet(f"{label}: {word}", lead, "model", tuple(map(Column, columns)), tuple(map(_line, own)), tuple(notes))


def _line(found: Found) -> Line:
    climb, step, one = found
    task = f"{one.task}: {one.nearest}" if one.nearest else ""
    theirs = " ".join(
        filter(None, [f"{spread_text(one.value, one.spread)} {one.reports}", f"({task})" if task else ""])
    )
    ours = f"{MARKS[step.outcome]} {step.held}/{step.n}, {one.ours + 0.0:.2f} at {one.lengths}"
    texts = [step.rung.name, theirs, ours, one.where, *([one.reason] if one.reason else [])]
    return Line(climb.title, tuple(Entry((text,)) for text in texts))


def _contradictions(records: pd.DataFrame) -> Iterator[Sheet]:
    """Return the cells of these models on which papers lie more than NEAR apart, if there are any."""
    models = set(records["model"])
    apart = {place: own for place, own in _values().items() if place[0] in models and _spread(own) > NEAR}
    names = [name for name in entries() if any(name in own for own in apart.values())]
    lines, cells = [], by_place(records[records["task"].isin({task for _, task in apart})]) if apart else {}
    for (model, task), own in sorted(apart.items()):
        ours, label, title = _ours(cells, model, task, own)
        told = [DASH if name not in own else _beside(own[name], ours) for name in names]
        shown = Entry((f"{ours:.2f}", label)) if ours is not None else DASH
        lines.append(Line(f"{title}, {task}", (shown, *told)))
    if lines:
        lead = (
            f"Cells on which two papers lie more than {NEAR:g} apart, scaled. Ours are runs under a protocol of the "
            f"papers' own family, of those the one with most training strings. ≈ ours lies within {NEAR:g}; ≠ it does "
            "not.",
        )
        columns = (Column("ours"), *(Column(name, about=entries()[name]["where"]) for name in names))
        yield Sheet("Published values that contradict each other", lead, "model, task", columns, tuple(lines))


def _values() -> dict[tuple[str, str], dict[str, tuple[float, float | None]]]:
    """Return the values of each of our models and tasks, by paper."""
    found: dict[tuple[str, str], dict[str, tuple[float, float | None]]] = {}
    for name, entry in entries().items():
        paper, used = published(name), {task for rung in entry["rungs"].values() for task in rung}
        for model in paper.models:
            for task, theirs in paper.tasks.items():
                value = paper.of(task, model) if theirs in used else None
                if value is not None:
                    found.setdefault((model, task), {})[name] = scaled(paper, value)
    return found


def _spread(values: Mapping[str, tuple[float, float | None]]) -> float:
    """Return the greatest distance between two papers; two tables of one paper do not count."""
    pairs = [(a, b) for a in values for b in values if _arxiv(a) != _arxiv(b)]
    return max((abs(values[a][0] - values[b][0]) for a, b in pairs), default=0.0)


def _arxiv(name: str) -> str:
    found = re.search(r"\d{4}\.\d{5}", entries()[name]["where"])
    assert found, name
    return found.group()


def _ours(cells: ByPlace, model: str, task: str, papers: Mapping[str, Any]) -> tuple[float | None, str, str]:
    """Return the mean of our seeds, its protocol, and the model's title."""
    cell = most_trained(cells.get((model, task), []), papers)
    if cell is None:
        return None, "", title_of(Identity.of({"protocol": "xlstm", "task": task, "model": model}))
    stats = cell.stats
    scores = [cell.scaled(run["test"]) or 0.0 for run in cell.runs]
    return reported(scores, "mean"), f"{stats.protocol}, {stats.n} seed{'' if stats.n == 1 else 's'}", stats.title


def _beside(value: tuple[float, float | None], ours: float | None) -> Entry:
    mark: Mark = "" if ours is None else "agrees" if abs(ours - value[0]) <= NEAR else "differs"
    return Entry((spread_text(*value),), mark=mark)


def _data(found: list[Found]) -> pd.DataFrame:
    rows = [
        (
            *(_label(climb), climb.model, step.rung.name, one.paper, one.where, one.model, one.task, one.nearest),
            *(one.form, one.value, one.spread, one.reports, step.outcome, step.held, step.n, one.ours, one.lengths),
            *(one.word, one.reason),
        )
        for climb, step, one in found
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _wants(row: Row) -> bool:
    return has_rungs(row["protocol"]) or any(not published(name).why_not(Identity.of(row)) for name in entries())


register(
    Kind(
        name="literature",
        about="what papers report for the cells of a climb, and whether ours agrees",
        make=literature_table,
        wants=_wants,
        subject="a protocol with rungs (climb-v1)",
        together=lambda row: "",
        when=lambda records: any(map(has_rungs, records["protocol"].unique())),
        rank=1,
    )
)
