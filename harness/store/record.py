"""A line of records.csv for every run that is done or failed, made from the run's folder and nothing else.

`collect` brings records.csv up to date with the folders beside it; that of the published folder stays as it is. The
records of runs whose folders are on another machine, or gone, stay. Nothing here needs torch.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from chomsky_ladder.harness.store.files import read_json, write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.labels import COLUMNS as IDENTITY
from chomsky_ladder.harness.store.labels import TRAITS, Identity
from chomsky_ladder.harness.store.places import hint, is_read_only


class Record(BaseModel):
    """A run's line in records.csv. Accuracies are those of the last step; empty where there is none."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    protocol: str
    task: str
    level: str
    model: str
    protocol_name: str
    task_name: str
    model_name: str
    settings: str
    traits: str = ""
    transition: str = ""
    demand: str = ""
    lr: float
    seed: int
    status: str
    steps: int
    stopped_early: bool = False
    tokens_per_step: float | None = None
    steps_to_95: int | None = None
    steps_to_99: int | None = None
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
    metrics: str = "{}"
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
    sources: str = ""

    @model_validator(mode="before")
    @classmethod
    def _identified(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Names and settings where a record of before has labels alone; labels as they are made now."""
        if not {"protocol", "task", "model"} <= set(values):
            return values  # refused for what it lacks
        identity = Identity.of(values)
        traits = values.get("traits") or TRAITS.get(identity.task_name, "")
        return values | identity.columns() | identity.labels() | {"traits": traits}

    @classmethod
    def of(cls, folder: RunFolder) -> "Record | None":
        """The record of a run that is done or failed, from its folder alone; None for one under way."""
        result = read_json(folder.path / "result.json")
        if result is None:
            result = read_json(folder.path / "failure.json")
        if result is None:
            return None
        try:
            record = cls._made(result, folder.history())
        except ValidationError as error:
            raise ValueError(f"{folder.path} holds no result of a run: {_complaint(error)}") from None
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{folder.path} holds no result of a run") from None
        if record.run_id != folder.path.name:
            raise ValueError(f"{folder.path} holds the result of another run, {record.run_id}")
        return record

    @classmethod
    def _made(cls, result: dict[str, Any], history: list[dict[str, Any]]) -> "Record":
        later = (*IDENTITY, "traits", "transition", "demand")  # the first results have labels alone
        names = ("run_id", "protocol", "task", "level", "model", *later, "lr", "seed")
        head = {name: result[name] for name in names if name in result or name not in later}
        made = result["provenance"]
        code = {"commit": made["commit"], "dirty": made["dirty"], "sources": _sources(made.get("plugins", {}))}
        if "error" in result:
            return cls(**head, **code, status="failed", steps=0, error=result["error"])
        return cls(
            **head,
            **code,
            **{name: result[name] for name in ("status", "steps", "parameters", "state_bytes", "fingerprint")},
            **(_scores(result) if result["status"] == "done" else {}),
            tokens_per_step=result.get("tokens_per_step"),  # the first records have none
            steps_to_95=_first_step(history, 0.95),
            steps_to_99=_first_step(history, 0.99),
            mixed_numerics=result["mixed_numerics"],
            device=result["numerics"]["device"],
            torch=result["numerics"]["torch"],
        )


def _sources(plugins: dict[str, dict[str, str]]) -> str:
    """What plugins a run was made with: `model rm of rm.py e6ea1c0d2f84`, separated by semicolons; "" of ours alone."""
    parts = [(name, made) for name, made in sorted(plugins.items()) if not name.startswith("kernel ")]
    return "; ".join(f"{name} of {made['from']} {made['sha256']}" for name, made in parts)


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
        "metrics": json.dumps(test.get("metrics", {}), separators=(",", ":")),  # the first results have none
        "validation": result["validation"]["accuracy"],
        "in_distribution": result["in_distribution"]["accuracy"],
        "train_seconds": result["seconds"]["train"],
        "score_seconds": result["seconds"]["score"],
        "backends": " ".join(result["backends"]),
    }


def _first_step(history: list[dict[str, Any]], threshold: float) -> int | None:
    """Of the first validation at or above a threshold; None: there was none such."""
    validated = ((line["step"], line["validation"]) for line in history if "validation" in line)
    return next((step for step, accuracy in sorted(validated) if accuracy >= threshold), None)


def collect(results: Path) -> pd.DataFrame:
    """records.csv brought up to date with the runs beside it, sorted by run, and as a frame."""
    records = known(results)
    if not records:
        raise ValueError(f"no finished runs under {results}{hint(results)}")
    return keep(results, records)


def known(results: Path) -> dict[str, Record]:
    """Every record by its run's id: those of records.csv, brought up to date with the runs beside it."""
    records = recorded(results / "records.csv")
    for config in sorted(results.glob("runs/*/config.json")):
        record = Record.of(RunFolder(results, config.parent.name))
        if record is not None:
            records[record.run_id] = record
    return records


def find_record(folders: Sequence[Path], run_id: str) -> tuple[Path, Record]:
    """A run's record by its id, or by any part that only one has, and the first of the folders that knows it."""
    for results in folders:
        records = known(results)
        matches = [run_id] if run_id in records else sorted(name for name in records if run_id in name)
        if len(matches) > 1:
            more = " .." if matches[4:] else ""
            raise ValueError(f"{run_id!r} fits {len(matches)} records: {', '.join(matches[:4])}{more}")
        if matches:
            return results, records[matches[0]]
    raise ValueError(f"no record of a run {run_id!r} in {' or '.join(map(str, folders))}")


def keep(results: Path, records: dict[str, Record]) -> pd.DataFrame:
    """Write records.csv anew, sorted by run, unless it is as it was or is published; the records as a frame."""
    frame = _frame([records[run_id] for run_id in sorted(records)])
    file, content = results / "records.csv", frame.to_csv(index=False, lineterminator="\n").encode()
    if not is_read_only(file) and not (file.exists() and file.read_bytes() == content):
        write_atomically(file, content)
    return frame


def stored(path: Path) -> pd.DataFrame:
    """The records of a records.csv as they stand."""
    return _frame(list(recorded(path).values()))


def recorded(path: Path) -> dict[str, Record]:
    """The records of a records.csv by their runs' ids; none where there is no such file."""
    if not path.exists():
        return {}
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    try:
        records = [Record.model_validate({k: v for k, v in row.items() if v != ""}) for row in rows]
    except ValidationError as error:
        raise ValueError(f"{path} is no table of records: {_complaint(error)}") from None
    return {record.run_id: record for record in records}


def _complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"column.{'.'.join(map(str, first['loc']))}: {first['msg']}, not {first['input']!r}"


def _frame(records: list[Record]) -> pd.DataFrame:
    columns = list(Record.model_fields)
    if not any(record.sources for record in records):
        columns.remove("sources")  # where no plugin made anything
    frame = pd.DataFrame([record.model_dump() for record in records], columns=columns)
    whole = (
        "parameters",
        "state_bytes",
        "steps_to_95",
        "steps_to_99",
    )  # integers stay integers beside a run that has none
    return frame.astype(dict.fromkeys(whole, "Int64"))
