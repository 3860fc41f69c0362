"""Accuracy with a short convolution and without: of cells that differ in that alone.

    | model | mqar: without | with | ..

Some architectures have none, and `model.short_conv` puts one in front of their layers. Others have one of their own, of
which `model.conv_width=1` leaves a factor on each channel. A model has a line where one of the two was tried.
"""

from dataclasses import replace

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cells import cells, solved_text
from chomsky_ladder.harness.stats.rows import as_rows, distinct
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, cell_text

ADDED, TAKEN = ("model.short_conv", "model.conv_places"), ("model.conv_width",)
COLUMNS = ("mean", "std", "median", "low", "high", "solved", "runs", "n", "lr")


def changed(row: Row) -> tuple[str, ...]:
    """Return the settings of the convolution that was added or taken away; none for a model as it is."""
    own = Identity.of(row).settings
    if own.get(ADDED[0]):
        return tuple(name for name in ADDED if name in own)
    return TAKEN if own.get(TAKEN[0]) == 1 else ()


def as_before(row: Row) -> Identity:
    """Return the identity of the same model without the change."""
    identity, change = Identity.of(row), changed(row)
    return replace(identity, settings={name: own for name, own in identity.settings.items() if name not in change})


def short_conv(records: pd.DataFrame) -> Made:
    """Make a sheet of models and tasks with both halves of each cell, and a row for every half."""
    rows = as_rows(cells(records))
    halves = {(row["task"], row["model"]): row for row in rows}
    found = {row["model"]: row for row in rows if changed(row)}
    tasks = list(dict.fromkeys(row["task"] for row in rows if changed(row)))
    lines, data = [], []
    for model, row in sorted(found.items()):
        before, own = as_before(row), Identity.of(row).settings
        labels = [before.model, model] if changed(row) != TAKEN else [model, before.model]
        said = ", ".join(f"{name.removeprefix('model.')}={own[name]}" for name in changed(row))
        entries = []
        for task in tasks:
            for conv, label in zip(("without", "with"), labels, strict=True):
                half = halves.get((task, label))
                entries.append(DASH if half is None else Entry((cell_text(pd.Series(half)),)))
                place = {"protocol": row["protocol"], "task": task, "model": before.model, "change": said, "conv": conv}
                data += [] if half is None else [place | {name: half.get(name) for name in COLUMNS}]
        lines.append(Line(f"{title_of(before)}: {said}", tuple(entries)))
    if not lines:
        return Made((), pd.DataFrame())
    name = rows[0]["protocol_name"]
    lead = (
        "Scaled test accuracy without a short convolution and with one: median over seeds, [lowest, highest] where "
        f"they differ, and k/n, how many of the n runs at that rate have {solved_text(name)}. short_conv adds one in "
        "front of the layers of a model that has none; conv_width=1 takes away the one that a model has."
    )
    columns = tuple(Column(conv, task) for task in tasks for conv in ("without", "with"))
    sheet = Sheet(
        f"{rows[0]['protocol']}: short convolutions", (lead,), "model", columns, tuple(lines), warning=warning_of(name)
    )
    return Made((sheet,), pd.DataFrame(data))


register(
    Kind(
        name="short_conv",
        about="accuracy with a short convolution and without",
        make=short_conv,
        when=lambda records: any(map(changed, distinct(records))),
        why_not="no run has another short convolution than its model (--model.short-conv, --model.conv-width 1)",
        rank=6,
    )
)
