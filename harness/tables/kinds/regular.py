"""Accuracy on regular languages, by what is known of their monoids: in C-RASP, star-free, with groups.

    | model | in C-RASP: e*(ae*be*)* | .. | star-free: (a|b|e)*be* | .. | groups: e*(ae*ae*)* | ..

The languages are those of the task `regular` that are given by a pattern or a table.
"""

from collections.abc import Sequence
from functools import cache

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cells import cells, solved_text
from chomsky_ladder.harness.stats.rows import as_rows, distinct
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, cell_text

CLASSES = ("in C-RASP", "star-free", "groups")
COLUMNS = ("mean", "std", "median", "low", "high", "solved", "runs", "n", "lr")


def language_of(row: Row) -> tuple[str, str]:
    """Return the class and the language; two empty words if it is none of these."""
    identity = Identity.of(row)
    own = identity.of_task()
    if identity.task_name != "regular" or own.get("file_sha256"):
        return "", ""
    return _classified(own.get("pattern", ""), own.get("table", ""), own.get("alphabet", ""))


@cache
def _classified(pattern: str, table: str, alphabet: str) -> tuple[str, str]:
    from chomsky_ladder.tasks.regular import Regular  # with torch

    task = Regular(pattern=pattern or Regular.pattern, table=table, alphabet=alphabet)
    facts = task.facts
    kind = CLASSES[0] if facts["in C-RASP"] == "yes" else CLASSES[1] if facts["star-free"] == "yes" else CLASSES[2]
    return kind, task.table or task.pattern


def regular(records: pd.DataFrame) -> Made:
    """Make a sheet for each protocol, models x languages by class, and a row for every cell."""
    rows = [row for row in as_rows(cells(records)) if language_of(row)[0]]
    labels = _values(rows, "protocol")
    sheets = [_sheet([row for row in rows if row["protocol"] == label]) for label in labels]
    data = [
        {"protocol": row["protocol"], "class": kind, "language": language, "task": row["task"], "model": row["model"]}
        | {name: row.get(name) for name in COLUMNS}
        for row in rows
        for kind, language in [language_of(row)]
    ]
    return Made(tuple(sheets), pd.DataFrame(data))


def _values(rows: Sequence[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


def _sheet(rows: Sequence[Row]) -> Sheet:
    by_place = {(row["model"], row["task"]): row for row in rows}
    tasks = {row["task"]: language_of(row) for row in rows}
    listed = sorted(tasks, key=lambda task: (CLASSES.index(tasks[task][0]), list(tasks).index(task)))
    lines = []
    for model in _values(rows, "model"):
        row = next(row for row in rows if row["model"] == model)
        own = [by_place.get((model, task)) for task in listed]
        entries = tuple(DASH if one is None else Entry((cell_text(pd.Series(one)),)) for one in own)
        lines.append(Line(title_of(Identity.of(row)), entries))
    name = rows[0]["protocol_name"]
    lead = (
        "Scaled test accuracy on regular languages: median over seeds, [lowest, highest] where they differ, and k/n, "
        f"how many of the n runs at that rate have {solved_text(name)}. in C-RASP: counting programs decide it, so "
        "attention is expected to keep it at every length. star-free: of the others those without groups. groups: the "
        "rest."
    )
    columns = tuple(Column(tasks[task][1], tasks[task][0]) for task in listed)
    return Sheet(
        f"{rows[0]['protocol']}: regular languages", (lead,), "model", columns, tuple(lines), warning=warning_of(name)
    )


register(
    Kind(
        name="regular",
        about="accuracy on regular languages, by the class of each",
        make=regular,
        when=lambda records: any(language_of(row)[0] for row in distinct(records)),
        why_not="no run is of the task regular with a pattern or a table",
        rank=8,
    )
)
