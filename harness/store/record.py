"""Records: a line of records.csv for every run that is done or failed, made from the run's folder and nothing else.

`collect` updates records.csv from the folders beside it, except in the published folder. Records of runs whose folders
are gone or on another machine stay. Nothing here needs torch.
"""

import bz2
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from json import JSONEncoder
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from chomsky_ladder.harness.store import records_file
from chomsky_ladder.harness.store.files import READ_ONLY
from chomsky_ladder.harness.store.finished import finished_with_metrics, refuse_another
from chomsky_ladder.harness.store.folder import RunFolder, lines_of, validations_alone
from chomsky_ladder.harness.store.harmless import cell_of, csv_of
from chomsky_ladder.harness.store.labels import COLUMNS as IDENTITY
from chomsky_ladder.harness.store.labels import TRAITS, Identity
from chomsky_ladder.harness.store.made_with import sources_text
from chomsky_ladder.harness.store.places import hint, is_read_only, published_results
from chomsky_ladder.harness.store.ranges import (
    Amount,
    Bins,
    Chance,
    Count,
    Id,
    Lengths,
    Loss,
    Name,
    Numbers,
    Rate,
    Scaled,
    Share,
    refuse_truths,
)
from chomsky_ladder.harness.store.status import run_folders

_ERROR = 2000  # characters of an error that are kept; failure.json has all of it
_compact = JSONEncoder(separators=(",", ":")).encode


class Record(BaseModel):
    """A run's line in records.csv. Accuracies are those of the last step; missing ones are empty."""

    model_config = ConfigDict(extra="forbid")

    run_id: Id
    protocol: Name
    task: Name
    level: Name
    model: Name
    protocol_name: Name
    task_name: Name
    model_name: Name
    settings: Name
    traits: Name = ""
    transition: Name = ""
    demand: Name = ""
    lr: Rate
    seed: Count
    status: Literal["done", "diverged", "failed"]
    steps: Count
    stopped_early: bool = False
    tokens_per_step: Amount | None = None
    steps_to_95: Count | None = None
    steps_to_99: Count | None = None
    parameters: Count | None = None
    state_bytes: Count | None = None
    s_rand: Chance | None = None
    best_constant: Share | None = None
    content_free: Share | None = None
    test: Share | None = None
    test_scaled: Scaled | None = None
    test_exact: Share | None = None
    test_hits: Share | None = None
    test_loss: Loss = None
    test_bins: Bins = "{}"
    content_free_bins: Bins = "{}"
    extrapolation: Lengths = "{}"
    metrics: Numbers = "{}"
    validation: Share | None = None
    in_distribution: Share | None = None
    train_seconds: Amount | None = None
    score_seconds: Amount | None = None
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
        """Fill in names and settings of an old record from its labels, and make its labels anew."""
        if not {"protocol", "task", "model"} <= set(values):
            return values  # refused later, for what it lacks
        refuse_truths(values)
        identity = Identity.of(values)
        traits = values.get("traits") or TRAITS.get(identity.task_name, "")
        return values | identity.columns_and_labels() | {"traits": traits}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        missing = [name for name in ("test", "validation", "in_distribution") if getattr(self, name) is None]
        if self.status == "done" and missing:
            raise ValueError(f"a run that is done has {' and '.join(missing)}")
        return self

    @classmethod
    def of(cls, folder: RunFolder) -> "Record | None":
        """Return the record of a run that is done or failed, from its folder alone; None if the run is not finished."""
        result, metrics = finished_with_metrics(folder.path)
        result = result or _failure(folder)
        if result is None:
            return None
        try:
            if metrics is None:
                record = cls._made(result, folder.history())
            else:  # a result with a digest: its other lines are known to be whole
                record = cls._made(result, lines_of(validations_alone(metrics), folder.metrics))
        except ValidationError as error:
            raise ValueError(f"{folder.path} holds no result of a run: {_complaint(error)}") from None
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{folder.path} holds no result of a run") from None
        return record

    @classmethod
    def _made(cls, result: dict[str, Any], history: list[dict[str, Any]]) -> "Record":
        later = (*IDENTITY, "traits", "transition", "demand")  # the first results only have labels
        names = ("run_id", "protocol", "task", "level", "model", *later, "lr", "seed")
        head = {name: result[name] for name in names if name in result or name not in later}
        made = result["provenance"]
        code = {"commit": made["commit"], "dirty": made["dirty"], "sources": sources_text(made.get("plugins", {}))}
        if "error" in result:
            return cls(**head, **code, status="failed", steps=0, error=result["error"][:_ERROR])
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


def _failure(folder: RunFolder) -> dict[str, Any] | None:
    failure = folder.failure()
    if failure is not None and "run_id" in failure:
        refuse_another(folder.path, failure)
    return failure


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
        "test_bins": _compact(test["bins"]),
        "content_free_bins": _compact(test["content_free_bins"]),
        "extrapolation": _compact(longer),
        "metrics": _compact(test.get("metrics", {})),  # the first results have none
        "validation": result["validation"]["accuracy"],
        "in_distribution": result["in_distribution"]["accuracy"],
        "train_seconds": result["seconds"]["train"],
        "score_seconds": result["seconds"]["score"],
        "backends": " ".join(result["backends"]),
    }


def _first_step(history: list[dict[str, Any]], threshold: float) -> int | None:
    """Return the step of the first validation at or above a threshold, or None."""
    validated = ((line["step"], line["validation"]) for line in history if "validation" in line)
    return next((step for step, accuracy in sorted(validated) if accuracy >= threshold), None)


