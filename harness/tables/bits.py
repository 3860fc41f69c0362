"""Accuracy by the bits of the weights: of cells that differ in `train.qat` alone.

    | model | not rounded | 8 bits | 4 bits | 2 bits |

Every number of bits is at the learning rate that validation chooses for it. A model has a line at a task where a
rounded run of it was tried.
"""

import pandas as pd

from chomsky_ladder.harness.stats.cell_stats import SOLVED, cell_stats
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, cell_text, warning_of

BITS = (0, 8, 4, 2)  # 0: the weights as they are

_NAMED = "train.qat="


def bits_of(protocol: str) -> int:
    """Those that its label names."""
    return next((int(change.removeprefix(_NAMED)) for change in _changes(protocol) if change.startswith(_NAMED)), 0)


def unrounded(protocol: str) -> str:
    """The label of what it is but for its bits."""
    kept = [change for change in _changes(protocol) if not change.startswith(_NAMED)]
    return protocol.partition(" (")[0] + (f" ({', '.join(kept)})" if kept else "")


def bits(records: pd.DataFrame) -> tuple[tuple[Sheet, ...], pd.DataFrame]:
    """Of protocols that are one but for their bits: a sheet a task, models x bits, and a row for every cell."""
    found = cells(records)
    reached = {(cell.protocol, cell.task, cell.model): cell.reached for cell in cell_stats(records)}
    shares = [reached[place] for place in zip(found["protocol"], found["task"], found["model"], strict=True)]
    found = found.assign(
        bits=found["protocol"].map(bits_of),
        protocol=found["protocol"].map(unrounded),
        reached=[share.hits for share in shares],
        runs=[share.n for share in shares],
    )
    rounded = set(found.loc[found["bits"] > 0, ["task", "model"]].itertuples(index=False, name=None))
    found = found[[place in rounded for place in zip(found["task"], found["model"], strict=True)]]
    sheets = tuple(_sheet(of_task) for _, of_task in found.groupby("task", sort=True))
    named = ("protocol", "task", "model", "bits", "mean", "std", "n", "reached", "runs", "lr")
    return sheets, found.reindex(columns=list(named)).sort_values(["task", "model"], kind="stable")


def _changes(protocol: str) -> list[str]:
    named = protocol.partition(" (")[2].removesuffix(")")
    return named.split(", ") if named else []


def _sheet(found: pd.DataFrame) -> Sheet:
    protocol, task = found["protocol"].iloc[0], found["task"].iloc[0]
    lines = []
    for model, of_model in found.groupby("model", sort=True):
        entries = {cell["bits"]: _entry(cell) for _, cell in of_model.iterrows()}
        lines.append(Line(str(model), tuple(entries.get(bits, DASH) for bits in BITS)))
    lead = (
        "Scaled test accuracy, mean ± standard deviation over (seeds), of models trained and scored with weight "
        f"matrices of so many bits; behind the semicolon, how many of the runs at that rate reached {SOLVED:g}."
    )
    columns = tuple(Column(f"{bits} bits" if bits else "not rounded") for bits in BITS)
    return Sheet(f"{protocol}: bits for {task}", (lead,), "model", columns, tuple(lines), warning=warning_of(protocol))


def _entry(cell: pd.Series) -> Entry:
    return Entry((f"{cell_text(cell)}; {cell['reached']}/{cell['runs']}",))
