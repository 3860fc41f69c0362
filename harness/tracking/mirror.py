"""Runs copied to Weights & Biases while they train, by a process of their own that a run never waits for.

    ladder run parity lstm --exec.wandb online

Training itself never calls wandb. The process beside it (harness/tracking/wandb.py) follows the folders; when the runs
end it has `PATIENCE` seconds to finish, then it is killed. Whatever goes wrong in it is one line on stderr, after which
nothing more is copied from the training process.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.run import Run

PATIENCE = 15.0  # seconds that a training process waits for its copies at most, once: it makes no more after that
_trouble: list[str] = []  # what went wrong first in this process


@dataclass(frozen=True, kw_only=True)
class Card:
    """What W&B is told of a run before its first step."""

    run_id: str
    name: str
    tags: tuple[str, ...]
    config: dict[str, Any]
    """The canonical tree, the labels by which tables find the run, and its provenance."""
    group: str = ""
    """The sweep's name."""

    @classmethod
    def of(cls, run: "Run", provenance: dict[str, Any], *, group: str = "") -> "Card":
        from chomsky_ladder.harness.config.protocols import columns_of  # with torch

        return cls._made(run.run_id, run.plain(), columns_of(run), provenance, family=run.model.family, group=group)

    @classmethod
    def read(cls, folder: RunFolder, *, group: str = "") -> "Card":
        """The card of a run whose code may be another by now: without a family then, or labels if it has no end."""
        from chomsky_ladder.harness.config.protocols import columns_of
        from chomsky_ladder.harness.config.run import Run  # with torch

        tree, end = folder.config(), end_of(folder) or {}
        try:
            run = Run.from_plain(tree)
            named, family = columns_of(run), run.model.family
        except ValueError:
            named, family = {}, ""
        return cls._made(folder.path.name, tree, {**named, **end}, end.get("provenance"), family=family, group=group)

    @classmethod
    def _made(
        cls,
        run_id: str,
        tree: dict[str, Any],
        labels: dict[str, Any],
        provenance: dict[str, Any] | None,
        *,
        family: str,
        group: str,
    ) -> "Card":
        task, model = tree["task"]["name"], tree["model"]["name"]
        named = {f"{key}_label": labels[key] for key in ("protocol", "task", "model") if key in labels}
        config = {**tree, **named, "provenance": provenance}
        tags = [tag[:64] for tag in (labels.get("level"), family, tree["protocol"]) if tag]  # W&B takes no longer ones
        name = f"{task}-{model}-{tree['seed']}"
        return cls(run_id=run_id, name=name, tags=tuple(dict.fromkeys(tags)), config=config, group=group)


def end_of(folder: RunFolder) -> dict[str, Any] | None:
    """The record of a run that has one, whichever it is, with a status."""
    for name, status in (("result", "done"), ("failure", "failed"), ("preempted", "preempted")):
        end = read_json(folder.path / f"{name}.json")
        if end is not None:
            return {"status": status, **end}
    return None


def place_of(results: Path) -> Path:
    """The folder in which wandb keeps its own."""
    return Path(os.environ.get("WANDB_DIR") or results)


def how_to_send(results: Path) -> str:
    """Return the command that sends the copies written offline."""
    return f"to send the copies to W&B: wandb sync {shlex.quote(str(place_of(results)))}/wandb/offline-run-*"


@contextmanager
def mirrored(
    runs: Sequence[tuple["Run", dict[str, Any]]],
    results: Path,
    *,
    mode: Literal["off", "online", "offline"],
    group: str = "",
    patience: float = PATIENCE,
) -> Iterator[None]:
    """Copy runs, given with their provenance, while the block trains them; its end waits `patience` at most."""
    mirror = None
    if mode != "off" and runs and not _trouble:
        try:
            cards = [asdict(Card.of(run, provenance, group=group)) for run, provenance in runs]
            mirror = _Mirror({"cards": cards, "results": str(results), "mode": mode, "patience": patience})
        except Exception as error:  # whatever it is, the runs go on
            _say(line(error))
    try:
        yield
    finally:
        if mirror is not None:
            mirror.close(patience)


def _say(what: str) -> None:
    """The first trouble of this process, in one line."""
    if not _trouble:
        _trouble.append(what)
        with suppress(OSError, ValueError):  # of a stderr that is gone
            print(f"W&B is left alone from here on: {what} (`ladder wandb sync` catches up)", file=sys.stderr)


def line(error: BaseException) -> str:
    """What went wrong, for a person."""
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class _Mirror:
    """The process that copies: it reads its order, looks at the folders, and ends after the lifeline has closed."""

    def __init__(self, order: dict[str, Any]) -> None:
        root = str(Path(__file__).parents[3])  # that the package is imported from
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        read_end, self._lifeline = os.pipe()
        try:
            with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
                json.dump(order, file)
                file.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "chomsky_ladder.harness.tracking.wandb", str(read_end)],
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[read_end],
                    start_new_session=True,  # a Ctrl-C is for the run
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(read_end)
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for words in said:
                _say(words.decode(errors="replace").strip())

    def close(self, patience: float) -> None:
        os.close(self._lifeline)
        try:
            code = self._process.wait(patience)
            late = ""
        except subprocess.TimeoutExpired:
            code, late = 1, f"it was not done {patience:g} s after the runs"
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._reader.join(1.0)
        if code:
            _say(late or f"its process ended with {code}")
