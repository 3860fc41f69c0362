"""Runs copied to Weights & Biases from their folders, by a process of their own that a run never waits for.

    ladder run parity lstm --exec.wandb online

The copy is made of config.json, metrics.jsonl and result.json, so `ladder wandb sync` makes the same one at any later
time: a run's id there is its id here, and of its history only the lines that are not there yet are sent. Training
itself never calls wandb. The process beside it follows the folders; when the runs end it has `PATIENCE` seconds to
finish, then it is killed. Whatever goes wrong in it is one line on stderr, after which nothing more is copied from the
training process.

The project is $WANDB_PROJECT, else "chomsky-ladder"; key, server and entity are those wandb finds by itself.
"""

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.files import read_json
from harness.records import RunFolder

if TYPE_CHECKING:
    from harness.config import Run

Mode = Literal["online", "offline"]

PROJECT = "chomsky-ladder"  # without $WANDB_PROJECT
PATIENCE = 15.0  # seconds that a training process waits for its copies at most, once: it makes no more after that
_LOOKS_EVERY = 1.0  # seconds between two looks at the folders
_STARTS_WITHIN = 60.0  # seconds that wandb may take to begin a run; nobody waits for them
_SYNCS_WITHIN = 120.0  # seconds that `sync` waits for the end of a run's upload
_LABELS = ("run_id", "protocol", "task", "level", "model", "lr", "seed")
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
        from harness.outcome import labels  # with torch

        return cls._made(run.run_id, run.plain(), labels(run), provenance, family=run.model.family, group=group)

    @classmethod
    def read(cls, folder: RunFolder, *, group: str = "") -> "Card":
        """The card of a run whose code may be another by now: without a family then, or labels if it has no end."""
        from harness.config import Run  # with torch
        from harness.outcome import labels

        tree, end = folder.config(), _end_of(folder) or {}
        try:
            run = Run.from_plain(tree)
            named, family = labels(run), run.model.family
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
        root = str(Path(__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        read_end, self._lifeline = os.pipe()
        try:
            with tempfile.TemporaryFile("w+") as file:
                json.dump(order, file)
                file.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "harness.tracking", str(read_end)],
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


class Copy:
    """One run at W&B."""

    def __init__(self, card: Card, folder: RunFolder, *, mode: Mode, finish_within: float) -> None:
        self._folder = folder
        head = {"name": card.name, "group": card.group or None, "tags": list(card.tags), "config": card.config}
        self._run = begun(card.run_id, folder.path.parents[1], mode=mode, finish_within=finish_within, **head)
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._sent = self._run.starting_step  # lines that are there: each is one row

    def look(self, *, last: bool) -> bool:
        """Send what is new; whether the run has ended, or this was the last look."""
        end = _end_of(self._folder)  # written after the last line
        lines = self._folder.history()
        for line in lines[self._sent :]:
            self._run.log(line)
        self._sent = max(self._sent, len(lines))
        if end is None and not last:
            return False
        self._finish(end)
        return True

    def _finish(self, end: dict[str, Any] | None) -> None:
        end = end or {"status": "unfinished"}
        about = {key: end[key] for key in ("provenance", "numerics", "fingerprint", "backends") if key in end}
        self._run.config.update(about, allow_val_change=True)
        left_out = {*about, *_LABELS, "traceback"}
        self._run.summary.update({"final": _plain({k: v for k, v in end.items() if k not in left_out})})
        if end["status"] == "preempted":
            self._run.mark_preempting()
        self._run.finish(exit_code=0 if end["status"] in ("done", "diverged") else 1)


def _end_of(folder: RunFolder) -> dict[str, Any] | None:
    """The record of a run that has one, whichever it is, with a status."""
    for name, status in (("result", "done"), ("failure", "failed"), ("preempted", "preempted")):
        end = read_json(folder.path / f"{name}.json")
        if end is not None:
            return {"status": status, **end}
    return None


def _plain(value: Any) -> Any:
    """Without the counts behind a score, and with keys that W&B takes for one: a dot would part them."""
    if not isinstance(value, dict):
        return value
    return {key.replace("..", "-").replace(".", "_"): _plain(v) for key, v in value.items() if key != "counts"}


def begun(
    run_id: str,
    results: Path,
    *,
    mode: Mode,
    finish_within: float,
    name: str,
    group: str | None = None,
    tags: Sequence[str] = (),
    config: dict[str, Any] | None = None,
    job_type: str | None = None,
) -> Any:
    """A W&B run that sends what it is given and nothing of its own: no code, console, git state or host statistics."""
    import wandb

    settings = wandb.Settings(
        console="off",
        disable_git=True,
        finish_timeout=finish_within,
        finish_timeout_raises=True,
        init_timeout=_STARTS_WITHIN,
        save_code=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        id=run_id,
        name=name,
        group=group,
        tags=list(tags),
        config=config,
        job_type=job_type,
        mode=mode,
        dir=os.environ.get("WANDB_DIR") or results,
        reinit="create_new",
        resume="allow",
        settings=settings,
    )


def sync(folders: Sequence[RunFolder], *, mode: Mode, group: str = "") -> Iterator[str]:
    """Copy runs as their folders stand, one after the other; the id of each that is there."""
    for folder in folders:
        copy = Copy(Card.read(folder, group=group), folder, mode=mode, finish_within=_SYNCS_WITHIN)
        copy.look(last=True)
        yield folder.path.name


def sync_tables(results: Path, *, mode: Mode) -> list[str]:
    """Copy records.csv and tables/*.csv as tables of a run of their own, and as an artifact; their names."""
    import wandb

    files = [file for file in (results / "records.csv", *sorted((results / "tables").glob("*.csv"))) if file.exists()]
    if not files:
        raise ValueError(f"no tables under {results}: `ladder table` makes them")
    digest = hashlib.sha256(b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)).hexdigest()[:10]
    run = begun(f"tables-{digest}", results, mode=mode, finish_within=_SYNCS_WITHIN, name="tables", job_type="tables")
    if run.starting_step == 0:  # else these very tables are there
        run.log({file.stem: _table(file) for file in files})
        artifact = wandb.Artifact("tables", type="tables")
        for file in files:
            artifact.add_file(str(file))
        run.log_artifact(artifact)
    run.finish()
    return [file.name for file in files]


