"""A table before it has a format: columns with their group, rows of models, rows of floors, and what is said of it.

`accuracy_sheet` makes one of the cells (harness/stats/cells.py) of one protocol: models x tasks in the hierarchy's
order, the floors below. formats.py writes a sheet as markdown or HTML, latex.py as LaTeX, plain_text.py for a terminal.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, warning_of
from chomsky_ladder.harness.config.protocol import Measure
from chomsky_ladder.harness.stats.cells import SOLVED, least_and_most, median_of
from chomsky_ladder.harness.stats.view import FLOORS, LEVELS
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of

Mark = Literal["", "agrees", "differs", "undecided", "floor"]  # of a published value (harness/stats/equivalence.py)
SIGNS: dict[Mark, str] = {"agrees": "≈", "differs": "≠", "undecided": "?", "floor": "·"}


@dataclass(frozen=True)
class Column:
    name: str
    group: str = ""  # equal ones stand beside each other
    remark: str = ""
    about: str = ""  # what the name stands for; in a note, where there is no room beside it

    @property
    def title(self) -> str:
        return f"{self.name} ({self.remark})" if self.remark else self.name


@dataclass(frozen=True)
class Entry:
    """Lines below each other; a mark belongs to the last."""

    lines: tuple[str, ...]
    bold: bool = False
    mark: Mark = ""
    is_solved: bool = False  # on every run


@dataclass(frozen=True)
class Line:
    name: str
    entries: tuple[Entry, ...]
    is_floor: bool = False


@dataclass(frozen=True)
class Sheet:
    title: str  # the protocol first: a sheet never holds two
    lead: tuple[str, ...]  # sentences
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    warning: str = ""  # what nobody may overlook

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Return a note that explains the columns' names."""
        said = [f"{column.name}: {column.about}" for column in self.columns if column.about]
        return (f"{'; '.join(said)}.",) if said else ()


OVERFLOWED = "overflowed: logits of some test strings are not numbers, so their answers count as wrong."
DASH = Entry(("-",))

Cell = pd.Series | None  # a row of harness/stats/cells.py, if there is one
Shown = Callable[[str, str, Cell], Entry]  # of a task and a model


def plain_entry(measure: Measure) -> Shown:
    """Median and range of the seeds, how many of the runs solved the task, and how many did not finish."""

    def shown(task: str, model: str, row: Cell) -> Entry:
        if row is None:
            return DASH
        return Entry((cell_text(in_measure(row, measure)),), is_solved=bool(row["n"]) and row["solved"] == row["runs"])

    return shown


