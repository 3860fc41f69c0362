"""The process that copies a run to W&B beside its training: whatever goes wrong with it, it touches no run.

Nothing here needs the network: a server that never answers is a socket of this process.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking import mirror
from chomsky_ladder.harness.tracking.mirror import mirrored
from chomsky_ladder.harness.tracking.tracker import Tracker
from chomsky_ladder.harness.train.loop import execute
from support.offline_copies import MADE, ROOT, history, merged, read_back
from support.offline_copies import isolated as isolated
from support.records_by_hand import folder_of, runs


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the ids of copying processes, each added when it starts."""
    started: list[int] = []
    begin = mirror._Mirror.__init__

    def noted(self: mirror._Mirror, tracker: Tracker, order: dict[str, Any]) -> None:
        begin(self, tracker, order)
        started.append(self._process.pid)

    monkeypatch.setattr(mirror._Mirror, "__init__", noted)
    return started


def gone(pid: int) -> bool:
    """Return True if a copying process is gone, and the one that wandb started for it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words != [b""] and (int(folder.name) == pid or b"--pid\0%d" % pid in b"\0".join(words)):
            return False
    return True


def within(seconds: float, happens: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.1)
    return happens()


def random_states() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def tiny() -> Run:
    run = preset_run("parity", "lstm", protocol="quick", seed=3)
    train = replace(run.train, steps=8, batch=4, lengths=(3, 8))
    evaluate = replace(run.eval, lengths=(8, 12), test=8, validation=8, every=4, bins=(8, 12), extrapolate=())
    return replace(run, model=replace(run.model, d_model=8), train=train, eval=evaluate)


def test_a_copy_is_the_record_and_training_is_the_same_with_it(tmp_path: Path, processes: list[int]) -> None:
    run = tiny()
    settings = {name: Exec(device="cpu", log_every=2, results=tmp_path / name) for name in ("with", "without")}
    execute(run, settings["without"], quiet=True)
    assert not processes
    before = random_states()
    with mirrored([(run, MADE)], settings["with"].results, mode="offline", group="a sweep"):
        assert random_states() == before and len(processes) == 1
        result = execute(run, settings["with"], quiet=True)
        before = random_states()
    assert random_states() == before
    folders = {name: RunFolder(each.results, run.run_id) for name, each in settings.items()}
    assert folders["with"].metrics.read_bytes() == folders["without"].metrics.read_bytes()
    assert within(5, lambda: gone(processes[0]))

    ((run_id, records),) = read_back(tmp_path / "with").items()
    (head,) = [record["run"] for record in records if record["type"] == "run"]
    assert run_id == run.run_id
    assert (head["display_name"], head["run_group"], head["project"]) == ("parity-lstm-3", "a sweep", "chomsky-ladder")
    assert head["tags"] == ["regular", "recurrent", "quick"]
    config = head["config"]["update"]
    assert {key: config[key] for key in run.plain()} == json.loads(json.dumps(run.plain()))
    assert config["provenance"] == MADE
    assert merged(records, "config")["provenance"]["commit"] == result["provenance"]["commit"]
    assert [row["step"] for row in history(records)] == [2, 4, 4, 6, 8, 8]
    lines = folders["with"].metrics.read_text().replace("..", "-").splitlines()  # a dot would part a key there
    assert history(records) == [json.loads(line) for line in lines]
    assert sum("validation/8-12" in row for row in history(records)) == 2
    axes = {record["metric"].get("glob_name"): record["metric"] for record in records if record["type"] == "metric"}
    assert axes["*"]["step_metric"] == "step"
    final = merged(records, "summary")["final"]
    assert final["test"]["accuracy"] == pytest.approx(result["test"]["accuracy"])
    assert (final["status"], final["steps"]) == ("done", 8)
    assert [record["exit"].get("exit_code", 0) for record in records if record["type"] == "exit"] == [0]


@pytest.mark.full
def test_a_killed_run_leaves_its_lines_and_no_process(tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.records_by_hand import folder_of, runs
from chomsky_ladder.harness.tracking.mirror import mirrored
results, run = Path(sys.argv[1]), runs()[0]
folder = folder_of(results, run)
mirror = mirrored([(run, {})], results, mode="offline", patience=5)
with mirror:
    print(mirror.gen.gi_frame.f_locals["mirror"]._process.pid, flush=True)
    folder.log(step=1, loss=0.5)
    while not list(results.glob("wandb/offline-run-*/*.wandb")):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(ROOT / "tests")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -9, ended.stderr
    assert within(8, lambda: gone(int(ended.stdout)))
    (records,) = read_back(tmp_path).values()
    assert history(records) == [{"step": 1, "loss": 0.5}]
    assert merged(records, "summary")["final"] == {"status": "unfinished"}
    assert [record["exit"]["exit_code"] for record in records if record["type"] == "exit"] == [1]


def test_a_stuck_copy_ends_by_itself_after_its_run_was_killed() -> None:
    code = """
