"""The result of a finished run, checked against its digest and its config. Damaged or foreign results are refused.

    result.json     {.., "seconds": {..}, "sha256": "8d1f0c.."}

The digest covers metrics.jsonl and result.json, with zeros in place of the digest. Old results without a digest are
accepted. Names, seed, learning rate, steps, versions and settings must agree with config.json, as far as this can be
checked without the code of task and model. Nothing here needs torch.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from chomsky_ladder.harness.store.files import read_object, read_plain
from chomsky_ladder.harness.store.labels import Identity

KEY = "sha256"
_BLANK = "0" * 64
_Stamp = list[tuple[int, ...] | None]
_held: dict[Path, tuple[_Stamp, bool]] = {}  # runs found whole: when they changed, and whether they have a digest
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n}\n\Z')
_SEAL_BYTES = 100  # the digest is in this many bytes at the end of result.json


def sealed(result: Mapping[str, Any], metrics: Path | None) -> bytes:
    """Return the bytes of a result.json with its digest; without metrics, those of a failure.json."""
    tree = {**result, KEY: _BLANK}
    blank = (json.dumps(tree, indent=1) + "\n").encode()
    return _SEAL.sub(
        lambda found: found[0].replace(found[1], _digest(blank, metrics and _metrics(metrics.parent))), blank
    )


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the result in a run's folder, or None. Raise ValueError if it is damaged or another run's."""
    return finished_with_metrics(folder)[0]


def finished_with_metrics(folder: Path) -> tuple[dict[str, Any] | None, bytes | None]:
    """Return the result and the metrics that its digest covers; None as metrics if it has no digest."""
    path = f"{folder}/result.json"
    try:
        content = read_plain(path)
    except FileNotFoundError:
        return None, None
    try:
        result = from_json(content)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; {_what_to_do(folder)}") from None
    if not isinstance(result, dict):
        raise ValueError(f"{path} is damaged: it holds no object; {_what_to_do(folder)}")
    is_sealed = KEY in result
    metrics = _refuse_changed(folder, content) if is_sealed else None
    if not isinstance(result.get("run_id"), str):
        raise ValueError(f"{folder} holds no result of a run")
    refuse_another(folder, result)
    _held[folder] = _stamp(folder), is_sealed
    return result, metrics


def failed(folder: Path) -> dict[str, Any] | None:
    """Return the failure in a run's folder, or None. Raise ValueError if it was changed."""
    path = folder / "failure.json"
    failure = read_object(path)
    if failure is not None and KEY in failure:
        content = read_plain(path)
        found = _SEAL.search(content)
        if found is None or _digest(_blanked(content, found), None) != found[1]:
            raise ValueError(f"{path} is not as the run wrote it; `ladder clean {folder.name}` removes the run")
        failure.pop(KEY)
    return failure


def is_finished(folder: Path) -> bool:
    """Return True if there is a valid result of the run. Files that have not changed are not read again."""
    try:
        return (folder in _held and _held[folder][0] == _stamp(folder)) or finished(folder) is not None
    except (OSError, ValueError):
        return False


def is_sealed(folder: Path) -> bool:
    """Return True if a finished run has a digest, so that its metrics are known to be unchanged."""
    return folder in _held and _held[folder][1]


def _stamp(folder: Path) -> _Stamp:
    stamps: _Stamp = []
    for name in ("result.json", "metrics.jsonl", "config.json"):
        try:
            seen = os.stat(f"{folder}/{name}")  # noqa: PTH116  faster, for ten thousand of them
            stamps.append((seen.st_ino, seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size))
        except FileNotFoundError:
            stamps.append(None)
    return stamps


def refuse_another(folder: Path, result: Mapping[str, Any]) -> None:
    """Refuse a result or a failure that does not belong to the config beside it."""
    if result.get("run_id") != folder.name:
        raise ValueError(f"{folder} holds the result of another run, {result.get('run_id')}")
    config = read_object(f"{folder}/config.json")
    if config is None:
        raise ValueError(f"{folder} has no config.json")
    try:
        unlike = _unlike(result, config)
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{folder} holds no config or no result of a run") from None
    if unlike:
        raise ValueError(f"{folder}: its result is not that of its config: {unlike}")


def _refuse_changed(folder: Path, content: bytes) -> bytes | None:
    """Check a result against its digest. Return the metrics that it covers, or None if there are none."""
    found = _SEAL.search(content, max(0, len(content) - _SEAL_BYTES))
    metrics = _metrics(folder)
    if found is None or _digest(_blanked(content, found), metrics) != found[1]:
        raise ValueError(
            f"{folder}: result.json or metrics.jsonl is not as the run wrote it: their digest does not fit; "
            f"{_what_to_do(folder)}"
        )
    return metrics


def _blanked(content: bytes, found: re.Match[bytes]) -> bytes:
    """Return the content with zeros in place of its digest."""
    return content[: found.start(1)] + _BLANK.encode() + content[found.end(1) :]


def _metrics(folder: Path) -> bytes | None:
    try:
        return read_plain(f"{folder}/metrics.jsonl")
    except FileNotFoundError:
        return None


def _what_to_do(folder: Path) -> str:
    return f"put it back, or `ladder clean {folder.name}` removes the run"


def _digest(blank: bytes, metrics: bytes | None) -> bytes:
    digest = hashlib.sha256(blank)
    digest.update(b"without metrics" if metrics is None else hashlib.sha256(metrics).digest())
    return digest.hexdigest().encode()


def _unlike(result: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return how a result disagrees with a config; "" if it does not."""
    identity = Identity.of(result)
    pairs = {
        "protocol": (identity.protocol_name, config["protocol"]),
        "task": (identity.task_name, config["task"]["name"]),
        "model": (identity.model_name, config["model"]["name"]),
        "seed": (result["seed"], config["seed"]),
        "lr": (result["lr"], config["train"]["lr"]),
    }
    if isinstance(result.get("settings"), dict):  # otherwise read from a label, which shortens some
        for part in ("task", "model"):
            pairs[f"{part}.version"] = (identity.settings.get(f"{part}.version", 1), config[part].get("version", 1))
        for name, value in identity.settings.items():
            part, _, setting = name.partition(".")
            if part in ("task", "model", "train", "eval"):
                pairs[name] = (value, config[part][setting])
    for name, (there, wanted) in pairs.items():
        if there != wanted or isinstance(there, bool) != isinstance(wanted, bool):
            return f"{name} is {there!r} there and {wanted!r} here"
    steps, planned = result.get("steps", 0), config["train"]["steps"]
    ends_there = result.get("status") != "done" or result.get("stopped_early")
    if not 0 <= steps <= planned or (steps < planned and not ends_there):
        return f"it has {steps} steps of {planned}"
    return ""
