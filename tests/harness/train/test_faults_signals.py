"""Asked to stop: a checkpoint at that very step, a note, an exit code; and, started again, as if never stopped."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.loop import execute
from support.cases import some
from support.faults import (
    EVERY,
    STEPS,
    Child,
    Hindrance,
    assert_same,
    ladder,
    outcome,
    put_into,
    steps_logged,
    sweeps,
    the_run,
)

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
EXIT = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138, signal.SIGHUP: 129}
SLOWLY = """
import time
from chomsky_ladder.harness.train.pack import Pack

advance = Pack.advance


def slowly(pack, longest):
    advance(pack, longest)
    time.sleep(0.01)


Pack.advance = slowly
"""
WORDS = (
    *("run", "cycle_nav", "lstm", "--train.steps", str(STEPS), "--train.batch", "4", "--train.lengths", "3", "12"),
    *("--model.d-model", "8", "--eval.test", "24", "--eval.validation", "8", "--eval.every", "20"),
    *("--eval.lengths", "10", "20", "--eval.bins", "10", "20", "--eval.extrapolate", "24", "--eval.extrapolation", "4"),
    *("--exec.checkpoint-every", "1000", "--exec.log-every", "5", "--exec.device", "cpu"),
)


def the_only_folder(results: Path) -> RunFolder:
    (path,) = (results / "runs").iterdir()
    return RunFolder(results, path.name)


def stopped_at(folder: RunFolder, number: int) -> int:
    """The step at which a run was asked to stop, of which there is a checkpoint and no result."""
    note = folder.preempted()
    assert note is not None and note["signal"] == signal.Signals(number).name
    assert folder.result() is None and folder.failure() is None
    content = checkpoint.newest(folder.path)
    assert content is not None and content["counters"]["step"] == note["step"]
    return note["step"]


@pytest.mark.parametrize("number", some(SIGNALS, always=len(SIGNALS)))
def test_a_command_asked_to_stop(number: int, tmp_path: Path) -> None:
    """`ladder run` as a shell starts it; its results end where those of a run that never stopped do."""
    plugin, results = tmp_path / "slowly.py", tmp_path / "results"
    plugin.write_text(SLOWLY)
    process = subprocess.Popen(
        [sys.executable, "-m", "chomsky_ladder", *WORDS, "--exec.results", str(results), "--plugin", str(plugin)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # under nohup it is ignored
    )
    deadline = time.monotonic() + 90
    while not any(path.stat().st_size for path in results.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.005)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == EXIT[number], said
    assert f"{signal.Signals(number).name}: a checkpoint is written" in said and "Traceback" not in said

    folder = the_only_folder(results)
    assert 5 <= stopped_at(folder, number) < STEPS
    run, settings = Run.from_plain(folder.config()), Exec(log_every=5, results=results, device="cpu")
    assert execute(run, settings, quiet=True)["status"] == "done"
    assert folder.preempted() is None
    assert steps_logged(folder) == list(range(5, STEPS + 1, 5))
    execute(run, replace(settings, results=tmp_path / "whole"), quiet=True)
    assert_same(outcome(results, run), outcome(tmp_path / "whole", run))


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    words = [*WORDS, "--exec.results", str(tmp_path / "results"), "--quiet"]
    child = Child(tmp_path / "notes", ladder, words, hindrance=Hindrance(pause=60))
    child.until(lambda: child.steps)
    child.send(signal.SIGINT)
    child.until(lambda: "once more ends at once" in child.said)
    assert child.ended(within=0.3) is None  # its step is not over
    child.send(signal.SIGINT)
    assert child.ended(within=20) == 130
    folder = the_only_folder(tmp_path / "results")
    assert "interrupted" in child.said and "Traceback" not in child.said
    assert folder.preempted() is None and folder.result() is None and folder.failure() is None


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_of_packs_asked_to_stop(number: int, tmp_path: Path) -> None:
    """The pack stops as one, at one step. The next pack is not begun."""
    runs = [the_run(seed=seed) for seed in range(4)]
    settings, whole = put_into(tmp_path / "stopped", pack=2), put_into(tmp_path / "whole", pack=2)
    child = Child(tmp_path / "notes", sweeps, runs, settings, hindrance=Hindrance(pause=0.01))
    child.until(lambda: len(child.steps) > EVERY + 2)
    child.send(number)
    assert child.ended() == EXIT[number], child.said
    folders = [RunFolder(settings.results, run.run_id) for run in runs]
    at = {stopped_at(folder, number) for folder in folders[:2]}
    assert len(at) == 1 and EVERY + 2 < at.pop() < STEPS
    assert {step.split(":")[0] for step in child.steps} == {"0,1"}
    assert not any(folder.path.exists() for folder in folders[2:])
    assert all(sweep(runs, settings, quiet=True)) and all(sweep(runs, whole, quiet=True))
    for run, folder in zip(runs, folders, strict=True):
        assert_same(outcome(settings.results, run), outcome(whole.results, run))
        assert folder.preempted() is None


def test_a_sweep_asked_to_stop_while_it_scores_begins_no_other_run(tmp_path: Path) -> None:
    runs = [the_run(seed=seed) for seed in range(2)]
    settings = put_into(tmp_path / "results")
    child = Child(tmp_path / "notes", sweeps, runs, settings, hindrance=Hindrance(scoring=0.5))
    child.until(lambda: (tmp_path / "notes" / "scoring").exists())
    child.send(signal.SIGTERM)
    assert child.ended() == 143, child.said
    assert {step.split(":")[0] for step in child.steps} == {"0"}
    assert RunFolder(settings.results, runs[1].run_id).result() is None
    assert all(sweep(runs, settings, quiet=True))


@pytest.mark.full
def test_stopped_again_and_again_is_never_stopped(tmp_path: Path) -> None:
    """After the first step of every session, one after another: also where nothing but signals makes checkpoints."""
    run, settings = the_run(steps=8), replace(put_into(tmp_path / "stopped"), checkpoint_every=1000)
    for session in range(8):
        child = Child(tmp_path / str(session), sweeps, [run], settings, hindrance=Hindrance(pause=0.08))
        child.until(lambda child=child: child.steps)
        child.send(signal.SIGUSR1)
        assert child.ended() == 138, child.said
        assert stopped_at(RunFolder(settings.results, run.run_id), signal.SIGUSR1) == session + 1
        assert child.steps == [f"0:{session}"]
    assert all(sweep([run], settings, quiet=True))
    sweep([run], put_into(tmp_path / "whole"), quiet=True)
    assert_same(outcome(settings.results, run), outcome(tmp_path / "whole", run))
