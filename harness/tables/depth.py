"""The least depth that solves a length: of runs that differ in `model.num_blocks`, trained and tested at one length.

    parity, transformer: 1 block at n = 4, 2 at 8, more than 3 at 16     ->     | transformer | 1 | 2 | >3 |

A depth solves a length where most of its runs, at the rate chosen on validation, reach `SOLVED`.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.config.protocols import columns_of, identity_of, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import SOLVED, cells
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.tables.formats import markdown
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet


def depths(runs: Sequence[Run], records: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Make a sheet for each task, as Markdown, and a row for every depth tried."""
    found = {(row["protocol"], row["task"], row["model"]): row for row in as_rows(cells(records))}
    rows = {}
    for run in runs:
        named, n = columns_of(run), run.eval.lengths[1]
        cell = found.get((named["protocol"], named["task"], named["model"]), {"n": 0})
        model = identity_of(replace(run, model=replace(run.model, num_blocks=_usual(run)))).model
        place = (run.protocol, named["task"], model, n, run.model.num_blocks)
        rows[place] = {name: cell.get(name, 0) for name in ("solved", "runs")}
        rows[place] |= {"mean": cell.get("mean"), "std": cell.get("std"), "seeds": cell["n"]}
    data = pd.DataFrame([dict(zip(_PLACE, place, strict=True)) | row for place, row in sorted(rows.items())])
    sheets = [_sheet(group) for _, group in data.groupby(["protocol", "task"], sort=True)]
    return markdown(sheets), data


_PLACE = ("protocol", "task", "model", "n", "blocks")


def _usual(run: Run) -> int:
    """Return the depth that a label leaves out."""
    return preset_run(run.task.name, run.model.name, protocol=run.protocol).model.num_blocks


def _sheet(data: pd.DataFrame) -> Sheet:
    protocol, task = data["protocol"].iloc[0], data["task"].iloc[0]
    lengths = sorted(data["n"].unique())
    lines = []
    for model, of_model in data.groupby("model", sort=True):
        entries = [_entry(of_model[of_model["n"] == n]) for n in lengths]
        lines.append(Line(str(model), tuple(entries)))
    lead = (
        f"Blocks with which most runs reach a scaled accuracy of {SOLVED:g} at length n, trained at that length alone."
    )
    columns = tuple(Column(f"n = {n}") for n in lengths)
    return Sheet(f"{protocol}: depth for {task}", (lead,), "model", columns, tuple(lines), warning=warning_of(protocol))


def _entry(tried: pd.DataFrame) -> Entry:
    if tried.empty or not tried["seeds"].any():
        return DASH
    solved = tried[2 * tried["solved"] > tried["runs"]]
    deepest = int(tried["blocks"].max())
    least = int(solved["blocks"].min()) if len(solved) else None
    below = tried if least is None else tried[tried["blocks"] < least]
    if (below["seeds"] == 0).any():
        return Entry(("?" if least is None else f"{least}?",))
    return Entry((f">{deepest}" if least is None else str(least),))
