"""Accuracy by the bits of the weights: of cells that differ in `train.qat` alone.

    | model | not rounded | 8 bits | 4 bits | 2 bits |

Every number of bits is at the learning rate that validation chooses for it. A model has a line at a task where a
rounded run of it was tried.
"""

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cells import cells, solved_text
from chomsky_ladder.harness.stats.rows import as_rows, distinct
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, cell_text, shown_models

BITS = (0, 8, 4, 2)  # 0: the weights as they are

_SETTING = "train.qat"


def unrounded(row: Row) -> str:
    """Return the protocol's label without its bits."""
    return Identity.of(row).protocol_parts(_SETTING).whole


def is_rounded(row: Row) -> bool:
    return Identity.of(row).settings.get(_SETTING, 0) > 0


def bits(records: pd.DataFrame) -> Made:
    """Make a sheet for each task, models x bits, from protocols that differ in bits alone, and a row for every cell."""
    found = cells(records)
    identities = [Identity.of(row) for row in as_rows(found)]
    found = found.assign(
        bits=[identity.settings.get(_SETTING, 0) for identity in identities],
        protocol=[unrounded(row) for row in as_rows(found)],
    )
    rounded = set(found.loc[found["bits"] > 0, ["task", "model"]].itertuples(index=False, name=None))
    found = found[[place in rounded for place in zip(found["task"], found["model"], strict=True)]]
    sheets = tuple(_sheet(of_task) for _, of_task in found.groupby("task", sort=True))
    named = ("protocol", "task", "model", "bits", "mean", "std", "median", "low", "high", "solved", "runs", "n", "lr")
    return Made(sheets, found.reindex(columns=list(named)).sort_values(["task", "model"], kind="stable"))


def _sheet(found: pd.DataFrame) -> Sheet:
    protocol, task = found["protocol"].iloc[0], found["task"].iloc[0]
    lines = []
    shown = shown_models(found)
    for model, of_model in found.groupby("model", sort=True):
        entries = {cell["bits"]: Entry((cell_text(cell),)) for _, cell in of_model.iterrows()}
        lines.append(Line(shown[str(model)], tuple(entries.get(bits, DASH) for bits in BITS)))
    lead = (
        "Scaled test accuracy of models trained and scored with weight matrices of so many bits: median over seeds, "
        "[lowest, highest] where they differ, and k/n, how many of the n runs at that rate have "
        f"{solved_text(found['protocol_name'].iloc[0])}."
    )
    warning = warning_of(found["protocol_name"].iloc[0])
    columns = tuple(Column(f"{bits} bits" if bits else "not rounded") for bits in BITS)
    return Sheet(f"{protocol}: bits for {task}", (lead,), "model", columns, tuple(lines), warning=warning)


register(
    Kind(
        name="bits",
        about="accuracy by the bits of the weights, where some were rounded",
        make=bits,
        together=unrounded,
        when=lambda records: any(map(is_rounded, distinct(records))),
        why_not="no run is of rounded weights (--train.qat)",
        rank=6,
    )
)
