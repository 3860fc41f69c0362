"""Runs copied to W&B: the copy is what the records say, and nothing that goes wrong with it touches a run.

Offline copies are read back by wandb's own tool. Nothing here needs the network: a server that never answers is a
socket of this process.
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
from records_by_hand import failure_of, filled, folder_of, result_of, runs

from harness import tracking
from harness.config import Exec, Run
from harness.protocols import preset_run
from harness.records import RunFolder
from harness.tracking import Card, Copy, mirrored
from harness.tracking_commands import wandb as wandb_command
from harness.train import execute

try:
    import wandb as wandb
except ImportError as error:
    if os.environ.get("LADDER_ORACLES") == "required":
        raise
    pytest.skip(str(error), allow_module_level=True)

MADE = {"commit": "c0ffee", "dirty": False}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no settings and no folder of the user's; no trouble of an earlier test's."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr(tracking, "_trouble", [])


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of those that copy, each as it is started."""
    started: list[int] = []
    begin = tracking._Mirror.__init__

    def noted(self: tracking._Mirror, order: dict[str, Any]) -> None:
        begin(self, order)
        started.append(self._process.pid)

    monkeypatch.setattr(tracking._Mirror, "__init__", noted)
    return started


def gone(pid: int) -> bool:
    """Whether a process that copied is gone, and the one wandb started for it."""
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


def read_back(results: Path, *which: str) -> dict[str, list[dict[str, Any]]]:
    """The records of offline copies, all or those in whose names one of the words is, by id, from wandb's tool."""
    found = {}
    for file in sorted(results.glob("wandb/offline-run-*/*.wandb")):
        if which and not any(word in file.name for word in which):
            continue
        command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json", str(file)]
        said = subprocess.run(command, cwd=results, capture_output=True, text=True, timeout=60, check=True).stdout
        records = [json.loads(line) for line in said.splitlines()]
        (head,) = [record["run"] for record in records if record["type"] == "run"]
        found[head["run_id"]] = records
    return found


def history(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]


def merged(records: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for record in records:
        tree |= record[kind].get("update", {}) if record["type"] == kind else {}
    return tree


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
    with mirrored([(run, MADE)], settings["with"].results, mode="off"):
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
    assert history(records) == [json.loads(line) for line in folders["with"].metrics.read_text().splitlines()]
    axes = {record["metric"].get("glob_name"): record["metric"] for record in records if record["type"] == "metric"}
    assert axes["*"]["step_metric"] == "step"
    final = merged(records, "summary")["final"]
    assert final["test"]["accuracy"] == pytest.approx(result["test"]["accuracy"])
    assert (final["status"], final["steps"]) == ("done", 8)
    assert [record["exit"].get("exit_code", 0) for record in records if record["type"] == "exit"] == [0]


def test_a_killed_run_leaves_its_lines_and_no_process(tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from records_by_hand import folder_of, runs
from harness import tracking
results, run = Path(sys.argv[1]), runs()[0]
folder = folder_of(results, run)
mirror = tracking.mirrored([(run, {})], results, mode="offline", patience=5)
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
from harness.tracking import _end_with
lifeline, theirs = os.pipe()
os.close(theirs)
_end_with(lifeline, threading.Event(), 0.0)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=20).returncode == 1


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
        "W&B is left alone from here on: it was not done 2 s after the runs (`ladder wandb sync` catches up)"
    ]
    assert len(processes) == 1
    assert within(5, lambda: gone(processes[0]))


def test_the_patience_that_is_not_asked_for() -> None:
    assert tracking.PATIENCE == 15


def test_without_a_key_one_line_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], processes: list[int]
) -> None:
    run = runs()[0]
    folder_of(tmp_path, run)
    with mirrored([(run, MADE)], tmp_path, mode="online"):
        assert within(15, lambda: bool(tracking._trouble))  # while it trains, not after it
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
    assert "JSONDecodeError" in said
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
    assert capsys.readouterr().err.count("\n") == 1 and "no more processes" in tracking._trouble[0]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


class Recorder:
    """A W&B run in plain Python."""

    def __init__(self, step: int) -> None:
        self.starting_step, self.rows, self.summary, self.config = step, [], {}, self
        self.exit_code: int | None = None
        self.preempting = False

    def define_metric(self, name: str, *, step_metric: str = "", hidden: bool = False) -> None:
        pass

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def update(self, values: dict[str, Any], *, allow_val_change: bool) -> None:
        assert allow_val_change

    def mark_preempting(self) -> None:
        self.preempting = True

    def finish(self, *, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorder]:
    def make(*, step: int = 0) -> Recorder:
        recorder = Recorder(step)
        monkeypatch.setattr(tracking, "begun", lambda *words, **settings: recorder)
        return recorder

    return make


