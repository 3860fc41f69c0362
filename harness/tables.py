"""Tables from records and nothing else: results/records.csv in, CSV and markdown out, the same bytes every time.

`collect` brings the finished runs of results/runs/ into records.csv. A table holds one protocol, its deviations named
in the title. The learning rate of a cell is chosen on validation; the cell shows test at that rate, at the last step:
mean and standard deviation over seeds, with their number.
"""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.checkpoint import write_atomically
from harness.parts import one_line
from harness.records import RunFolder
from tasks.base import LEVELS


class Record(BaseModel):
    """A run's line in records.csv. Accuracies are those of the last step; empty where there is none."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    protocol: str
    task: str
    level: str
    model: str
    lr: float
    seed: int
    status: str
    steps: int
    stopped_early: bool = False
    parameters: int | None = None
    state_bytes: int | None = None
    s_rand: float | None = None
    best_constant: float | None = None
    content_free: float | None = None
    test: float | None = None
    test_scaled: float | None = None
    test_exact: float | None = None
    test_hits: float | None = None
    test_loss: float | None = None
    test_bins: str = "{}"
    content_free_bins: str = "{}"
    extrapolation: str = "{}"
    validation: float | None = None
    in_distribution: float | None = None
    train_seconds: float | None = None
    score_seconds: float | None = None
    device: str = ""
    fingerprint: str = ""
    mixed_numerics: bool = False
    backends: str = ""
    torch: str = ""
    commit: str = ""
    dirty: bool | None = None
    error: str = ""

    @classmethod
    def of(cls, folder: RunFolder) -> "Record | None":
        """The record of a run that is done or failed, from its folder alone; None for one under way."""
        result = folder.result() or folder.failure()
        if result is None:
            return None
        head = {name: result[name] for name in ("run_id", "protocol", "task", "level", "model", "lr", "seed")}
        if head["run_id"] != folder.path.name:
            raise ValueError(f"{folder.path} holds the result of another run, {head['run_id']}")
        made = result["provenance"]
        code = {"commit": made["commit"], "dirty": made["dirty"]}
        if "error" in result:
            return cls(**head, **code, status="failed", steps=0, error=result["error"])
        return cls(
            **head,
            **code,
            **{name: result[name] for name in ("status", "steps", "parameters", "state_bytes", "fingerprint")},
            **(_scores(result) if result["status"] == "done" else {}),
            mixed_numerics=result["mixed_numerics"],
            device=result["numerics"]["device"],
            torch=result["numerics"]["torch"],
        )


def _scores(result: dict[str, Any]) -> dict[str, Any]:
    test = result["test"]
    longer = {length: score["accuracy"] for length, score in result["extrapolation"].items()}
    return {
        **result["floors"],
        "stopped_early": result["stopped_early"],
        "test": test["accuracy"],
        "test_scaled": test["scaled"],
        "test_exact": test["exact"],
        "test_hits": test["hits"],
        "test_loss": test["loss"],
        "test_bins": json.dumps(test["bins"], separators=(",", ":")),
        "content_free_bins": json.dumps(test["content_free_bins"], separators=(",", ":")),
        "extrapolation": json.dumps(longer, separators=(",", ":")),
        "validation": result["validation"]["accuracy"],
        "in_distribution": result["in_distribution"]["accuracy"],
        "train_seconds": result["seconds"]["train"],
        "score_seconds": result["seconds"]["score"],
        "backends": " ".join(result["backends"]),
    }


def collect(results: Path) -> pd.DataFrame:
    """records.csv brought up to date with the runs beside it, sorted by run, and as a frame."""
    path = results / "records.csv"
    records = {record.run_id: record for record in _stored(path)}
    for config in sorted(results.glob("runs/*/config.json")):
        record = Record.of(RunFolder(results, config.parent.name))
        if record is not None:
            records[record.run_id] = record
    if not records:
        raise ValueError(f"no finished runs under {results}")
    frame = _frame([records[run_id] for run_id in sorted(records)])
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())
    return frame


def stored(path: Path) -> pd.DataFrame:
    """The records of a records.csv as they stand."""
    return _frame(_stored(path))


def _stored(path: Path) -> list[Record]:
    if not path.exists():
        return []
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    try:
        return [Record.model_validate({name: value for name, value in row.items() if value != ""}) for row in rows]
    except ValidationError as error:
        raise ValueError(f"{path} is no table of records: {one_line(error, 'column')}") from None


def _frame(records: list[Record]) -> pd.DataFrame:
    frame = pd.DataFrame([record.model_dump() for record in records], columns=list(Record.model_fields))
    whole = ("parameters", "state_bytes")  # integers stay integers beside a run that has none
    return frame.astype(dict.fromkeys(whole, "Int64"))


def cells(records: pd.DataFrame) -> pd.DataFrame:
    """One row a protocol, task and model: the chosen rate, its seeds and what they scored."""
    rows = []
    for (protocol, task, model), cell in records.groupby(["protocol", "task", "model"], sort=True):
        done = cell[cell["status"] == "done"]
        twice = cell[cell.duplicated(["lr", "seed"], keep=False)]["run_id"].tolist()
        if twice:
            raise ValueError(f"{task}, {model}: runs of one rate and seed under one label: {', '.join(twice)}")
        base = {"protocol": protocol, "level": cell["level"].iloc[0], "task": task, "model": model}
        if done.empty:
            rows.append({**base, "n": 0, **_fates(cell), "rates": cell["lr"].nunique()})
            continue
        rate = _best_rate(cell, "validation")
        chosen, other = cell[cell["lr"] == rate], cell[cell["lr"] == _best_rate(cell, "in_distribution")]
        finished = chosen[chosen["status"] == "done"].sort_values("seed")
        is_scaled = bool(finished["test_scaled"].notna().all())  # not where several answers are right
        shown = finished["test_scaled" if is_scaled else "test"]
        floors = {name: finished[name].iloc[0] for name in ("s_rand", "best_constant", "content_free")}
        rows.append(
            {
                **base,
                "n": len(finished),
                **_fates(cell),
                "rates": cell["lr"].nunique(),
                "lr": rate,
                "scaled": is_scaled,
                "mean": shown.mean(),
                "std": shown.std(ddof=1),
                "seeds": " ".join(f"{value:.4f}" for value in shown),
                "exact": finished["test_exact"].mean(),
                "validation": finished["validation"].mean(),
                "lr_in_distribution": other["lr"].iloc[0],
                "mean_in_distribution": other[shown.name].mean(),
                **floors,
                "parameters": finished["parameters"].iloc[0],
                "seconds": (finished["train_seconds"] + finished["score_seconds"]).mean(),
            }
        )
    columns = dict.fromkeys([*max(rows, key=len), "scaled", "seconds", "parameters"])  # also where nothing finished
    return pd.DataFrame(rows).reindex(columns=list(columns)).astype({"parameters": "Int64"})


def _best_rate(cell: pd.DataFrame, column: str) -> float:
    """Of the rates at which a seed finished, the one with the highest mean; a seed that did not finish counts zero.

    A tie goes to the lower rate; the sums are exact, so that rounding never decides one.
    """
    means = {}
    for rate, runs in cell.groupby("lr"):
        finished = runs.loc[runs["status"] == "done", column]
        if len(finished):
            means[float(rate)] = math.fsum(finished) / len(runs)
    return max(sorted(means), key=means.__getitem__)


def _fates(cell: pd.DataFrame) -> dict[str, int]:
    return {fate: int((cell["status"] == fate).sum()) for fate in ("diverged", "failed")}


def markdown(table: pd.DataFrame) -> str:
    """All cells as one table a protocol."""
    parts = [_one_protocol(str(protocol), group) for protocol, group in table.groupby("protocol", sort=True)]
    return "\n".join(parts)


def _one_protocol(protocol: str, table: pd.DataFrame) -> str:
    order = {level: place for place, level in enumerate(LEVELS)}
    tasks = sorted(table["task"].unique(), key=lambda task: (order.get(_level(table, task), len(order)), task))
    models = sorted(table["model"].unique())
    by_place = {(row["task"], row["model"]): row for _, row in table.iterrows()}
    raw = set(table.loc[table["n"].gt(0) & table["scaled"].ne(True), "task"])
    kinds = [f"{_level(table, task).replace('_', '-')}{', raw' if task in raw else ''}" for task in tasks]
    header = ["model", *(f"{task}<br>{kind}" for task, kind in zip(tasks, kinds, strict=True)), "s a run"]
    lines = [header, ["---", *("---:" for _ in header[1:])]]
    for model in models:
        rows = [by_place.get((task, model)) for task in tasks]
        seconds = [row["seconds"] for row in rows if row is not None and row["n"]]
        lines.append([model, *map(_cell, rows), f"{sum(seconds) / len(seconds):.1f}" if seconds else "-"])
    for floor in ("best_constant", "content_free"):
        lines.append([f"*floor: {floor.replace('_', ' ')}*", *(_floor(table, task, floor) for task in tasks), ""])
    title = f"### {protocol}\n\nScaled test accuracy (0 is chance, 1 perfect), mean ± standard deviation over (seeds)"
    quick = " **Quick: a smoke run, not a result.**" if protocol.split()[0] == "quick" else ""
    rates = "" if table["rates"].max() == 1 else "; the learning rate of each cell chosen on validation"
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{title}{rates}.{quick}\n\n{body}\n"


def _level(table: pd.DataFrame, task: str) -> str:
    return str(table.loc[table["task"] == task, "level"].iloc[0])


def _cell(row: pd.Series | None) -> str:
    if row is None:
        return "-"
    fates = [f"{row[fate]} {fate}" for fate in ("diverged", "failed") if row[fate]]
    if not row["n"]:
        return ", ".join(fates)
    spread = f" ± {row['std']:.2f}" if row["n"] > 1 else ""
    return f"{_two_digits(row['mean'])}{spread} ({', '.join([str(row['n']), *fates])})"


def _floor(table: pd.DataFrame, task: str, floor: str) -> str:
    rows = table[(table["task"] == task) & table["n"].gt(0)]
    if rows.empty:
        return "-"
    if not rows["scaled"].iloc[0]:
        return _two_digits(rows[floor].iloc[0])
    chance = rows["s_rand"].iloc[0]
    return _two_digits((rows[floor].iloc[0] - chance) / (1 - chance))


def _two_digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00


def write(results: Path) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md}, and return the markdown."""
    table = cells(collect(results))
    folder = results / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    csv = table.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_atomically(folder / "accuracy.csv", csv.encode())
    text = markdown(table)
    write_atomically(folder / "accuracy.md", text.encode())
    return text
