"""A protocol's tasks taken together: IQM and other aggregates, performance profiles, and who is likely to beat whom.

    model    IQM                  median   mean   gap    tasks  runs
    lstm     0.61 [0.52, 0.70]    ...

Over the tasks that all models shown have run, each score above the floor of length and position
(harness/stats/aggregates.py), with the 95 % interval of a bootstrap over seeds within tasks. Agarwal et al. 2021
(2108.13264): of few seeds at 0 or 1 the middle half says more than a mean, and a profile more than either.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.aggregates import (
    Bootstrap,
    Estimate,
    Suite,
    aggregate,
    given_away,
    improvement,
    profile,
    suites,
)
from chomsky_ladder.harness.stats.cell_stats import CellStats
from chomsky_ladder.harness.stats.view import cells_of, common_tasks
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet, two_digits

TAUS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MOST_BESIDE = 12  # models in the table of who beats whom: the highest; the numbers hold all
MEASURES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}

_PAIRS = Bootstrap(resamples=1000)  # there are many of them
_COLUMNS = (
    "protocol",
    "measure",
    "model",
    "over",
    "tau",
    "value",
    "low",
    "high",
    "tasks",
    "runs",
    "diverged",
    "failed",
)


def suite(records: pd.DataFrame) -> Made:
    """Make the sheets of one protocol, if two models have two tasks in common."""
    found = cells_of(records)
    given = given_away([cell.stats for cell in found])
    cells = [cell for cell in found if cell.stats.measure != "test" and cell.stats.task not in given]
    cells = [cell for cell in cells if cell.stats.n or cell.stats.diverged]
    tasks = common_tasks(cells)
    whole = _whole([cell.stats for cell in cells], tasks)
    if len(tasks) < 2 or len(whole) < 2:
        return Made((), pd.DataFrame(columns=list(_COLUMNS)))
    models = suites([cell.stats for cell in cells], models=whole, tasks=tasks)
    overall = {model: aggregate(own.scores) for model, own in models.items()}
    order = sorted(models, key=lambda model: (-overall[model].iqm.value, model))
    over = {
        (a, b): improvement(models[a].scores, models[b].scores, bootstrap=_PAIRS)
        for a in order
        for b in order
        if a != b
    }
    shares = {model: profile(models[model].scores, taus=TAUS, bootstrap=_PAIRS) for model in order}
    first = cells[0].stats
    titles = {cell.stats.model: cell.stats.title for cell in found}
    said = f"Over {len(tasks)} tasks: {', '.join(tasks)}."
    left_out = sorted({cell.stats.model for cell in found} - set(order))
    notes = (f"Without some of the tasks: {', '.join(titles[model] for model in left_out)}.",) if left_out else ()
    notes += (
        (f"Left out, since a guess from length and position solves them: {', '.join(sorted(given))}.",) if given else ()
    )
    warning = warning_of(first.identity.protocol_name)

    def sheet(title: str, lead: str, columns: tuple[str, ...], lines: Mapping[str, list[str]], *more: str) -> Sheet:
        made = tuple(Line(titles[name], tuple(Entry((text,)) for text in texts)) for name, texts in lines.items())
        whole_title = f"{first.protocol}: {title}" if title else first.protocol
        return Sheet(
            whole_title,
            (lead, said),
            "model",
            tuple(Column(titles.get(name, name)) for name in columns),
            made,
            (*more, *notes),
            warning,
        )

    beside = order[:MOST_BESIDE]
    sheets = (
        sheet(
            "all tasks together",
            "Accuracy above the floor of length and position (0 the best such guess, 1 perfect) with 95 % bootstrap "
            "intervals over seeds: the mean of the middle half of all runs, median and mean over tasks, and how far "
            "below perfect runs are on average. A run that did not finish counts 0.",
            (*MEASURES.values(), "tasks", "runs"),
            {
                m: [
                    *(_ranged(getattr(overall[m], name)) for name in MEASURES),
                    str(overall[m].tasks),
                    str(overall[m].runs),
                ]
                for m in order
            },
        ),
        sheet(
            "performance profile",
            "The share of runs with a score above tau.",
            tuple(f"> {tau:g}" for tau in TAUS),
            {model: [two_digits(share) for share in shares[model].share] for model in order},
        ),
        sheet(
            "who beats whom",
            "The chance that a random run of the row's model scores above one of the column's, a tie half, averaged "
            "over tasks; starred where the 95 % bootstrap interval leaves .5 out.",
            tuple(beside),
            {a: [_chance(over[a, b]) if a != b else "" for b in beside] for a in beside},
            *([f"The {MOST_BESIDE} highest; all others in the CSV."] if len(order) > len(beside) else []),
        ),
    )
    rows = [_row(models[m], first, name, getattr(overall[m], name)) for m in order for name in MEASURES]
    for m in order:
        own, nothing = shares[m], (None,) * len(TAUS)
        for tau, share, low, high in zip(TAUS, own.share, own.low or nothing, own.high or nothing, strict=True):
            rows.append(_row(models[m], first, "profile", Estimate(share, low, high), tau=tau))
    rows += [_row(models[a], first, "improvement", estimate, over=b) for (a, b), estimate in over.items()]
    return Made(sheets, pd.DataFrame(rows, columns=list(_COLUMNS)))


def _whole(cells: list[CellStats], tasks: list[str]) -> list[str]:
    """Return the models that have all tasks."""
    have: dict[str, set[str]] = {}
    for cell in cells:
        have.setdefault(cell.model, set()).add(cell.task)
    return sorted(model for model, own in have.items() if own.issuperset(tasks))


def _row(of: Suite, first: CellStats, measure: str, found: Estimate, **more: Any) -> dict[str, Any]:
    counts = {"tasks": len(of.scores), "runs": sum(map(len, of.scores.values()))}
    counts |= {"diverged": of.diverged, "failed": of.failed}
    return {"protocol": first.protocol, "measure": measure, "model": of.model, **found._asdict(), **counts, **more}


def _ranged(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return two_digits(found.value)
    return f"{two_digits(found.value)} [{two_digits(found.low)}, {two_digits(found.high)}]"


def _chance(found: Estimate) -> str:
    is_apart = found.low is not None and found.high is not None and not found.low <= 0.5 <= found.high
    return f"{two_digits(found.value)}{'*' if is_apart else ''}"


register(
    Kind(
        name="suite",
        about="tasks together: IQM, performance profiles, probability of improvement",
        make=suite,
        why_not="no two models have two tasks in common",
        rank=5,
    )
)