def test_no_line_is_sent_twice(tmp_path: Path, recorded: Callable[..., Recorder]) -> None:
    run, there = runs()[0], recorded(step=2)
    folder = folder_of(tmp_path, run)
    copy = Copy(Card.of(run, MADE), folder, mode="online", finish_within=1)
    for step in range(4):
        folder.log(step=step)
    assert not copy.look(last=False)
    assert [row["step"] for row in there.rows] == [2, 3]
    folder.cut_metrics(folder.metrics.read_bytes().index(b"\n") + 1)  # back to a checkpoint behind the first line
    assert not copy.look(last=False)
    for step in range(1, 6):
        folder.log(step=step)
    with folder.metrics.open("a") as file:
        file.write('{"step":6')
    assert not copy.look(last=False)
    assert [row["step"] for row in there.rows] == [2, 3, 4, 5]
    assert there.exit_code is None


def test_every_end_of_a_run_is_told(tmp_path: Path, recorded: Callable[..., Recorder]) -> None:
    run = runs()[0]
    ends: dict[str, Callable[[RunFolder], None]] = {
        "done": lambda folder: folder.finish(result_of(run)),
        "diverged": lambda folder: folder.finish(result_of(run, status="diverged", loss="nan")),
        "failed": lambda folder: folder.fail(failure_of(run)),
        "preempted": lambda folder: folder.preempt("SIGTERM", 7),
    }
    for status, write in ends.items():
        there, folder = recorded(), folder_of(tmp_path / status, run)
        write(folder)
        assert Copy(Card.of(run, MADE), folder, mode="online", finish_within=1).look(last=False)
        assert there.summary["final"]["status"] == status
        assert there.exit_code == (0 if status in ("done", "diverged") else 1)
        assert there.preempting == (status == "preempted")
        assert "counts" not in json.dumps(there.summary) and ".." not in json.dumps(there.summary)


def test_a_card_from_the_folder_is_the_one_from_the_run(tmp_path: Path) -> None:
    run = runs()[3]
    folder = folder_of(tmp_path, run)
    folder.finish(result_of(run))
    made = result_of(run)["provenance"]
    assert Card.read(folder, group="g") == Card.of(run, made, group="g")
    config = folder.path / "config.json"
    config.write_text(config.read_text().replace('"version": 1', '"version": 99'))
    old = Card.read(folder)
    assert (old.name, old.tags) == ("parity-lstm-7", ("regular", "xlstm_20k"))  # its family is not in the records
    assert old.config["protocol_label"] == "xlstm_20k (eval.test=9)"
    assert old.config["model_label"] == "lstm (d_model=16)"


def test_sync_copies_every_run_and_the_tables(tmp_path: Path) -> None:
    results = filled(tmp_path / "results")
    (results / "records.csv").write_text("run_id,test,error\na,0.5,\nb,,broke\n")
    (results / "tables").mkdir()
    (results / "tables" / "accuracy.csv").write_text("model,parity\nlstm,0.25\n")
    code = "import sys; from harness.tracking_commands import wandb; sys.exit(wandb(sys.argv[1:]))"
    words = ["sync", "--mode", "offline", "--group", "again", "--tables", "--results", str(results)]
    ended = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    ids = sorted(run.run_id for run in runs())
    assert ended.stdout.splitlines() == [
        *(f"[{place}/4] {run_id}" for place, run_id in enumerate(ids, 1)),
        "tables: records.csv, accuracy.csv",
    ]
    names = [file.stem.removeprefix("run-") for file in results.glob("wandb/offline-run-*/*.wandb")]
    assert len(names) == 5 and sorted(names)[:4] == ids
    under_way = runs()[3].run_id
    copies = read_back(results, under_way, "tables")
    assert history(copies[under_way]) == [{"step": 1, "loss": 0.5}]
    assert next(r["run"]["run_group"] for r in copies[under_way] if r["type"] == "run") == "again"
    (tables,) = copies.keys() - {under_way}
    artifacts = [record["artifact"] for record in copies[tables] if record["type"] == "artifact"]
    entries = {
        entry["path"] for each in artifacts if each["type"] == "tables" for entry in each["manifest"]["contents"]
    }
    assert entries == {"records.csv", "accuracy.csv"}
    (media,) = results.glob("wandb/offline-run-*/files/media/table/records_*.table.json")
    table = json.loads(media.read_text())
    assert table["columns"] == ["run_id", "test", "error"]
    assert table["data"] == [["a", 0.5, None], ["b", None, "broke"]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "ladder wandb needs one of sync, report"),
        (["sink"], "no such command: wandb sink; there are sync, report"),
        (["sync", "--mode", "on"], "invalid choice"),
        (["sync", "nothing"], "no run 'nothing'"),
        (["sync"], "no runs under"),
        (["sync", "--tables"], "no tables under"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], complaint: str) -> None:
    where = ["--results", str(tmp_path / "none")] if words else []
    with pytest.raises(ValueError, match=complaint):
        wandb_command([*words, *where])
