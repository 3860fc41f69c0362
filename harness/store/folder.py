"""The folder of a run: its config, metrics, clocks, checkpoints and, written last, its result.

    results/runs/<run_id>/
        config.json     the run's canonical tree
        metrics.jsonl   a line for every logged step and validation; equal bytes for equal numerics
        timing.jsonl    clocks and speeds, never compared between runs
        step_*.ckpt     the newest checkpoints; after the end, the final one
        result.json     scores, provenance and their digest: its presence means done
        failure.json    instead of a result: the error of a run that broke; the next start tries it again
        preempted.json  instead of a result: the signal and step at which a run was asked to stop

A folder has one writer at a time (harness/store/lock.py).
"""

import errno
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import from_json

from chomsky_ladder.harness.store import lock, records_file
from chomsky_ladder.harness.store.files import (
    appending,
    read_json,
    read_object,
    read_plain,
    refuse_link,
    write_atomically,
)
from chomsky_ladder.harness.store.finished import failed, finished, is_finished, is_sealed, sealed
from chomsky_ladder.harness.store.lock import Busy as Busy
from chomsky_ladder.harness.store.places import published_results, refuse_published


class Filed(Protocol):
    """The part of a run that its folder needs (harness/config/run.py has it all)."""

    def plain(self) -> dict[str, Any]: ...
    def identity(self) -> dict[str, Any]: ...
    @property
    def whereabouts(self) -> tuple[str, ...]: ...
    @property
    def plugins(self) -> list[str]: ...


class RunFolder:
    def __init__(self, results: Path, run_id: str) -> None:
        self.path = results.joinpath("runs", run_id)
        self.metrics = self.path / "metrics.jsonl"
        self._is_held: lock.IsHeld = lambda: True

    def open(self, run: Filed) -> None:
        """Write the config, or check that the existing one is this run's."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("metrics.jsonl", "timing.jsonl"):
            refuse_link(self.path / name)
        config = self.path / "config.json"
        for name in ("failure.json", "preempted.json"):
            (self.path / name).unlink(missing_ok=True)
        if config.exists():
            stored, wanted = flat(self.config()), flat(run.plain())  # the stored one lacks newer defaults
            for name in (*run.whereabouts, "plugins"):
                stored.pop(name, None)
            named = flat(run.identity()).keys() <= stored.keys()
            if not named or any(wanted.get(key) != value for key, value in stored.items()):
                raise ValueError(f"{config} is another run's, or damaged: `ladder clean {self.path.name}` makes room")
        else:
            found = {"plugins": run.plugins} if run.plugins else {}
            write_atomically(config, _pretty({**run.plain(), **found}))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to write here. Raise Busy if another process holds it; refuse a published folder."""
        refuse_published(self.path.parents[1])
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._is_held = stack.enter_context(lock.held(self.path))
            except OSError as error:
                raise ValueError(f"cannot write results to {self.path}: {error.strerror}") from None
            try:
                yield
            finally:
                self._is_held = lambda: True  # another process holds it now, and nobody is asked any more

    def _refuse_lost(self) -> None:
        """Stop a writer whose folder was removed, because another process may be writing one of the same name."""
        if not self._is_held():
            what = "its folder was removed, or made anew, while it trained"
            raise lock.Lost(errno.ESTALE, what, str(self.path))

    def log(self, **values: Any) -> None:
        """Append a line to metrics.jsonl."""
        self._refuse_lost()
        with appending(self.metrics) as file:
            file.write((json.dumps(values, separators=(",", ":")) + "\n").encode())

    def log_time(self, **values: Any) -> None:
        self._refuse_lost()
        with appending(self.path / "timing.jsonl") as file:
            file.write((json.dumps({"unix": round(time.time(), 3), **values}) + "\n").encode())

    def metrics_bytes(self) -> int:
        """Return the length of metrics.jsonl once it is safely on disk. A resumed run cuts the file back to it."""
        self._refuse_lost()
        if not self.metrics.exists():
            return 0
        with appending(self.metrics) as file:
            os.fsync(file.fileno())
            return file.tell()

    def cut_metrics(self, size: int) -> None:
        """Drop the lines after a checkpoint, so that a resumed run writes no step twice."""
        self._refuse_lost()
        with appending(self.metrics) as file:
            if file.tell() < size:
                raise ValueError(
                    f"{self.metrics} has lost lines its checkpoint knows of; remove the folder to start over"
                )
            file.truncate(size)
        self.history()  # a resumed run must be able to read its history at its end

    def expected_seconds(self) -> float | None:
        """Return the seconds that a plan expected for this run."""
        return expected_seconds(self.path.parents[1]).get(self.path.name)

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result with its digest. Return it as the file has it."""
        self._refuse_lost()
        content = sealed(result, self.metrics)
        write_atomically(self.path / "result.json", content)
        return json.loads(content)

    def fail(self, failure: dict[str, Any]) -> None:
        self._refuse_lost()
        texts = {name: _readable(value) for name, value in failure.items() if isinstance(value, str)}
        write_atomically(self.path / "failure.json", sealed(failure | texts, None))

    def preempt(self, signal: str, step: int) -> None:
        self._refuse_lost()
        write_atomically(self.path / "preempted.json", _pretty({"signal": signal, "step": step}))

    def preempted(self) -> dict[str, Any] | None:
        """Return the signal and step at which a run was stopped, if it has not been resumed since."""
        return read_object(self.path / "preempted.json")

    def failure(self) -> dict[str, Any] | None:
        """Return the error of a run that broke and is not being tried again."""
        return failed(self.path)

    def result(self) -> dict[str, Any] | None:
        """Return the result, if the run is done. Refuse a damaged one or another run's."""
        return finished(self.path)

    def is_done(self) -> bool:
        """Return True if there is a valid result of the run. Damage is reported when the result is read."""
        return is_finished(self.path)

    def config(self) -> dict[str, Any]:
        tree = read_object(self.path / "config.json")
        if tree is None:
            raise ValueError(f"{self.path} has no config.json")
        return tree

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, without the torn last line of a killed run."""
        try:
            return lines_of(read_plain(self.metrics), self.metrics)
        except FileNotFoundError:
            return []

    def losses_and_validations(self) -> list[dict[str, Any]]:
        """Return a finished run's validations, each with the loss before it, or its last loss.

        A curve is made of these.
        """
        if not is_sealed(self.path):
            return self.history()
        try:
            content = read_plain(self.metrics)
        except FileNotFoundError:
            return []
        return lines_of(with_losses(content) or content, self.metrics)


def lines_of(content: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a metrics.jsonl."""
    whole, _, _ = content.rpartition(b"\n")
    try:
        lines = from_json(b"[" + whole.replace(b"\n", b",") + b"]")  # parsed at once: a table reads thousands of files
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not {*map(type, lines)} <= {dict} or not {type(line.get("step")) for line in lines} <= {int}:
        raise ValueError(f"{path} is damaged: a line of it is of no step")
    return lines


