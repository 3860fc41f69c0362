"""Verify a finished run of another folder, as far as this is possible without training it again.

Its config must hash to its id, its result must belong to that config, its numbers must follow from its counts, and its
checkpoints must match their digests and be its own. Nothing that the folder names is imported.
"""

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.record import Record

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.run import Run


def forget() -> None:
    """Forget cached configs: since the last merge, a name may stand for another class."""
    for known in (_run_of, _columns_of):
        known.cache_clear()


def verify(folder: RunFolder) -> Record:
    """Return the record of a finished run. Refuse it if config, result or checkpoints do not belong to the run."""
    from chomsky_ladder.harness.store import checkpoint  # imports torch, which not every merge needs

    record = Record.of(folder)
    if record is None:
        raise ValueError("it has no result")
    run_id, tree = folder.path.name, read_json(folder.path / "config.json")
    try:
        if tree["eval"].get("file_sha256"):
            tree["eval"]["file"] = str(folder.path / "strings")  # no file: the hash stands for it
        if tree["task"].get("file_sha256"):
            tree["task"]["file"] = str(folder.path / "text")
        seed = tree.pop("seed")
        config = json.dumps(tree)
        run = _run_of(config).with_seed(seed)
    except (AttributeError, KeyError, TypeError):
        raise ValueError("its config.json is no run's") from None
    if run.run_id != run_id:
        raise ValueError(f"its config is that of {run.run_id}")
    _refuse_other_columns(record, {**_columns_of(config), "seed": seed})
    refuse_unscaled(record)
    _refuse_miscounted(folder, run)
    for path in sorted(folder.path.glob("step_*.ckpt")):
        try:
            content = checkpoint.read(path)
        except checkpoint.DamagedCheckpoint as damage:
            raise ValueError(str(damage)) from None
        if not isinstance(content, dict):
            raise ValueError(f"{path.name} does not hold a run's state")
        if content.get("run_id") != run_id:
            raise ValueError(f"{path.name} is of {content.get('run_id')}")
    return record


@lru_cache(maxsize=64)
def _run_of(config: str) -> "Run":
    """Return the run with seed 0 for a config.json without its seed.

    It is cached, as hundreds of runs only differ in seed.
    """
    from chomsky_ladder.harness.config.run import Run

    return Run.from_plain({**json.loads(config), "seed": 0})


@lru_cache(maxsize=64)
def _columns_of(config: str) -> dict[str, Any]:
    from chomsky_ladder.harness.config.protocols import columns_of

    return columns_of(_run_of(config))


def _refuse_other_columns(record: Record, wanted: dict[str, Any]) -> None:
    """Refuse a record whose names differ from the run's own, unless its protocol now has another version."""
    said = record.model_dump()
    said["settings"] = settings = dict(Identity.of(said).settings)
    version = "protocol.version"
    if settings.get(version, 1) != wanted["settings"].get(version, 1):
        return
    for name in ("protocol_name", "task_name", "model_name", "settings", "level", "lr", "seed"):
        if said[name] != wanted[name]:
            raise ValueError(f"its result is not that of its config: {name} is {said[name]!r}, not {wanted[name]!r}")


def refuse_unscaled(record: Record) -> None:
    """Refuse a scaled accuracy that does not follow from the accuracy and chance."""
    if record.test is None or record.test_scaled is None or record.s_rand is None:
        return
    scaled = (record.test - record.s_rand) / (1 - record.s_rand)
    if not math.isclose(record.test_scaled, scaled, abs_tol=1e-9):
        raise ValueError(f"test_scaled is {record.test_scaled}, and test {record.test} makes {scaled}")


def _refuse_miscounted(folder: RunFolder, run: "Run") -> None:
    """Refuse a result whose numbers do not follow from its counts."""
    from chomsky_ladder.harness.train.outcome import miscounted

    result = folder.result() or {}
    longer = {f"extrapolation {length}": made for length, made in result.get("extrapolation", {}).items()}
    parts = {name: result[name] for name in ("test", "validation", "in_distribution") if name in result}
    for name, made in (parts | longer).items():
        try:
            wrong = miscounted(run, made)
        except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
            wrong = "its counts are no score's"
        if wrong:
            raise ValueError(f"{name}: {wrong}")