def _table(path: Path) -> Any:
    import wandb

    with path.open(newline="") as file:
        columns, *rows = csv.reader(file)
    return wandb.Table(columns=columns, data=[[_cell(word) for word in row] for row in rows], allow_mixed_types=True)


def _cell(word: str) -> str | float | None:
    try:
        return float(word)
    except ValueError:
        return word or None


def own_entity() -> str:
    """Whose runs those of the key at hand are."""
    import wandb

    return wandb.Api(timeout=30).default_entity


def finished() -> None:
    """End wandb's own process, if it is there and has not crashed."""
    if "wandb" in sys.modules:
        with suppress(Exception):
            sys.modules["wandb"].teardown()


def _follow(order: dict[str, Any], over: threading.Event) -> None:
    """Copy runs until each has ended or the training process has."""
    copies = []
    for card in order["cards"]:
        folder = RunFolder(Path(order["results"]), card["run_id"])
        copies.append(Copy(Card(**card), folder, mode=order["mode"], finish_within=order["patience"]))
    while copies:
        last = over.wait(_LOOKS_EVERY)
        copies = [copy for copy in copies if not copy.look(last=last)]
    finished()


def _end_with(lifeline: int, over: threading.Event, patience: float) -> None:
    """Wait for the training process to close its end of the pipe, or to die; then for what is left to be sent."""
    os.read(lifeline, 1)
    over.set()
    time.sleep(patience + 1)  # that process is patient for a second less, if it lives
    os._exit(1)


def main() -> None:
    """The process beside a training process."""
    order, over = json.load(sys.stdin), threading.Event()
    said = os.dup(1)
    os.dup2(2, 1)  # wandb's own words are for nobody
    watch = threading.Thread(target=_end_with, args=(int(sys.argv[1]), over, order["patience"]), daemon=True)
    watch.start()
    try:
        _follow(order, over)
    except Exception as error:
        os.write(said, f"{line(error)}\n".encode())
        os._exit(1)  # what wandb does at exit waits for the server


if __name__ == "__main__":
    main()