def collect(results: Path) -> pd.DataFrame:
    """Update records.csv with the runs beside it. Return it as a frame, sorted by run."""
    frame, left_out = _collected(results)
    if frame is None:
        what = "; ".join(list(left_out.values())[:1]) or f"no finished runs under {results}"
        raise ValueError(f"{what}{hint(results)}")
    return frame


def collect_if_any(results: Path) -> pd.DataFrame | None:
    """Update records.csv like `collect`. Return None if no run has a record yet."""
    return _collected(results)[0]


def _collected(results: Path) -> tuple[pd.DataFrame | None, dict[str, str]]:
    found, left_out = of_runs(results)
    stored = recorded(results / "records.csv")
    say_left_out(left_out, stored)
    return (keep(results, found) if stored or found else None), left_out


def known(results: Path) -> dict[str, Record]:
    """Return every record by its run's id, after an update with the runs beside records.csv."""
    found, left_out = of_runs(results)
    stored = recorded(results / "records.csv")
    say_left_out(left_out, stored)
    return stored | found


def of_runs(results: Path) -> tuple[dict[str, Record], dict[str, str]]:
    """Return the records of runs with folders, by id, and the reasons why damaged runs have none."""
    found: dict[str, Record] = {}
    left_out: dict[str, str] = {}
    for path in run_folders(results):
        try:
            record = Record.of(RunFolder(results, path.name))
        except (ValueError, OSError) as error:
            left_out[path.name] = str(error)
            continue
        if record is not None:
            found[record.run_id] = record
    return found, left_out


def say_left_out(left_out: Mapping[str, str], stored: Collection[str]) -> None:
    """Print the damaged runs. Each only loses its own row."""
    for run_id, why in left_out.items():
        instead = "; its line in records.csv stands as it was" if run_id in stored else ""
        print(f"ladder: {run_id} is left out: {why}{instead}", file=sys.stderr)


def find_record(folders: Sequence[Path], run_id: str) -> tuple[Path, Record]:
    """Return a run's record and the first folder that has it. Any part of the id is enough if only one run has it."""
    for results in folders:
        records = known(results)
        matches = [run_id] if run_id in records else sorted(name for name in records if run_id in name)
        if len(matches) > 1:
            more = " .." if matches[4:] else ""
            raise ValueError(f"{run_id!r} fits {len(matches)} records: {', '.join(matches[:4])}{more}")
        if matches:
            return results, records[matches[0]]
    elsewhere = "" if published_results() else "; published records are in a clone: --results CLONE/results"
    raise ValueError(f"no record of a run {run_id!r} in {' or '.join(map(str, folders))}{elsewhere}")


def keep(results: Path, found: Mapping[str, Record]) -> pd.DataFrame:
    """Put these records into records.csv in place of its own of the same runs. Return it as a frame.

    The file is read again under its lock, so that lines added by other processes are kept. It is written only if it
    changes and may be written: a published or read-only folder stays as it is.
    """
    file = results / "records.csv"
    before = _with(file, found)
    frame = _frame(before)
    if is_read_only(file) or records_file.holds(file, content := _csv(frame)):
        return frame
    try:
        with records_file.rewriting(file):
            records = _with(file, found)
            if records != before:
                frame = _frame(records)
                content = _csv(frame)
            if not records_file.holds(file, content):
                records_file.write(file, content, count=len(records))
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
    return frame


def _with(file: Path, found: Mapping[str, Record]) -> list[Record]:
    records = recorded(file) | dict(found)
    return [records[run_id] for run_id in sorted(records)]


def _csv(frame: pd.DataFrame) -> bytes:
    return csv_of(frame).encode()


def stored(path: Path) -> pd.DataFrame:
    """Return the records of a records.csv as they stand."""
    return _frame(list(recorded(path).values()))


def recorded(path: Path) -> dict[str, Record]:
    """Return the records of a records.csv, compressed or not, by run id; none if there is no such file."""
    content = records_file.content_of(path)
    return dict(_recorded(path, bz2.decompress(content) if content and path.suffix == ".bz2" else content))


@lru_cache(maxsize=2)
def _recorded(path: Path, content: bytes | None) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for number, row in enumerate(records_file.rows_of(path, content), start=1):
        try:
            record = Record.model_validate({k: cell_of(v) for k, v in row.items() if v != ""})
        except ValidationError as error:
            run_id = row.get("run_id", "")
            advice = f"; `ladder clean --records {run_id}` takes it out" if run_id else ""
            raise ValueError(f"{path} is no table of records: line {number}, {_complaint(error)}{advice}") from None
        if records.setdefault(record.run_id, record) != record:
            raise ValueError(f"{path} is no table of records: line {number} has other numbers of {record.run_id} again")
    return records


def _complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    if not first["loc"]:
        return str(first["msg"])
    given = repr(first["input"])
    return f"column.{'.'.join(map(str, first['loc']))}: {first['msg']}, not {given[:80]}{'..' if given[80:] else ''}"


def _frame(records: list[Record]) -> pd.DataFrame:
    columns = list(Record.model_fields)
    if not any(record.sources for record in records):
        columns.remove("sources")  # no plugin made anything
    frame = pd.DataFrame([record.model_dump() for record in records], columns=columns)
    whole = (
        "parameters",
        "state_bytes",
        "steps_to_95",
        "steps_to_99",
    )  # integers stay integers even if some runs have none
    return frame.astype(dict.fromkeys(whole, "Int64"))
