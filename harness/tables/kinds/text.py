"""Perplexity of models of a text, beside their parameters.

    mamba     mean ± sd (seeds)      parameters      exp(loss) on the test part
              bits per byte                          bits of the loss

No published perplexity stands beside them: those are of larger models that read another text in other tokens.
"""

import math
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.rows import distinct
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet

# Of tasks/text.py's chain, which needs torch: 2 to the power of its entropies.
BOUNDS = {"bound: entropy rate": 2 ** (5 / 4), "floor: letters' frequencies": 2 ** (7 / 4)}


def text(records: pd.DataFrame) -> Made:
    """Return the sheet of a protocol's text tasks, if a run finished, and the numbers in it."""
    cells = cells_of(records)
    if not any(cell.runs for cell in cells):
        return Made((), pd.DataFrame())
    by_place = {(cell.stats.task, cell.stats.model): cell for cell in cells}
    tasks = list(dict.fromkeys(cell.stats.task for cell in cells))
    lines = []
    for model in sorted({cell.stats.model for cell in cells}):
        own = [by_place.get((task, model)) for task in tasks]
        title = next(cell.stats.title for cell in own if cell is not None)
        lines.append(Line(title, (*map(_entry, own), _parameters(own))))
    for name, value in BOUNDS.items() if "text" in tasks else ():
        entries = (Entry((f"{value:.2f}",)) if task == "text" else DASH for task in tasks)
        lines.append(Line(name, (*entries, Entry(("",))), is_floor=True))
    first = cells[0].stats.identity
    columns = (*map(Column, tasks), Column("parameters"))
    warning = warning_of(first.protocol_name)
    sheet = Sheet(first.protocol, (_LEAD,), "model", columns, tuple(lines), warning=warning)
    return Made((sheet,), pd.DataFrame(map(_row, cells)))


_LEAD = (
    "Perplexity a token of the test part, exp of the mean cross entropy: mean ± standard deviation over (seeds) at the "
    "rate chosen on validation accuracy; below it the same loss in bits."
)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def _perplexities(cell: Cell) -> list[float]:
    return [math.exp(min(run["test_loss"], 700)) for run in cell.runs]  # beyond, no float holds it


def _fates(cell: Cell) -> list[str]:
    fates = {"diverged": cell.stats.diverged, "failed": cell.stats.failed}
    return [f"{count} {fate}" for fate, count in fates.items() if count]


def _entry(cell: Cell | None) -> Entry:
    if cell is None:
        return DASH
    if not cell.runs:
        return Entry((", ".join(_fates(cell)),))
    mean, std = mean_and_std(_perplexities(cell))
    bits, _ = mean_and_std([run["test_loss"] / math.log(2) for run in cell.runs])
    spread = "" if std is None else f" ± {std:.2f}"
    shown = f"{mean:.2f}{spread} ({', '.join([str(len(cell.runs)), *_fates(cell)])})"
    return Entry((shown, f"{bits:.3f} bits {_unit(cell.stats.identity)}"))


def _unit(identity: Identity) -> str:
    """Return the unit of a task's token; with words some are longer than a byte."""
    settings = identity.of_task()
    return "a token" if "words" in settings else "per byte" if "file_sha256" in settings else "a letter"


def _parameters(cells: list[Cell | None]) -> Entry:
    found = [run["parameters"] for cell in cells if cell is not None for run in cell.runs]
    return Entry((_range(found),)) if found else DASH


def _row(cell: Cell) -> dict[str, Any]:
    seen = cell.stats
    mean, std = mean_and_std(_perplexities(cell))
    row = {name: cell.place[name] for name in ("protocol", "level", "task", "model")}
    row |= {"n": len(cell.runs), "diverged": seen.diverged, "failed": seen.failed, "lr": seen.lr}
    row |= {"perplexity": mean, "std": std, "nats": mean_and_std([run["test_loss"] for run in cell.runs])[0]}
    row |= {"accuracy": mean_and_std([run["test"] for run in cell.runs])[0]}
    for name in ("best_constant", "parameters", "tokens_per_step", "steps"):
        row[name] = cell.runs[0][name] if cell.runs else None
    return row


def is_text(row: Row) -> bool:
    return Identity.of(row).task_name == "text"


register(
    Kind(
        name="text",
        about="perplexities, where there is a text",
        make=text,
        wants=is_text,
        subject="text",
        when=lambda records: any(map(is_text, distinct(records))),
        rank=7,
    )
)
