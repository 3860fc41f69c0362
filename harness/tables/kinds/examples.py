"""Sample efficiency: accuracy by the strings of the training set, of cells that differ in `train.examples` alone.

    | model | 100 | 1,000 | 10,000 | endless |

Every size is at the learning rate that validation chooses for it. A model has a line at a task where it was trained on
a finite set; endless strings stand beside those where they were tried.
"""

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cells import cells, solved_text
from chomsky_ladder.harness.stats.examples import ENDLESS, in_order, size_of, whole
from chomsky_ladder.harness.stats.rows import as_rows, distinct
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, cell_text, shown_models

_NAMED = ("protocol", "task", "model", "examples", "mean", "std", "median", "low", "high", "solved", "runs", "n", "lr")


def examples(records: pd.DataFrame) -> Made:
    """Make a sheet for each task, models x sizes, from protocols that differ in the size of the set alone."""
    found = cells(records)
    rows = as_rows(found)
    found = found.assign(examples=[size_of(row) for row in rows], protocol=[whole(row) for row in rows])
    finite = set(found.loc[found["examples"] != ENDLESS, ["task", "model"]].itertuples(index=False, name=None))
    found = found[[place in finite for place in zip(found["task"], found["model"], strict=True)]]
    sheets = tuple(_sheet(of_task) for _, of_task in found.groupby("task", sort=True))
    return Made(sheets, found.reindex(columns=list(_NAMED)).sort_values(["task", "model", "examples"], kind="stable"))


def _sheet(found: pd.DataFrame) -> Sheet:
    protocol, task = found["protocol"].iloc[0], found["task"].iloc[0]
    sizes, shown, lines = in_order(set(found["examples"])), shown_models(found), []
    for model, of_model in found.groupby("model", sort=True):
        entries = {cell["examples"]: Entry((cell_text(cell),)) for _, cell in of_model.iterrows()}
        lines.append(Line(shown[str(model)], tuple(entries.get(size, DASH) for size in sizes)))
    is_raw = found.loc[found["n"] > 0, "scaled"].ne(True).any()
    lead = (
        f"{'Raw' if is_raw else 'Scaled'} test accuracy of models trained on so many strings, seen in epochs: median "
        "over seeds, each of which has strings of its own, [lowest, highest] where they differ, and k/n, how many of "
        f"the n runs at that rate have {solved_text(found['protocol_name'].iloc[0])}."
    )
    columns = tuple(Column("endless" if size == ENDLESS else f"{size:,}") for size in sizes)
    warning = warning_of(found["protocol_name"].iloc[0])
    return Sheet(f"{protocol}: examples of {task}", (lead,), "model", columns, tuple(lines), warning=warning)


register(
    Kind(
        name="examples",
        about="accuracy by the size of the training set, where some were finite",
        make=examples,
        together=whole,
        when=lambda records: any(size_of(row) != ENDLESS for row in distinct(records)),
        why_not="no run is of a finite training set (--train.examples)",
        rank=5,
    )
)
