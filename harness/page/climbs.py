"""The ladder for the page's script: every climb of the records, a model a row, a rung a column.

    {"protocol": 0, "where": "225..256", "rungs": [{"name", "asks", "task"}], "rows": [{"model", "steps": [..]}]}

A row has the score of each family of rungs with its interval. A step names its cell, the place of what theory says of
it among `whys`, and the values that papers report for it.
"""

from collections.abc import Sequence
from typing import Any

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.rows import rows_of
from chomsky_ladder.harness.page.cells import Sheet
from chomsky_ladder.harness.page.columns import value_of
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import Climb, Step, climbs, longest, strings_there
from chomsky_ladder.harness.stats.families import family_scores
from chomsky_ladder.harness.tables.literature import Report, literature


def ladders(sheets: Sequence[Sheet]) -> list[dict[str, Any]]:
    """One for each protocol with rungs; none where the records have none."""
    found, start = [], 0
    for number, sheet in enumerate(sheets):
        rows = climbs(sheet.cells)
        if rows:
            protocol = PROTOCOLS[sheet.label]
            rungs = [{"name": rung.name, "asks": rung.asks, "task": rung.task} for rung in protocol.rungs]
            about = {"protocol": number, "where": longest(protocol), "strings": strings_there(protocol)}
            about |= {"holds": SOLVED, "seeds": protocol.report or protocol.seeds}
            about |= {name: protocol.train[name] for name in ("steps", "batch")}
            whys: dict[str, int] = {}
            lines = [_row(row, sheet, start, whys) for row in rows]
            found.append(
                {**about, "to_come": _to_come(rows, sheet.label), "rungs": rungs, "rows": lines, "whys": list(whys)}
            )
        start += len(sheet.cells)
    return found


def _row(climb: Climb, sheet: Sheet, start: int, whys: dict[str, int]) -> dict[str, Any]:
    reports = literature(climb)
    steps = [
        _step(step, climb, sheet, start)
        | {"why": whys.setdefault(step.theory.why, len(whys))}
        | _papers(reports.get(step.rung.name, ()))
        for step in climb.steps
    ]
    families = {name: value_of([one.value, one.low, one.high]) for name, one in family_scores(climb).items()}
    about = {"model": climb.model, "transition": climb.transition, "held": climb.held, "run": climb.run}
    return {**about, "families": families, "steps": steps}


def _step(step: Step, climb: Climb, sheet: Sheet, start: int) -> dict[str, Any]:
    at = None if step.cell is None else sheet.place[climb.model, step.cell.stats.task]
    return {
        "cell": None if at is None else start + at,
        "held": step.held,
        "lost": step.outcomes.count("lost"),
        "outcome": step.outcome if step.n else "",
        "n": step.n,
        "between": step.held_between,
        "close": step.is_close,
        "scores": value_of(step.scores),
        "theory": step.theory.word,
        "sign": step.sign,
        "meeting": step.meeting if step.n else "open",
        "learnt": step.learnt_at,
    }


def _papers(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the values of papers for a cell: whether ours agrees, whether theirs solves it, and the words."""
    return {"papers": [(report.word, report.solved, report.text) for report in reports]} if reports else {}


def _to_come(rows: Sequence[Climb], protocol: str) -> int:
    """Count the models of the reference table that have no row yet."""
    there = [identity for row in rows if (identity := row.identity)]
    return sum(
        all((name, changes) != (one.model_name, one.of_model()) for one in there) for name, changes in rows_of(protocol)
    )
