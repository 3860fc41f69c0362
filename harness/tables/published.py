"""Published values beside ours: which of a paper's rows and columns ours are, and beside whose records they may stand.

The values are the files of harness/tables/papers/, with their source, their budget and the protocols of their family in
sources.json; or a CSV of the reader's:

    model,ladder_model,task,ladder_task,metric,value,spread,protocol
    Mine,lstm,Parity,parity,accuracy %,98.3,0.4,xlstm_20k

`ladder_model` and `ladder_task` are our labels (without the columns, the paper's names are); a metric with a % is in
hundredths, one that is not `scaled` is raw, one that says best or median is of that seed. Only a label that is named is
compared: a changed setting is another model, a later version another task. A family is the protocols with the paper's
lengths, supervision, counting, query and operators: beside others its values are no comparison.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import Measure, Reports
from chomsky_ladder.harness.store.labels import LAYOUT, Identity

APART = (
    "train.lengths",
    "train.lengths_per",
    "train.curriculum",
    "train.examples",
    "train.qat",
    "train.base",
    "eval.lengths",
    "eval.score",
)
APART += ("eval.file_sha256", *LAYOUT)  # with one of these changed, a run is of no family
_ANSWERS = {"final": "the last answer", "dense": "the answer of every prefix"}


@dataclass(frozen=True)
class Value:
    """The value of a paper in one cell, as a share."""

    model: str  # by the paper's name
    task: str
    value: float
    spread: float | None  # None: not given
    rounding: float = 0.005  # half a step of its last digit


@dataclass(frozen=True)
class Budget:
    """The budget of a paper's runs; None: not published."""

    steps: int | None = None
    batch: int | None = None
    seeds: int | None = None
    rates: int | None = None
    width: int | None = None
    blocks: int | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Published:
    name: str
    source: str
    budget: Budget
    models: dict[str, str]  # ours -> the paper's
    tasks: dict[str, str]
    values: dict[tuple[str, str], Value]  # by the paper's names
    family: dict[str, int]  # the protocols its values may stand beside, and their versions
    measure: Measure = "scaled"
    reports: Reports = "mean"

    def of(self, task: str, model: str) -> Value | None:
        """Return the value beside our cell, if the paper has one."""
        return self.values.get((self.tasks.get(task, ""), self.models.get(model, "")))

    def why_not(self, identity: Identity) -> str:
        """Why its values cannot stand beside a record; empty where they can."""
        name, settings = identity.protocol_name, identity.settings
        if name not in self.family:
            return f"{name}, which is not of its family"
        version = settings.get("protocol.version", 1)
        if version != self.family[name]:
            return f"{name} v{version}, of which v{self.family[name]} alone is like it"
        changed = [setting for setting in APART if setting in settings]
        if changed:
            return f"{name} with another {' and '.join(changed)}"
        task, first = identity.task_name, next(iter(self.family))
        own, theirs = _supervision(name, task), _supervision(first, task)
        return "" if own == theirs else f"{task} of {name}, which trains on {_ANSWERS[own]}"


def _supervision(protocol: str, task: str) -> str:
    """Return the answers that a protocol trains on, of a task that it has."""
    preset = PROTOCOLS.get(protocol)
    settings = preset.task | preset.tasks.get(task, {}) if preset else {}
    return settings.get("supervision", "final")


def papers() -> list[str]:
    """Return the names of the papers that come with the harness."""
    return sorted(sources())


@cache
def published(paper: str) -> Published:
    """Return a paper by its name, or a CSV by its path."""
    known = sources()
    if paper not in known:
        if paper.endswith(".csv"):
            return of_file(Path(paper))
        raise ValueError(f"no paper {paper!r}; there are {', '.join(known)}, or a file: its.csv")
    entry = known[paper]
    frames = [
        _with_names(_strings(files("chomsky_ladder.harness.tables") / "papers" / name), entry)
        for name in entry["tables"]
    ]
    measure, reports = entry.get("measure", "scaled"), entry.get("reports", "mean")
    models, tasks, values = _values(paper, frames)
    budget = Budget(**entry["budget"])
    return Published(paper, entry["source"], budget, models, tasks, values, entry["family"], measure, reports)


