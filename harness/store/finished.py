"""What a finished run left, as it was written and as its config says; anything else is refused by name.

    result.json     {.., "seconds": {..}, "sha256": "8d1f0c.."}

The digest is that of result.json, with zeros in the digest's own place, and of metrics.jsonl. Results from before there
was one are taken without. Names, seed, rate, steps, versions and settings must be those of config.json beside them, as
far as that can be told without the code of task and model. Nothing here needs torch.
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
_held: dict[Path, tuple[_Stamp, bool]] = {}  # runs found to be whole: when they changed, whether they have a digest
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n}\n\Z')
_SEAL_BYTES = 100  # at the end of a result.json, in which it is


def sealed(result: Mapping[str, Any], metrics: Path | None) -> bytes:
    """The bytes of a result.json, with its digest; without metrics, those of a failure.json."""
    tree = {**result, KEY: _BLANK}
    blank = (json.dumps(tree, indent=1) + "\n").encode()
    return _SEAL.sub(
        lambda found: found[0].replace(found[1], _digest(blank, metrics and _metrics(metrics.parent))), blank
    )


def finished(folder: Path) -> dict[str, Any] | None:
    """The result of a run's folder, None where there is none; ValueError where it is not the run's, or damaged."""
    return finished_with_metrics(folder)[0]


def finished_with_metrics(folder: Path) -> tuple[dict[str, Any] | None, bytes | None]:
    """The result, and the metrics that it was held to; None for those of a result that has no digest."""
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
    """The failure of a run's folder, None where there is none; ValueError where it is not as it was written."""
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
    """Whether there is a result that can be taken for the run's; looked at again only where its files have changed."""
    try:
        return (folder in _held and _held[folder][0] == _stamp(folder)) or finished(folder) is not None
    except (OSError, ValueError):
        return False


def is_sealed(folder: Path) -> bool:
    """Whether a run that was found to be finished has a digest, so that its metrics are as they were written."""
    return folder in _held and _held[folder][1]


def _stamp(folder: Path) -> _Stamp:
    stamps: _Stamp = []
    for name in ("result.json", "metrics.jsonl", "config.json"):
        try:
            seen = os.stat(f"{folder}/{name}")  # noqa: PTH116  ten thousand of them
            stamps.append((seen.st_ino, seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size))
        except FileNotFoundError:
            stamps.append(None)
    return stamps


def refuse_another(folder: Path, result: Mapping[str, Any]) -> None:
    """Refuse a result, or a failure, that is not of the config beside it."""
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
    """Hold a result to its digest; the metrics that are in it, None where there are none."""
    found = _SEAL.search(content, max(0, len(content) - _SEAL_BYTES))
    metrics = _metrics(folder)
    if found is None or _digest(_blanked(content, found), metrics) != found[1]:
        raise ValueError(
            f"{folder}: result.json or metrics.jsonl is not as the run wrote it: their digest does not fit; "
            f"{_what_to_do(folder)}"
        )
    return metrics


def _blanked(content: bytes, found: re.Match[bytes]) -> bytes:
    """The content with zeros in its digest's place."""
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
    """In what a result is not of a config; nothing where it is."""
    identity = Identity.of(result)
    pairs = {
        "protocol": (identity.protocol_name, config["protocol"]),
        "task": (identity.task_name, config["task"]["name"]),
        "model": (identity.model_name, config["model"]["name"]),
        "seed": (result["seed"], config["seed"]),
        "lr": (result["lr"], config["train"]["lr"]),
    }
    if isinstance(result.get("settings"), dict):  # not read from a label, which shortens some
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
