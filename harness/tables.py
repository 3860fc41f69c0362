"""Tables from records and nothing else: results/records.csv in, CSV and markdown out, the same bytes every time.

`collect` brings the finished runs of results/runs/ into records.csv. A table holds one protocol, its deviations named
in the title. The learning rate of a cell is chosen on validation; the cell shows test at that rate, at the last step:
mean and standard deviation over seeds, with their number.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict

from harness.config import Run
from harness.protocols import model_label, protocol_label, task_label
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
    test_bins: str = "{}"
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
        """The record of a run that is done or failed; None for one under way, or of a version that is no more."""
        result, failed = folder.result(), folder.path / "failure.json"
        if result is None and not failed.exists():
            return None
        try:
            run = Run.from_plain(folder.config())
        except ValueError:
            return None
        head = {
            "run_id": run.run_id,
            "protocol": protocol_label(run),
            "task": task_label(run),
            "level": run.task.level,
            "model": model_label(run),
            "lr": run.train.lr,
            "seed": run.seed,
        }
        if result is None:
            return cls(**head, status="failed", steps=0, error=json.loads(failed.read_text())["error"])
        made = result["provenance"]
        return cls(
            **head,
            **{name: result[name] for name in ("status", "steps", "parameters", "state_bytes", "fingerprint")},
            **(_scores(result) if result["status"] == "done" else {}),
            mixed_numerics=result["mixed_numerics"],
            device=result["numerics"]["device"],
            torch=result["numerics"]["torch"],
            commit=made["commit"],
            dirty=made["dirty"],
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
        "test_bins": json.dumps(test["bins"], separators=(",", ":")),
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
    path.write_text(frame.to_csv(index=False, lineterminator="\n"))
    return frame


def stored(path: Path) -> pd.DataFrame:
    """The records of a records.csv as they stand."""
    return _frame(_stored(path))


def _stored(path: Path) -> list[Record]:
    if not path.exists():
        return []
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return [Record.model_validate({name: value for name, value in row.items() if value != ""}) for row in rows]


def _frame(records: list[Record]) -> pd.DataFrame:
    return pd.DataFrame([record.model_dump() for record in records], columns=list(Record.model_fields))


def cells(records: pd.DataFrame) -> pd.DataFrame:
    """One row a protocol, task and model: the chosen rate, its seeds and what they scored."""
    rows = []
    for (protocol, task, model), cell in records.groupby(["protocol", "task", "model"], sort=True):
        done = cell[cell["status"] == "done"]
        base = {"protocol": protocol, "level": cell["level"].iloc[0], "task": task, "model": model}
        if done.empty:
            rows.append({**base, "n": 0, **_fates(cell)})
            continue
        rate = _best_rate(cell, "validation")
        chosen, other = cell[cell["lr"] == rate], cell[cell["lr"] == _best_rate(cell, "in_distribution")]
        finished = chosen[chosen["status"] == "done"].sort_values("seed")
        shown = finished["test_scaled"] if finished["test_scaled"].notna().all() else finished["test"]
        floors = {name: finished[name].iloc[0] for name in ("s_rand", "best_constant", "content_free")}
        rows.append(
            {
                **base,
                "n": len(finished),
                **_fates(chosen),
                "rates": cell["lr"].nunique(),
                "lr": rate,
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
    return pd.DataFrame(rows)


def _best_rate(cell: pd.DataFrame, column: str) -> float:
    """The rate with the highest mean over seeds; one that did not finish counts zero; a tie goes to the lower rate."""
    means = cell.assign(value=cell[column].where(cell["status"] == "done", 0.0)).groupby("lr")["value"].mean()
    return float(means.idxmax())


def _fates(cell: pd.DataFrame) -> dict[str, int]:
    return {fate: int((cell["status"] == fate).sum()) for fate in ("diverged", "failed")}


def markdown(table: pd.DataFrame) -> str:
    """All cells as one table a protocol."""
    parts = [_one_protocol(str(protocol), group) for protocol, group in table.groupby("protocol", sort=True)]
    return "\n".join(parts)


def _one_protocol(protocol: str, table: pd.DataFrame) -> str:
    order = {level: place for place, level in enumerate(LEVELS)}
    tasks = sorted(table["task"].unique(), key=lambda task: (order[_level(table, task)], task))
    models = sorted(table["model"].unique())
    by_place = {(row["task"], row["model"]): row for _, row in table.iterrows()}
    header = ["model", *(f"{task}<br>{_level(table, task).replace('_', '-')}" for task in tasks), "s a run"]
    lines = [header, ["---", *("---:" for _ in header[1:])]]
    for model in models:
        rows = [by_place.get((task, model)) for task in tasks]
        seconds = [row["seconds"] for row in rows if row is not None and row["n"]]
        lines.append([model, *map(_cell, rows), f"{sum(seconds) / len(seconds):.1f}" if seconds else "-"])
    for floor in ("best_constant", "content_free"):
        lines.append([f"*floor: {floor.replace('_', ' ')}*", *(_floor(table, task, floor) for task in tasks), ""])
    title = f"### {protocol}\n\nScaled test accuracy (0 is chance, 1 perfect), mean ± standard deviation over (seeds)"
    quick = " **Quick: a smoke run, not a result.**" if protocol.split()[0] == "quick" else ""
    rates = "" if table["rates"].max() <= 1 else "; the learning rate of each cell chosen on validation"
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
    return f"{row['mean']:.2f}{spread} ({', '.join([str(row['n']), *fates])})"


def _floor(table: pd.DataFrame, task: str, floor: str) -> str:
    rows = table[(table["task"] == task) & table["n"].gt(0)]
    if rows.empty:
        return "-"
    chance = rows["s_rand"].iloc[0]
    return f"{(rows[floor].iloc[0] - chance) / (1 - chance) + 0.0:.2f}"


def write(results: Path) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md}, and return the markdown."""
    table = cells(collect(results))
    folder = results / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accuracy.csv").write_text(table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    text = markdown(table)
    (folder / "accuracy.md").write_text(text)
    return text
