"""Bits a byte of models of a text beside their four family scores of climb-v1, and how the two rank together.

mamba     2.31    1.00    0.12    0.31    0.98        bits a byte; memory, state tracking, counting, retrieval

retrieval     0.61 [0.38, 0.77]       models that score higher need fewer bits
"""

import math
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.corpora import title_of_text
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.aggregates import Estimate
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.stats.correlation import spearman
from chomsky_ladder.harness.stats.families import FAMILIES, family_scores, family_text
from chomsky_ladder.harness.stats.rows import distinct
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet

CLIMB = "climb-v1"
COLUMNS = ("protocol", "task", "model", "bits", "seeds", "lr", "parameters", *FAMILIES)
SCORES = (*FAMILIES, "parameters")
FEWEST = 5  # models for a correlation


@dataclass(frozen=True)
class Reader:
    """A model that has read a text and climbed."""

    cell: Cell
    scores: dict[str, Estimate]

    @property
    def bits(self) -> float:
        return mean(run["test_loss"] / math.log(2) for run in self.cell.runs)

    @property
    def parameters(self) -> float:
        return float(self.cell.runs[0]["parameters"])

    def score(self, name: str) -> float:
        return self.parameters if name == "parameters" else self.scores[name].value


def language(records: pd.DataFrame) -> Made:
    """Return two sheets for each text: the models, and the correlations."""
    climbed = {one.model: family_scores(one) for one in climbs_of(records, CLIMB) if one.is_complete}
    sheets, data = [], []
    for _, of_protocol in records[records["protocol"] != CLIMB].groupby("protocol", sort=True):
        cells = cells_of(of_protocol)
        for task in dict.fromkeys(cell.stats.task for cell in cells):
            own = [cell for cell in cells if cell.stats.task == task and cell.runs and cell.stats.model in climbed]
            readers = sorted((Reader(cell, climbed[cell.stats.model]) for cell in own), key=lambda one: one.bits)
            if readers:
                sheets += [_models(readers), _correlations(readers)]
                data += map(_row, readers)
    return Made(tuple(sheets), pd.DataFrame(data, columns=list(COLUMNS)))


def _title(readers: list[Reader]) -> str:
    stats = readers[0].cell.stats
    return f"{stats.protocol}: {title_of_text(stats.identity.of_task()['file_sha256'])}"


def _models(readers: list[Reader]) -> Sheet:
    lines = []
    for one in readers:
        families = [Entry((family_text(one.scores.get(family)),)) for family in FAMILIES]
        parameters, seeds = Entry((f"{one.parameters:,.0f}",)), Entry((str(len(one.cell.runs)),))
        lines.append(Line(one.cell.stats.title, (Entry((f"{one.bits:.3f}",)), *families, parameters, seeds)))
    lead = (
        "Bits a byte of the test part: mean over seeds at the learning rate chosen on validation accuracy. Beside it "
        f"the four family scores of {CLIMB}: mean scaled accuracy at the longest test lengths, with a bootstrap "
        "interval over seeds (95 %).",
    )
    columns = tuple(map(Column, ("bits a byte", *FAMILIES, "parameters", "seeds")))
    return Sheet(_title(readers), lead, "model", columns, tuple(lines))


def _correlations(readers: list[Reader]) -> Sheet:
    lead = (
        "Spearman's rank correlation over models. Above 0, models that score higher need fewer bits. The interval is "
        "a bootstrap over models (95 %). The last line is a control: the larger models have larger embeddings.",
    )
    notes = (
        f"{_size(readers)} One text: it says nothing about larger models or other texts. The models are no random "
        "sample, and some are relatives, so the interval is too narrow. A correlation is no cause.",
    )
    lines = tuple(Line(name, _correlation(readers, name)) for name in SCORES)
    columns = (Column("with fewer bits"), Column("models"))
    return Sheet(f"{_title(readers)}: rank correlation", lead, "score", columns, lines, notes)


def _correlation(readers: list[Reader], name: str) -> tuple[Entry, Entry]:
    known = [one for one in readers if name == "parameters" or name in one.scores]
    if len(known) < FEWEST:
        return Entry(("-",)), Entry((str(len(known)),))
    found = spearman([-one.bits for one in known], [one.score(name) for one in known])
    return Entry((family_text(found),)), Entry((str(len(known)),))


def _size(readers: list[Reader]) -> str:
    identity = readers[0].cell.stats.identity
    train = PROTOCOLS[identity.protocol_name].train
    steps, batch = (identity.settings.get(f"train.{name}", train[name]) for name in ("steps", "batch"))
    size = median(one.parameters for one in readers)
    return f"Models of about {size:,.0f} parameters, {steps:,} steps of {batch} windows."


def _row(one: Reader) -> dict[str, Any]:
    stats = one.cell.stats
    row = {"protocol": stats.protocol, "task": stats.task, "model": stats.model, "bits": one.bits}
    row |= {"seeds": len(one.cell.runs), "lr": stats.lr, "parameters": int(one.parameters)}
    return row | {family: score.value for family, score in one.scores.items()}


def _is_text(row: Row) -> bool:
    """Return True for bytes of a text. With words as tokens, a loss is not in bits a byte."""
    identity = Identity.of(row)
    return identity.task_name == "text" and "file_sha256" in identity.of_task() and "words" not in identity.of_task()


def _there(records: pd.DataFrame) -> bool:
    return CLIMB in set(records["protocol"]) and any(map(_is_text, distinct(records)))


register(
    Kind(
        name="language",
        about="bits a byte of a text beside the four family scores of the climb",
        make=language,
        wants=lambda row: row["protocol"] == CLIMB or _is_text(row),
        subject=f"a text, or {CLIMB}",
        together=lambda row: "",
        when=_there,
        why_not=f"no model has read a text and climbed {CLIMB}",
        rank=8,
    )
)