def of_file(path: Path, *, protocols: tuple[str, ...] = ()) -> Published:
    """Read the reader's own CSV. Its column `protocol` names its protocols, unless `protocols` do."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        frame = _strings(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is no CSV of published values: {str(error).splitlines()[0]}") from None
    lacking = [name for name in ("model", "task", "value") if name not in frame]
    if lacking or frame.empty:
        raise ValueError(f"{path} has no {', '.join(lacking) or 'values'}: its columns are model, task, value and more")
    family = dict.fromkeys(protocols, 1)
    for named in frame["protocol"].unique() if "protocol" in frame and not protocols else ():
        family |= dict.fromkeys(filter(None, (name.strip() for name in named.split(";"))), 1)
    if not family:
        raise ValueError(f"{path} does not say which protocols it is of: give it a column protocol, or say --protocol")
    metrics = set(frame["metric"]) if "metric" in frame else {"scaled accuracy"}
    if len(metrics) != 1:
        raise ValueError(f"{path} holds {len(metrics)} metrics, and a table is of one: {', '.join(sorted(metrics))}")
    metric = metrics.pop()
    measure: Measure = "scaled" if "scaled" in metric else "raw"
    reports: Reports = "best" if "best" in metric else "median" if "median" in metric else "mean"
    models, tasks, values = _values(path.name, [frame])
    return Published(path.name, str(path), Budget(), models, tasks, values, family, measure, reports)


@cache
def sources() -> dict[str, dict[str, Any]]:
    """Return where every file of published values comes from, and what it holds."""
    return json.loads((files("chomsky_ladder.harness.tables") / "papers" / "sources.json").read_text("utf-8"))


def _strings(path: Any) -> pd.DataFrame:
    """Read values as they are written, so that their last digit is known."""
    with path.open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


def _with_names(frame: pd.DataFrame, entry: Mapping[str, Any]) -> pd.DataFrame:
    """Give files without our names those of sources.json."""
    if "ladder_model" in frame:
        return frame
    frame = frame.rename(columns={"mean": "value", "std": "spread"})
    ours = {part: {theirs: name for name, theirs in entry[f"{part}s"].items()} for part in ("model", "task")}
    return frame.assign(**{f"ladder_{part}": frame[part].map(ours[part]) for part in ours})


def _values(
    source: str, frames: list[pd.DataFrame]
) -> tuple[dict[str, str], dict[str, str], dict[tuple[str, str], Value]]:
    models: dict[str, str] = {}
    tasks: dict[str, str] = {}
    values: dict[tuple[str, str], Value] = {}
    for frame in frames:
        unit = 0.01 if "metric" in frame and frame["metric"].str.contains("%").all() else 1.0
        digits = max(len(text.partition(".")[2]) for text in frame["value"])
        for row in frame.to_dict("records"):
            place = (row["task"], row["model"])
            if place in values:
                raise ValueError(f"{source} has two values for {row['model']} on {row['task']}")
            try:
                value = float(row["value"]) * unit
                spread = float(row["spread"]) * unit if row.get("spread") else None
            except ValueError:
                raise ValueError(
                    f"{source} has no number for {row['model']} on {row['task']}: {row['value']}"
                ) from None
            if not (value <= 1 and (spread is None or 0 <= spread < math.inf)):
                raise ValueError(
                    f"{source} has {row['value']} for {row['model']} on {row['task']}, which is no accuracy: "
                    "one in hundredths has a column metric with a %"
                )
            values[place] = Value(row["model"], row["task"], value, spread, unit * 10**-digits / 2)
            for part, named in (("model", models), ("task", tasks)):
                ours = row.get(f"ladder_{part}", row[part])
                if ours and named.setdefault(ours, row[part]) != row[part]:
                    raise ValueError(f"{source} has two rows that stand beside {ours}: {named[ours]} and {row[part]}")
    return models, tasks, values