def validations_alone(content: bytes) -> bytes:
    """Return the lines with a validation, one in ten or a hundred. The metrics are known to be whole."""
    return b"".join(content[start:end] for start, end in _lines_with(b'"validation"', content))


def with_losses(content: bytes) -> bytes:
    """Return the lines with a validation, each after the last line with a loss. The metrics are known to be whole."""
    kept, done = [], 0
    for start, end in _lines_with(b'"validation"', content):
        place = content.rfind(b'"loss"', done, start)
        if place >= 0:
            kept.append(content[content.rfind(b"\n", 0, place) + 1 : content.find(b"\n", place) + 1])
        kept.append(content[start:end])
        done = end
    return b"".join(kept)


def _lines_with(what: bytes, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each line that contains these bytes."""
    place = content.find(what)
    while place >= 0:
        end = content.find(b"\n", place) + 1
        if not end:  # a torn last line
            return
        yield content.rfind(b"\n", 0, place) + 1, end
        place = content.find(what, end)


def plan_file(results: Path) -> Path:
    """Return the path of the file with each run's expected seconds (harness/sweep/plan.py)."""
    return results / "plan.json"


def expected_seconds(results: Path) -> dict[str, float]:
    """Return the seconds that a plan expected for each run. An unreadable plan counts as none."""
    try:
        known = read_json(plan_file(results))
    except (OSError, ValueError):
        return {}
    numbers = known.items() if isinstance(known, dict) else ()
    return {run_id: float(s) for run_id, s in numbers if type(s) in (int, float) and 0 <= s < math.inf}


def find_run(results: Path, run_id: str) -> RunFolder:
    """Return the folder of a run, named by its id or by any part of it that only one run has."""
    folder = results / "runs"
    names = sorted(path.parent.name for path in folder.glob("*/config.json"))
    matches = [run_id] if run_id in names else [name for name in names if run_id in name]
    if not matches:
        count = f"{len(names)} run{'' if len(names) == 1 else 's'} there"
        raise ValueError(f"no run {run_id!r} under {folder} ({count}){_elsewhere(results, run_id)}")
    if len(matches) > 1:
        raise ValueError(f"{run_id!r} fits {len(matches)} runs: {', '.join(matches[:4])}{' ..' if matches[4:] else ''}")
    return RunFolder(results, matches[0])


def _elsewhere(results: Path, run_id: str) -> str:
    """Return advice for a run without a folder. A line of records.csv is enough to run it again."""
    for place in dict.fromkeys((results, published_results() or results)):
        if is_recorded(place, run_id):
            return f"; only its record is in {place / 'records.csv'}: `ladder reproduce {run_id}` runs it again"
    return ""


def is_recorded(results: Path, run_id: str) -> bool:
    """Return True if records.csv has a run with this id, or with this text in its id."""
    try:
        return any(run_id in row.get("run_id", "") for row in records_file.rows(results / "records.csv"))
    except (OSError, ValueError):
        return False


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested tree with dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves


def _readable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON may not contain."""
    return text.encode("utf-8", errors="replace").decode()


def _pretty(tree: dict[str, Any]) -> bytes:
    return (json.dumps(tree, indent=1) + "\n").encode()
