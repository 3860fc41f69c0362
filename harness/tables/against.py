"""Our cells beside a paper's: ours, the paper's, and the difference, marked by whether they agree within their spread.

The header says how far the budgets lie apart; the notes, which models and tasks have no counterpart.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.store.labels import TRAITS, Identity
from chomsky_ladder.harness.tables.published import Published, agreement
from chomsky_ladder.harness.tables.sheets import Cell, Entry, Mark, Sheet, accuracy_sheet, plain_entry, spread_text


def against_sheet(
    table: pd.DataFrame,
    records: pd.DataFrame,
    paper: Published,
    *,
    wants: Callable[[Mapping[str, Any]], bool],
    bold: Mapping[str, Collection[str]],
    notes: Sequence[str],
) -> Sheet:
    """The cells of one protocol beside the paper's; `wants` says which of the paper's tasks this kind is about."""

    def beside(task: str, model: str, row: Cell) -> Entry:
        value = paper.of(task, model)
        ours = plain_entry(task, model, row).lines[0]
        if value is None:
            return Entry((ours, "paper -"))
        theirs = f"paper {spread_text(value.mean, value.std)}"
        if row is None or not _comparable(row):
            return Entry((ours, theirs))
        return Entry((ours, theirs, _difference(row["mean"] - value.mean)), mark=_mark(row, paper))

    lead = (
        f"Below ours the paper's, {paper.source}, and ours less theirs: ≈ agrees, ≠ differs; within the two standard "
        "deviations together and .01 for rounding; ? apart, but a standard deviation is not known.",
        f"Budget here (in the paper): {_budgets(table, records, paper)}.",
    )
    return accuracy_sheet(table, show=beside, bold=bold, lead=lead, notes=[*_unmapped(table, paper, wants), *notes])


def against_data(table: pd.DataFrame, paper: Published) -> pd.DataFrame:
    """A row for every cell of ours, with the paper's where it has one."""
    rows = []
    for row in table.to_dict("records"):
        value = paper.of(row["task"], row["model"])
        found: dict[str, Any] = {name: row[name] for name in ("protocol", "level", "task", "model")}
        found |= {name: row.get(name) for name in ("n", "scaled", "mean", "std")} | {"paper": paper.name}
        if value is not None:
            found |= {"paper_task": value.task, "paper_model": value.model}
            found |= {"paper_mean": value.mean, "paper_std": value.std}
            if _comparable(row):
                found |= {"difference": row["mean"] - value.mean, "agreement": _mark(row, paper)}
        rows.append(found)
    columns = ("protocol", "level", "task", "model", "n", "scaled", "mean", "std", "paper", "paper_task", "paper_model")
    columns += ("paper_mean", "paper_std", "difference", "agreement")
    return pd.DataFrame(rows, columns=list(columns))


def _comparable(row: Mapping[str, Any] | pd.Series) -> bool:
    return bool(row["n"]) and bool(row["scaled"])


def _mark(row: Mapping[str, Any] | pd.Series, paper: Published) -> Mark:
    value = paper.of(row["task"], row["model"])
    assert value is not None
    return agreement(row["mean"], row["std"], value)


def _difference(value: float) -> str:
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
    """What each side's runs were given, ours from the records, their protocol and what differs from it."""
    done = records[records["status"] == "done"]
    identities = [Identity.of(row) for row in table.to_dict("records")]
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
    return identity.settings.get("train.batch", preset.train["batch"] if preset else None)


def _size(identity: Identity, setting: str) -> int | None:
    """Of a model, by the protocol's preset and by what differs from it."""
    preset, settings = PROTOCOLS.get(identity.protocol_name), {}
    if preset is not None:
        of_model = preset.models.get(identity.model_name, {})
        of_task = preset.tasks.get(identity.task_name, {})
        settings = {**preset.model, **of_model, **of_task.get("model", {})}
    return identity.of_model().get(setting, settings.get(setting))


def _shown(values: Collection[float]) -> str:
    if not values:
        return "not known"
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