def accuracy_sheet(
    table: pd.DataFrame,
    *,
    measure: Measure | None = None,
    show: Shown | None = None,
    bold: Mapping[str, Collection[str]] | None = None,
    lead: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Sheet:
    """Make the cells of one protocol, in its own measure or another's; `bold` names the models of a task in bold."""
    (protocol,) = (str(name) for name in table["protocol"].unique())
    measure = measure or measure_of(table.iloc[0])
    entry = show or plain_entry(measure)
    level_of = dict(zip(table["task"], table["level"], strict=True))
    order = {level: place for place, level in enumerate(LEVELS)}
    tasks = sorted(level_of, key=lambda task: (order.get(level_of[task], len(order)), task))
    by_place = {(row["task"], row["model"]): row for _, row in table.iterrows()}
    raw = set(table.loc[table["n"].gt(0) & table["scaled"].ne(True), "task"])
    columns = [Column(task, level_of[task].replace("_", "-"), "raw" if task in raw else "") for task in tasks]
    shown = shown_models(table)
    lines = []
    for model in sorted(table["model"].unique()):
        rows = {task: by_place.get((task, model)) for task in tasks}
        entries = []
        for task, row in rows.items():
            entries.append(replace(entry(task, model, row), bold=model in (bold or {}).get(task, ())))
        seconds = [row["seconds"] for row in rows.values() if row is not None and row["n"]]
        entries.append(Entry((f"{sum(seconds) / len(seconds):.1f}",)) if seconds else DASH)
        lines.append(Line(shown[model], tuple(entries)))
    for floor in FLOORS:
        entries = [Entry((_floor(table, task, floor, measure),)) for task in tasks]
        lines.append(Line(floor_name(floor), (*entries, Entry(("",))), is_floor=True))
    return Sheet(
        protocol,
        (_lead(table, measure), *lead),
        "model",
        (*columns, Column("s a run")),
        tuple(lines),
        (*notes, *((OVERFLOWED,) if table.get("overflowed", pd.Series()).gt(0).any() else ())),
        warning_of(Identity.of(table.iloc[0]).protocol_name),
    )


def shown_models(table: pd.DataFrame) -> dict[str, str]:
    """Return the title of every model label; the label itself where it holds a setting of the protocol."""
    found = table.drop_duplicates("model").to_dict("records")
    identities = {row["model"]: Identity.of(row) for row in found}
    return {model: title_of(of) if of.model == model else model for model, of in identities.items()}


def _lead(table: pd.DataFrame, measure: Measure) -> str:
    rates = "" if table["rates"].max() == 1 else "; the learning rate of each cell chosen on validation"
    fresh = table.loc[table["n"].gt(0), "fresh"]
    if len(fresh) and fresh.eq(True).all():
        rates = "; fresh ones, the learning rate of each cell having been chosen on the validation of others"
    protocol = PROTOCOLS.get(Identity.of(table.iloc[0]).protocol_name)
    own, solved = (protocol.measure, protocol.solved) if protocol else ("scaled", SOLVED)
    kind = {"raw": "Test accuracy, raw as in the paper", "scaled": "Scaled test accuracy (0 is chance, 1 perfect)"}
    counted = "" if measure == own else f" {own}"
    reports = f" The paper's cells are the {protocol.reports} seed." if protocol and protocol.reports == "best" else ""
    return (
        f"{kind[measure]}: median over seeds, [lowest, highest] where they differ, and k/n, how many of the n runs "
        f"reached {solved:g}{counted}{rates}.{reports}"
    )


def floor_name(floor: str) -> str:
    return f"floor: {floor.replace('_', ' ')}"


def measure_of(row: Mapping[str, Any] | pd.Series) -> Measure:
    """Return the measure of a protocol's paper, where it is known here."""
    protocol = PROTOCOLS.get(Identity.of(dict(row)).protocol_name)
    return protocol.measure if protocol else "scaled"


def in_measure(row: pd.Series, measure: Measure) -> pd.Series:
    """Convert a cell's scaled accuracies to what a paper shows: raw ones are chance and what is above it."""
    if measure == "scaled" or not row["n"] or not row["scaled"]:
        return row
    return pd.Series({**row, **{name: unscaled(row[name], row["s_rand"]) for name in ("median", "low", "high")}})


def unscaled(scaled: float, chance: float) -> float:
    return chance + (1 - chance) * scaled


def cell_text(row: pd.Series) -> str:
    fates = [f"{row[fate]:.0f} {fate}" for fate in ("diverged", "failed", "overflowed") if row.get(fate, 0) > 0]
    if not row["n"]:
        return ", ".join(fates)
    shown = range_text(row["median"], row["low"], row["high"])
    share = f"{row['solved']}/{row['runs']}"
    return f"{shown} {', '.join([share, *fates])}"


def range_entry(values: Sequence[float]) -> Entry:
    """Make an entry of the seeds' values alone."""
    middle, (low, high) = median_of(values), least_and_most(values)
    return DASH if middle is None or low is None or high is None else Entry((range_text(middle, low, high),))


def range_text(median: float, low: float, high: float) -> str:
    """Write a median with its range, which is left out where it rounds to the median."""
    shown = [two_digits(value) for value in (median, low, high)]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def spread_text(mean: float, std: float | None) -> str:
    """Write a mean and its standard deviation, where there is one."""
    return two_digits(mean) if std is None or pd.isna(std) else f"{two_digits(mean)} ± {std:.2f}"


def two_digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00


def _floor(table: pd.DataFrame, task: str, floor: str, measure: Measure) -> str:
    rows = table[(table["task"] == task) & table["n"].gt(0)]
    if rows.empty:
        return "-"
    if not rows["scaled"].iloc[0] or measure == "raw":
        return two_digits(rows[floor].iloc[0])
    chance = rows["s_rand"].iloc[0]
    return two_digits((rows[floor].iloc[0] - chance) / (1 - chance))
