"""Copy runs to Weights & Biases while they train, in a separate process that a run never waits for.

    ladder run parity lstm --exec.wandb online

Training itself never calls wandb. The other process (harness/tracking/wandb.py) follows the folders. When the runs end
it has `PATIENCE` seconds to finish, then it is killed. If anything goes wrong in it, one line is printed on stderr, and
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

PATIENCE = 15.0  # seconds that a training process waits for its copies, once: it makes no more after that
_trouble: list[str] = []  # the first error in this process


@dataclass(frozen=True, kw_only=True)
class Card:
    """The description of a run for W&B before its first step."""

    run_id: str
    name: str
    tags: tuple[str, ...]
    config: dict[str, Any]
    """The canonical tree, the labels by which tables find the run, and its provenance."""
    group: str = ""
    """The sweep's name."""

    @classmethod
    def of(cls, run: "Run", provenance: dict[str, Any], *, group: str = "") -> "Card":
        from chomsky_ladder.harness.config.protocols import columns_of  # imports torch

        return cls._made(run.run_id, run.plain(), columns_of(run), provenance, family=run.model.family, group=group)

    @classmethod
    def read(cls, folder: RunFolder, *, group: str = "") -> "Card":
        """Return the card of a run. If its code has changed, it has no family, and an unfinished run no labels."""
        from chomsky_ladder.harness.config.protocols import columns_of
        from chomsky_ladder.harness.config.run import Run  # imports torch

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
        tags = [tag[:64] for tag in (labels.get("level"), family, tree["protocol"]) if tag]  # at most 64 in W&B
        name = f"{task}-{model}-{tree['seed']}"
        return cls(run_id=run_id, name=name, tags=tuple(dict.fromkeys(tags)), config=config, group=group)


def end_of(folder: RunFolder) -> dict[str, Any] | None:
    """Return the record of a run that has one, in any status."""
    for name, status in (("result", "done"), ("failure", "failed"), ("preempted", "preempted")):
        end = read_json(folder.path / f"{name}.json")
        if end is not None:
            return {"status": status, **end}
    return None


def place_of(results: Path) -> Path:
    """Return the folder for wandb's own files."""
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
    """Copy runs, given with their provenance, while the block trains them. Its end waits `patience` seconds at most."""
    mirror = None
    if mode != "off" and runs and not _trouble:
        try:
            cards = [asdict(Card.of(run, provenance, group=group)) for run, provenance in runs]
            mirror = _Mirror({"cards": cards, "results": str(results), "mode": mode, "patience": patience})
        except Exception as error:  # in any case, the runs go on
            _say(line(error))
    try:
        yield
    finally:
        if mirror is not None:
            mirror.close(patience)


def _say(what: str) -> None:
    """Print the first error of this process, in one line."""
    if not _trouble:
        _trouble.append(what)
        with suppress(OSError, ValueError):  # stderr may be closed
            print(f"W&B is left alone from here on: {what} (`ladder wandb sync` catches up)", file=sys.stderr)


def line(error: BaseException) -> str:
    """Return an error as one readable line."""
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class _Mirror:
    """Starts the copying process, which reads its order, follows the folders, and ends after its pipe closes."""

    def __init__(self, order: dict[str, Any]) -> None:
        root = str(Path(__file__).parents[3])  # from which the package is imported
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
