"""Shared code of the tests of faults: a small run and all its files, and processes that can be slowed, stopped and
killed.

The children come from a server that has imported torch once, so that a start costs milliseconds. Each is a separate
process, with its own locks, signals and exit code.
"""

import atexit
import gc
import itertools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.pack import Pack

STEPS = 40
EVERY = 7  # steps between checkpoints
PATIENCE = 90.0  # seconds after which something that should have happened has not
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "chomsky_ladder.harness.sweep.sweep", "chomsky_ladder.harness.cli.parts"])


def the_run(model: str = "lstm", *, seed: int = 0, steps: int = STEPS) -> Run:
    train = Train(steps=steps, batch=8, lengths=(3, 12), lr=1e-2)
    score = Eval(lengths=(8, 16), test=16, validation=16, every=20, extrapolate=(), bins=(8, 16))
    return Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=train, eval=score, seed=seed)


def put_into(results: Path, *, pack: int = 0) -> Exec:
    return Exec(results=results, checkpoint_every=EVERY, log_every=5, pack=pack, device="cpu")


class Outcome(NamedTuple):
    """All that is promised to be the same, whatever happened on the way."""

    metrics: bytes
    record: dict[str, Any]
    tensors: dict[str, Tensor]


def outcome(results: Path, run: Run) -> Outcome:
    folder = RunFolder(results, run.run_id)
    result, content = folder.result(), checkpoint.newest(folder.path)
    assert result is not None and content is not None
    record = {key: value for key, value in result.items() if key not in ("seconds", "provenance", "sha256")}
    moments = {f"{kind} of {name}": v for kind, values in content["optimizer"].items() for name, v in values.items()}
    return Outcome(folder.metrics.read_bytes(), record, content["model"] | moments)


def assert_same(found: Outcome, expected: Outcome, *, but: Sequence[str] = ()) -> None:
    """Bit for bit; `but` names entries of the record that may differ."""
    assert found.metrics == expected.metrics
    assert {k: v for k, v in found.record.items() if k not in but} == {
        k: v for k, v in expected.record.items() if k not in but
    }
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(value, expected.tensors[name]) for name, value in found.tensors.items())


def steps_logged(folder: RunFolder) -> list[int]:
    return [line["step"] for line in folder.history() if "loss" in line]


@dataclass(frozen=True)
class Hindrance:
    """The difficulties that a child meets."""

    pause: float = 0.0
    """Seconds it sleeps after every step."""
    scoring: float = 0.0
    """Seconds it sleeps before it scores a run."""
    dies_at_sync: int = 0
    """The fsync at which it kills itself, with half of what it was writing on the disk; 0 for none."""


def sweeps(runs: Sequence[Run], settings: Exec) -> None:
    """Work of a child: a sweep."""
    sweep(runs, settings, quiet=True)


def ladder(words: Sequence[str]) -> None:
    """Work of a child: a command, with its exit code."""
    sys.exit(cli.main(words))


def short_of_memory(megabytes: int, work: Callable[..., None], *arguments: Any) -> None:
    """Work of a child that may take so much more memory than it has."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + megabytes * 2**20, resource.RLIM_INFINITY))
    work(*arguments)


def short_of_files(size: int, work: Callable[..., None], *arguments: Any) -> None:
    """Work of a child whose files may be so large; Python ignores the signal that goes with it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    work(*arguments)


class Child:
    """A process at work, what it said, and the steps it has taken (`seeds:step`, one entry a step of a pack)."""

    def __init__(
        self, notes: Path, work: Callable[..., None], *arguments: Any, hindrance: Hindrance = Hindrance()
    ) -> None:
        notes.mkdir(parents=True, exist_ok=True)
        self.notes = notes
        self.process: BaseProcess = _CONTEXT.Process(target=_child, args=(notes, hindrance, work, arguments))
        self.process.start()
        atexit.register(self.process.kill)  # of a test that failed
        self.until(lambda: (notes / "started").exists())

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that happens while it lives."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.is_alive(), f"ended with {self.process.exitcode} before it got there: {self.said}"
            assert time.monotonic() < deadline, f"does not get there: {self.said}"
            time.sleep(0.002)

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def ended(self, *, within: float = PATIENCE) -> int | None:
        """Return its exit code, or None if it is still running after that time."""
        self.process.join(within)
        return self.process.exitcode

    def killed(self) -> bool:
        """Kill it, unless it has ended; whether it was still there."""
        self.process.kill()
        return self.ended() == -signal.SIGKILL

    @property
    def said(self) -> str:
        file = self.notes / "said"
        return file.read_text() if file.exists() else ""

    @property
    def steps(self) -> list[str]:
        file = self.notes / "steps"
        return file.read_text().splitlines() if file.exists() else []


def _child(notes: Path, hindrance: Hindrance, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it without
    with (notes / "said").open("a") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    torch.set_num_threads(1)
    gc.freeze()  # every run looks for garbage at its end, and need not look through what was imported
    _hinder(hindrance, notes)
    (notes / "started").touch()
    work(*arguments)


def _hinder(hindrance: Hindrance, notes: Path) -> None:
    advance, test, sync, syncs = Pack.advance, Evaluator.test, os.fsync, itertools.count(1)

    def advancing(pack: Pack, longest: int) -> None:
        with (notes / "steps").open("a") as file:
            file.write(f"{','.join(map(str, pack.stream.seed_R.tolist()))}:{int(pack.step_number)}\n")
        advance(pack, longest)
        time.sleep(hindrance.pause)

    def testing(evaluator: Evaluator) -> Any:
        (notes / "scoring").touch()
        time.sleep(hindrance.scoring)
        return test(evaluator)

    def syncing(file: int) -> None:
        if next(syncs) == hindrance.dies_at_sync:
            if str(Path(f"/proc/self/fd/{file}").readlink()).endswith(".part"):
                os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(file)

    Pack.advance, Evaluator.test, os.fsync = advancing, testing, syncing


def kill_and_restart(
    runs: Sequence[Run], settings: Exec, notes: Path, *, kills: int, seconds: float, rng: random.Random
) -> None:
    """Sweep to the end in processes of which so many are killed at a random moment of their first `seconds`."""
    slow, done = Hindrance(pause=0.003), 0
    for attempt in itertools.count():
        child = Child(notes / str(attempt), sweeps, runs, settings, hindrance=slow)
        if done == kills:
            assert child.ended() == 0, child.said
            return
        child.ended(within=rng.uniform(0, seconds))
        if child.killed():
            done += 1
        else:  # too fast for us: all over again
            done, seconds = 0, seconds / 2
            shutil.rmtree(settings.results)


def half_done(run: Run, settings: Exec, notes: Path) -> RunFolder:
    """A run whose process died while it wrote its fourth checkpoint."""
    config, checkpoints = 2, 3 * 3  # syncs
    child = Child(notes, sweeps, [run], settings, hindrance=Hindrance(dies_at_sync=config + checkpoints + 2))
    assert child.ended() == -signal.SIGKILL, child.said
    folder = RunFolder(settings.results, run.run_id)
    assert checkpoint.steps(folder.path) == {2 * EVERY, 3 * EVERY} and list(folder.path.glob("*.part"))
    return folder


def mounted(folder: Path, options: str) -> str:
    """Put a file system in memory on a folder; the reason if that may not be done here."""
    folder.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True, timeout=30
        )
    except OSError as error:
        return f"there is no mount here: {error.strerror}"
    return "" if done.returncode == 0 else f"a file system cannot be mounted here: {done.stderr.strip()}"
