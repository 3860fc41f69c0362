"""A finished run of somebody else's folder, held to all that can be told of it without training it again.

Its config hashes to its id, its result is that config's, its numbers are those of the counts it keeps, its checkpoints
match their digests and are its own. Nothing that the folder names is imported.
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
    """Read every config anew: since the merge before, a name may mean another class."""
    for known in (_run_of, _columns_of):
        known.cache_clear()


def verify(folder: RunFolder) -> Record:
    """The record of a finished run; refused where config, result or checkpoints are not those of the run."""
    from chomsky_ladder.harness.store import checkpoint  # with torch, which a merge that finds nothing new does without

    record = Record.of(folder)
    if record is None:
        raise ValueError("it has no result")
    run_id, tree = folder.path.name, read_json(folder.path / "config.json")
    try:
        if tree["eval"].get("file_sha256"):
            tree["eval"]["file"] = str(folder.path / "strings")  # not there: the hash stands for them
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
    """The run with seed 0 of a config.json without its seed: hundreds of runs differ in that alone."""
    from chomsky_ladder.harness.config.run import Run

    return Run.from_plain({**json.loads(config), "seed": 0})


@lru_cache(maxsize=64)
def _columns_of(config: str) -> dict[str, Any]:
    from chomsky_ladder.harness.config.protocols import columns_of

    return columns_of(_run_of(config))


def _refuse_other_columns(record: Record, wanted: dict[str, Any]) -> None:
    """A record says of what it is as the run says it, unless its protocol is of another version by now."""
    said = record.model_dump()
    said["settings"] = settings = dict(Identity.of(said).settings)
    version = "protocol.version"
    if settings.get(version, 1) != wanted["settings"].get(version, 1):
        return
    for name in ("protocol_name", "task_name", "model_name", "settings", "level", "lr", "seed"):
        if said[name] != wanted[name]:
            raise ValueError(f"its result is not that of its config: {name} is {said[name]!r}, not {wanted[name]!r}")


def refuse_unscaled(record: Record) -> None:
    """A scaled accuracy follows from the accuracy and chance."""
    if record.test is None or record.test_scaled is None or record.s_rand is None:
        return
    scaled = (record.test - record.s_rand) / (1 - record.s_rand)
    if not math.isclose(record.test_scaled, scaled, abs_tol=1e-9):
        raise ValueError(f"test_scaled is {record.test_scaled}, and test {record.test} makes {scaled}")


def _refuse_miscounted(folder: RunFolder, run: "Run") -> None:
    """The numbers of a result are those of the counts it keeps."""
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
