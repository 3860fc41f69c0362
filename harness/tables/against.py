"""Our cells beside a paper's: ours, the paper's, and what ours has more, marked by whether the two agree.

    1.00 [0.98, 1.00] 3/3 ●     ours: median, range, runs that solve it, and the outcome (harness/stats/outcomes.py)
    paper 0.97 ± 0.02           the paper's, in its own measure
    mean +0.02 ≈                of what the paper reports of its seeds, ours less theirs

Agreement is an equivalence (harness/stats/equivalence.py). The header says how far the budgets lie apart; the notes,
which models and tasks have no counterpart.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.cell_stats import CellStats
from chomsky_ladder.harness.stats.equivalence import WITHIN, Agreement, equivalence, reported
from chomsky_ladder.harness.stats.outcomes import LEGEND, MARKS
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.labels import TRAITS, Identity
from chomsky_ladder.harness.tables.published import Published, Value
from chomsky_ladder.harness.tables.sheets import (
    Cell,
    Entry,
    Sheet,
    accuracy_sheet,
    cell_text,
    in_measure,
    spread_text,
    unscaled,
)

_LEAST = {"mean": "the 95 % interval of our mean", "median": "the range of our seeds", "best": "our best seed"}


@dataclass(frozen=True)
class Beside:
    """A cell of ours and the paper's value of it, in the paper's measure."""

    value: Value
    ours: float
    mark: Agreement

    @property
    def difference(self) -> float:
        return self.ours - self.value.value


def beside(cell: CellStats | None, row: Mapping[str, Any], paper: Published) -> Beside | None:
    """None: one of the two has nothing, or ours has no scaled accuracy."""
    value = paper.of(row["task"], row["model"])
    if value is None or cell is None or not cell.scores or cell.measure != "test_scaled":
        return None
    scores = [_in_measure(score, row, paper) for score in cell.scores]
    floor = _in_measure(max(0.0, cell.floor or 0.0), row, paper)
    mark = equivalence(
        scores,
        value.value,
        reports=paper.reports,
        rounding=value.rounding,
        floor=floor,
        theirs=paper.budget.seeds,
    )
    return Beside(value, reported(scores, paper.reports), mark)


def against_sheet(
    table: pd.DataFrame,
    records: pd.DataFrame,
    stats: Sequence[CellStats],
    paper: Published,
    *,
    wants: Callable[[Mapping[str, Any]], bool],
    bold: Mapping[str, Collection[str]],
    notes: Sequence[str],
) -> Sheet:
    """Make the sheet of one protocol beside the paper's; `wants` selects the paper's tasks for this kind."""
    by_place = {(cell.task, cell.model): cell for cell in stats}

    def shown(task: str, model: str, row: Cell) -> Entry:
        value = paper.of(task, model)
        cell = by_place.get((task, model))
        outcome = f" {MARKS[cell.outcome]}" if cell is not None and cell.outcome else ""
        ours = "-" if row is None else cell_text(in_measure(row, paper.measure)) + outcome
        if value is None:
            return Entry((ours, "paper -"))
        theirs = f"paper {spread_text(value.value, value.spread)}"
        found = None if row is None else beside(cell, row, paper)
        if found is None:
            return Entry((ours, theirs))
        return Entry((ours, theirs, f"{paper.reports} {_signed(found.difference)}"), mark=found.mark)

    raw = " Accuracies are raw on both sides, as the paper has them." if paper.measure == "raw" else ""
    lead = (
        f"Below ours stands the value of the paper: {paper.source}. The last line is the {paper.reports} of our seeds "
        f"less that value.{raw} ≈ agrees: {_LEAST[paper.reports]} lies within {WITHIN:g} of it. ≠ differs: it lies "
        "outside. ? undecided. · neither is above the floor.",
        f"Budget here (in the paper): {_budgets(table, records, paper)}.",
        f"The outcome of ours: {LEGEND}.",
    )
    notes = [*_unmapped(table, paper, wants), *notes]
    return accuracy_sheet(table, measure=paper.measure, show=shown, bold=bold, lead=lead, notes=notes)


def against_data(table: pd.DataFrame, stats: Sequence[CellStats], paper: Published) -> pd.DataFrame:
    """Return a row for every cell of ours, with the paper's value where it has one; `ours` is in the paper's
    measure."""
    by_place = {(cell.task, cell.model): cell for cell in stats}
    rows = []
    for row in as_rows(table):
        value = paper.of(row["task"], row["model"])
        found: dict[str, Any] = {name: row[name] for name in ("protocol", "level", "task", "model")}
        found |= {
            name: row.get(name) for name in ("n", "scaled", "mean", "std", "median", "low", "high", "solved", "runs")
        }
        cell = by_place.get((row["task"], row["model"]))
        found |= {"outcome": cell.outcome if cell else None}
        found |= {"paper": paper.name, "measure": paper.measure, "reports": paper.reports}
        if value is not None:
            found |= {"paper_task": value.task, "paper_model": value.model}
            found |= {"paper_value": value.value, "paper_spread": value.spread}
            if both := beside(cell, row, paper):
                found |= {"ours": both.ours, "difference": both.difference, "agreement": both.mark}
        rows.append(found)
    columns = (
        "protocol",
        "level",
        "task",
        "model",
        "n",
        "scaled",
        "mean",
        "std",
        "median",
        "low",
        "high",
        "solved",
        "runs",
        "outcome",
    )
    columns += ("paper", "measure", "reports", "paper_task", "paper_model", "paper_value", "paper_spread")
    columns += ("ours", "difference", "agreement")
    return pd.DataFrame(rows, columns=list(columns)).astype({"solved": "Int64", "runs": "Int64"})


def _in_measure(score: float, row: Mapping[str, Any], paper: Published) -> float:
    return score if paper.measure == "scaled" else unscaled(score, row["s_rand"])


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"


def _unmapped(table: pd.DataFrame, paper: Published, wants: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    here = {"models": set(table["model"]), "tasks": set(table["task"])}
    tasks = {name: theirs for name, theirs in paper.tasks.items() if wants({"traits": TRAITS.get(name, "")})}
    known = {"models": paper.models, "tasks": tasks}
    only_here = {kind: sorted(names - set(known[kind])) for kind, names in here.items()}
    only_there = {kind: sorted(name for ours, name in known[kind].items() if ours not in here[kind]) for kind in here}
    sentences = []
    for title, names in (("Not in the paper", only_here), ("In the paper and not here", only_there)):
        listed = "; ".join(f"{kind} {', '.join(found)}" for kind, found in names.items() if found)
        sentences += [f"{title}: {listed}."] if listed else []
    return sentences


def _budgets(table: pd.DataFrame, records: pd.DataFrame, paper: Published) -> str:
    """Return the budget of each side: ours from the records, their protocol and its changes."""
    done = records[records["status"] == "done"]
    identities = [Identity.of(row) for row in as_rows(table)]
    ours = {
        "steps": set(done["steps"]),
        "batch": {batch for identity in identities if (batch := _batch(identity)) is not None},
        "seeds": set(table.loc[table["n"] > 0, "n"]),
        "rates": set(table["rates"]),
        "width": {size for identity in identities if (size := _size(identity, "d_model")) is not None},
        "blocks": {size for identity in identities if (size := _size(identity, "num_blocks")) is not None},
        "parameters": set(done["parameters"].dropna()),
    }
    theirs = {name: getattr(paper.budget, name) for name in ours}
    there = {name: "not published" if value is None else f"{value:,}" for name, value in theirs.items()}
    return ", ".join(f"{name} {_shown(found)} ({there[name]})" for name, found in ours.items())


def _batch(identity: Identity) -> int | None:
    preset = PROTOCOLS.get(identity.protocol_name)
    usual = preset.train_of(identity.task_name, identity.model_name)["batch"] if preset else None
    return identity.settings.get("train.batch", usual)


def _size(identity: Identity, setting: str) -> int | None:
    """Return the size of a model by the protocol's preset and its changes."""
    preset = PROTOCOLS.get(identity.protocol_name)
    usual = preset.model_of(identity.task_name, identity.model_name) if preset else {}
    return identity.of_model().get(setting, usual.get(setting))


def _shown(values: Collection[float]) -> str:
    if not values:
        return "not known"
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
