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

_ADDED, _OWN = "model.short_conv", "model.conv_width"
_PLACES = "model.conv_places"
_NAMED = (
    "protocol",
    "task",
    "model",
    "change",
    "conv",
    "mean",
    "std",
    "median",
    "low",
    "high",
    "solved",
    "runs",
    "n",
    "lr",
)


def change_of(row: Row) -> str:
    """Return the change to the model's convolution, as its label says it; "" for a model as it is."""
    own = Identity.of(row).settings
    said = [f"{name.removeprefix('model.')}={own[name]}" for name in (_ADDED, _PLACES, _OWN) if name in own]
    return ", ".join(said) if own.get(_ADDED) or own.get(_OWN) == 1 else ""


def as_it_is(row: Row) -> Identity:
    """Return the identity of the same model without the change."""
    identity = Identity.of(row)
    kept = {name: value for name, value in identity.settings.items() if name not in (_ADDED, _PLACES, _OWN)}
    return replace(identity, settings=kept) if change_of(row) else identity


def short_conv(records: pd.DataFrame) -> Made:
    """Make a sheet of models and tasks with both halves of each cell, and a row for every half."""
    rows = [row | {"change": change_of(row), "of": as_it_is(row)} for row in as_rows(cells(records))]
    halves = {(row["task"], row["of"].model, row["change"]): row for row in rows}
    lines, data = [], []
    tasks = list(dict.fromkeys(row["task"] for row in rows if row["change"]))
    for model, change, of in sorted(
        {(row["of"].model, row["change"], title_of(row["of"])) for row in rows if row["change"]}
    ):
        entries = []
        for task in tasks:
            pair = [halves.get((task, model, key)) for key in ("", change)]  # as it is first: without one of its own
            pair = pair[::-1] if _OWN.removeprefix("model.") in change else pair
            entries += [DASH if half is None else Entry((cell_text(pd.Series(half)),)) for half in pair]
            for half, conv in zip(pair, ("without", "with"), strict=True):
                data += [] if half is None else [half | {"model": model, "change": change, "conv": conv}]
        lines.append(Line(f"{of}: {change}", tuple(entries)))
    if not lines:
        return Made((), pd.DataFrame(columns=list(_NAMED)))
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
    return Made((sheet,), pd.DataFrame(data).reindex(columns=list(_NAMED)))


register(
    Kind(
        name="short_conv",
        about="accuracy with a short convolution and without",
        make=short_conv,
        when=lambda records: any(map(change_of, distinct(records))),
        why_not="no run has another short convolution than its model (--model.short-conv, --model.conv-width 1)",
        rank=6,
    )
)
