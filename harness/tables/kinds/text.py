"""Perplexity of models of a text, at their parameters, beside published values of other models of another text.

    mamba     mean ± sd (seeds)      parameters      13.70      exp(loss) on the test part, the paper's perplexity
              bits per byte                          423 M      bits of the loss, the paper's parameters

The published column is no yardstick: its models are larger and read another text in other tokens. The header says how
far apart the two are, ours from the records; between its own models the column shows an order, and no more.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.published import read, sources
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet

_PAPER = "xlstm_language"
THEIRS: tuple[tuple[str, dict[str, str], str], ...] = (  # our name and settings, whatever the size; the paper's name
    ("transformer", {}, "llama"),
    ("xlstm", {"ratio": "1:0"}, "xlstm_1_0"),
    ("xlstm", {"ratio": "7:1"}, "xlstm_7_1"),
    *((name, {}, name) for name in ("mamba", "h3", "hyena", "rwkv4", "rwkv5", "rwkv6")),
    *((name, {}, name) for name in ("retention", "hgrn", "gla", "hgrn2")),
)
_SIZES = ("d_model", "num_blocks", "num_heads")  # the parameters stand beside the perplexity
# Of tasks/text.py's chain, which needs torch: 2 to the power of its entropies.
BOUNDS = {"bound: entropy rate": 2 ** (5 / 4), "floor: letters' frequencies": 2 ** (7 / 4)}


def text(records: pd.DataFrame) -> Made:
    """For one protocol the sheet of its text tasks, if a run finished, and the numbers in it."""
    cells = cells_of(records)
    if not any(cell.runs for cell in cells):
        return Made((), pd.DataFrame())
    published = {row["model"]: row for row in read("slimpajama_perplexity.csv").to_dict("records")}
    by_place = {(cell.stats.task, cell.stats.model): cell for cell in cells}
    tasks = list(dict.fromkeys(cell.stats.task for cell in cells))
    models = {cell.stats.model: cell.stats.identity for cell in sorted(cells, key=lambda cell: cell.stats.model)}
    lines = []
    for model, identity in models.items():
        own = [by_place.get((task, model)) for task in tasks]
        entries = (*map(_entry, own), _parameters(own), _theirs(published.get(_architecture(identity))))
        lines.append(Line(model, entries))
    for name, value in BOUNDS.items() if "text" in tasks else ():
        entries = (Entry((f"{value:.2f}",)) if task == "text" else DASH for task in tasks)
        lines.append(Line(name, (*entries, Entry(("",)), Entry(("",))), is_floor=True))
    first = cells[0].stats.identity
    columns = (*map(Column, tasks), Column("parameters"), Column("SlimPajama", remark="published"))
    there = {_architecture(identity) for identity in models.values()}
    left_out = ", ".join(name for name in published if name not in there)
    notes = (f"In the paper and not here: {left_out}.",) if left_out else ()
    lead = (_OURS, _difference(cells, published))
    rows = [_row(cell, published) for cell in cells]
    warning = warning_of(first.protocol_name)
    sheet = Sheet(first.protocol, lead, "model", columns, tuple(lines), notes, warning)
    return Made((sheet,), pd.DataFrame(rows))


_OURS = (
    "Perplexity a token of the test part, exp of the mean cross entropy: mean ± standard deviation over (seeds) at the "
    "rate chosen on validation accuracy; below it the same loss in bits."
)


def _architecture(identity: Identity) -> str:
    """The paper's name of a model here, whatever its size; empty where it has none."""
    kept = {name: value for name, value in identity.of_model().items() if name not in _SIZES}
    return next((theirs for ours, own, theirs in THEIRS if (ours, own) == (identity.model_name, kept)), "")


def _difference(cells: list[Cell], published: Mapping[str, Mapping[str, Any]]) -> str:
    """How far data and size lie apart: what stands beside each other is not comparable."""
    runs = [run for cell in cells for run in cell.runs]
    read_tokens = [run["tokens_per_step"] * run["steps"] for run in runs if pd.notna(run["tokens_per_step"])]
    ours, theirs = [row["parameters"] for row in runs], [row["params_millions"] for row in published.values()]
    seen = _range(read_tokens) if read_tokens else "an unknown number of"
    return (
        f"The last column is not comparable with the others: {sources()[_PAPER]['source']} has models of "
        f"{min(theirs)} to {max(theirs)} million parameters, trained on 15B tokens of SlimPajama, with a vocabulary of "
        f"its own; here {_range(ours)} parameters, {seen} tokens of another text."
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
    """What a token of a task is; with words some are longer than a byte."""
    settings = identity.of_task()
    return "a token" if "words" in settings else "per byte" if "file_sha256" in settings else "a letter"


def _parameters(cells: list[Cell | None]) -> Entry:
    found = [run["parameters"] for cell in cells if cell is not None for run in cell.runs]
    return Entry((_range(found),)) if found else DASH


def _theirs(row: Mapping[str, Any] | None) -> Entry:
    return DASH if row is None else Entry((f"{row['perplexity']:.2f}", f"{row['params_millions']} M"))


def _row(cell: Cell, published: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    seen, there = cell.stats, published.get(_architecture(cell.stats.identity), {})
    mean, std = mean_and_std(_perplexities(cell))
    row = {name: cell.place[name] for name in ("protocol", "level", "task", "model")}
    row |= {"n": len(cell.runs), "diverged": seen.diverged, "failed": seen.failed, "lr": seen.lr}
    row |= {"perplexity": mean, "std": std, "nats": mean_and_std([run["test_loss"] for run in cell.runs])[0]}
    row |= {"accuracy": mean_and_std([run["test"] for run in cell.runs])[0]}
    for name in ("best_constant", "parameters", "tokens_per_step", "steps"):
        row[name] = cell.runs[0][name] if cell.runs else None
    found = {"perplexity": there.get("perplexity"), "params_millions": there.get("params_millions")}
    return row | {f"slimpajama_{name}": value for name, value in found.items()}


def is_text(row: Row) -> bool:
    return Identity.of(row).task_name == "text"


register(
    Kind(
        name="text",
        about="perplexities, where there is a text",
        make=text,
        wants=is_text,
        subject="text",
        when=lambda records: any(map(is_text, records.to_dict("records"))),
        rank=7,
    )
)