import os, threading
from chomsky_ladder.harness.tracking.follow import _end_with
lifeline, theirs = os.pipe()
os.close(theirs)
_end_with(lifeline, threading.Event(), 0.0)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=20, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")  # and not for want of the module


def broken(copied: AbstractContextManager[None], processes: list[int]) -> None:
    """A run that ends in an error, while its copy is stuck for good."""
    with copied:
        os.kill(processes[0], signal.SIGSTOP)
        raise KeyError("of the run")


def test_a_server_that_never_answers_costs_the_patience_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], processes: list[int]
) -> None:
    run = runs()[0]
    folder_of(tmp_path, run)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        start = time.monotonic()
        with pytest.raises(KeyError, match="of the run"):
            broken(mirrored([(run, MADE)], tmp_path, mode="online", patience=2), processes)
        assert 1.9 < time.monotonic() - start < 5
        start = time.monotonic()
        with mirrored([(run, MADE)], tmp_path, mode="online"):
            pass
        assert time.monotonic() - start < 0.5
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "W&B is left alone from here on: it was not done 2 s after the runs (`ladder track wandb` catches up)"
    ]
    assert len(processes) == 1
    assert within(5, lambda: gone(processes[0]))


@pytest.mark.full
def test_a_plugin_that_broke_keeps_no_run_from_being_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror.rooms, "NAMED", [str(tmp_path / "broken.py")])
    run = runs()[0]
    folder_of(tmp_path, run)
    with mirrored([(run, MADE)], tmp_path, mode="offline"):
        pass
    assert capfd.readouterr().err == ""
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_the_patience_that_is_not_asked_for() -> None:
    assert mirror.PATIENCE == 15


def test_without_a_key_one_line_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], processes: list[int]
) -> None:
    run = runs()[0]
    folder_of(tmp_path, run)
    with mirrored([(run, MADE)], tmp_path, mode="online"):
        assert within(15, lambda: bool(mirror._trouble))  # while it trains, not after it
    (said,) = capfd.readouterr().err.splitlines()
    assert "API key" in said and said.startswith("W&B is left alone")
    assert within(5, lambda: gone(processes[0]))


def test_an_error_in_the_middle_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], processes: list[int]
) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    with mirrored([(run, MADE)], tmp_path, mode="offline"):
        folder.log(step=1, loss=0.5)
        with folder.metrics.open("a") as file:
            file.write("{no json\n")
        start = time.monotonic()
    assert time.monotonic() - start < 10
    (said,) = capfd.readouterr().err.splitlines()
    assert f"{folder.metrics} is damaged" in said
    assert within(5, lambda: gone(processes[0]))


def test_a_process_that_cannot_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object, **settings: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    trained = False
    with mirrored([(runs()[0], MADE)], tmp_path, mode="offline"):
        trained = True
    assert trained
    assert capsys.readouterr().err.count("\n") == 1 and "no more processes" in mirror._trouble["wandb"]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
