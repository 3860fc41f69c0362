"""Faults in a run's folder: torn, foreign or hostile files, a foreign lock, and a wrong clock."""

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.store import checkpoint, lock
from chomsky_ladder.harness.store.folder import Busy, RunFolder, find_run
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.build import load
from chomsky_ladder.harness.train.loop import RunFailed, execute
from support.faults import EVERY, STEPS, assert_same, half_done, outcome, put_into, steps_logged, the_run

RUN = the_run()
ELSEWHERE = "process 4711 on another-host\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that nothing happened to."""
    results = tmp_path_factory.mktemp("whole")
    execute(RUN, put_into(results), quiet=True)
    return results


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the same run, whose process died."""
    folder = tmp_path_factory.mktemp("begun")
    half_done(RUN, put_into(folder / "results"), folder / "notes")
    return folder / "results"


@pytest.fixture
def half(begun: Path, tmp_path: Path) -> RunFolder:
    shutil.copytree(begun, tmp_path / "results")
    return RunFolder(tmp_path / "results", RUN.run_id)


def goes_on(half: RunFolder, whole: Path) -> None:
    """Resume a run and compare it with one that was never stopped: the same end, and no step trained twice."""
    results = half.path.parents[1]
    assert execute(RUN, put_into(results), quiet=True)["status"] == "done"
    assert_same(outcome(results, RUN), outcome(whole, RUN))
    assert steps_logged(half) == list(range(5, STEPS + 1, 5))


TAILS = {
    "torn": '{"step":30,"loss":0.6',
    "not even text": "\x00" * 512,
    "whole lines": '{"step":25,"loss":0.1}\n{"step":30,"loss":0.1}\n',
    "an old torn one": '{"step":30,"lo{"step":25,"loss":0.1}\n',
}


@pytest.mark.parametrize("tail", TAILS)
def test_what_metrics_hold_behind_the_checkpoint_is_cut(tail: str, half: RunFolder, whole: Path) -> None:
    with half.metrics.open("a") as file:
        file.write(TAILS[tail])
    goes_on(half, whole)


def test_a_torn_last_line_is_left_out_of_the_history(half: RunFolder) -> None:
    lines = half.history()
    with half.metrics.open("a") as file:
        file.write(TAILS["torn"])
    assert half.history() == lines and steps_logged(half) == [5, 10, 15, 20, 25]
    assert load(RUN.run_id, results=half.path.parents[1])[2] == lines


def test_metrics_that_lost_what_the_checkpoint_knows_are_refused(half: RunFolder) -> None:
    os.truncate(half.metrics, half.metrics.stat().st_size // 2)
    with pytest.raises(RunFailed, match="has lost lines its checkpoint knows of; remove the folder to start over"):
        execute(RUN, put_into(half.path.parents[1]), quiet=True)
    assert half.result() is None and half.failure() is not None


def test_a_checkpoint_of_another_config_is_refused(half: RunFolder, whole: Path, tmp_path: Path) -> None:
    """The other config only has another learning rate, so its weights would fit without an error."""
    results, other = half.path.parents[1], replace(RUN, train=replace(RUN.train, lr=3e-3))
    foreign = half_done(other, put_into(tmp_path / "other"), tmp_path / "notes")
    stray = checkpoint.path_of(half.path, 4 * EVERY)
    shutil.copy(checkpoint.path_of(foreign.path, 3 * EVERY), stray)
    with pytest.raises(RunFailed, match=f"a checkpoint of {other.run_id} lies in {RUN.run_id}"):
        execute(RUN, put_into(results), quiet=True)
    assert half.result() is None and half.failure() is not None
    with pytest.raises(ValueError, match=other.run_id):
        load(RUN.run_id, results=results)
    neighbour = the_run(seed=1)
    assert [bool(done) for done in sweep([RUN, neighbour], put_into(results), quiet=True)] == [False, True]
    stray.unlink()
    goes_on(half, whole)


class Touching:
    """Creates a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def test_a_pickle_in_a_checkpoint_runs_nothing_on_the_way(half: RunFolder, whole: Path, tmp_path: Path) -> None:
    victim, buffer = tmp_path / "victim", io.BytesIO()
    torch.save({"run_id": RUN.run_id, "model": Touching(victim)}, buffer)
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    victim.unlink()  # the attack works on an incautious reader
    digest = hashlib.sha256(buffer.getvalue()).hexdigest().encode()
    sealed = b"ladder-checkpoint 1 " + digest + b"\n" + buffer.getvalue()
    checkpoint.path_of(half.path, 4 * EVERY).write_bytes(sealed)
    with pytest.warns(UserWarning, match=r"step_00000028\.ckpt holds something other than weights"):
        goes_on(half, whole)
    assert not victim.exists()


@pytest.mark.parametrize("counters", [{"step": "seven"}, {}, "seven", None])
def test_a_checkpoint_of_no_step_is_refused(counters: object, half: RunFolder) -> None:
    content = checkpoint.newest(half.path)
    assert content is not None
    checkpoint.write(checkpoint.path_of(half.path, STEPS), content | {"counters": counters})
    for read in (
        lambda: execute(RUN, put_into(half.path.parents[1]), quiet=True),
        lambda: load(RUN.run_id, results=half.path.parents[1]),
    ):
        with pytest.raises(ValueError, match=f"a checkpoint of {RUN.run_id} is of no step: remove it"):
            read()


@pytest.mark.parametrize("where", ["result.json", "config.json"])
def test_a_folder_that_holds_another_runs_record_is_refused(where: str, half: RunFolder, whole: Path) -> None:
    """However it got there, another run's record is never taken for this run's."""
    results, other = half.path.parents[1], the_run(seed=1)
    execute(other, put_into(results), quiet=True)
    shutil.copy(RunFolder(results, other.run_id).path / where, half.path / where)
    with pytest.raises(RunFailed, match=r"another run|does not fit"):
        execute(RUN, put_into(results), quiet=True)


@pytest.mark.parametrize("missing", ["", "seed", "train", "model.name"])
def test_a_config_that_says_too_little_is_refused(missing: str, half: RunFolder) -> None:
    tree = half.config() if missing else {}
    part, _, name = missing.partition(".")
    (tree[part] if name else tree).pop(name or part, None)
    (half.path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(RunFailed, match=rf"config.json is another run's, or damaged: `ladder clean {RUN.run_id}`"):
        execute(RUN, put_into(half.path.parents[1]), quiet=True)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_link_is_not_written_through(name: str, tmp_path: Path) -> None:
    folder, outside = RunFolder(tmp_path / "results", RUN.run_id), tmp_path / "outside"
    folder.path.mkdir(parents=True)
    outside.write_text("not a run's")
    (folder.path / name).symlink_to(outside)
    with pytest.raises(RunFailed, match=f"{name} is a link, which no run writes through"):
        execute(RUN, put_into(tmp_path / "results"), quiet=True)
    assert outside.read_text() == "not a run's"


def test_a_folder_that_was_made_anew_is_left_alone(half: RunFolder, whole: Path) -> None:
    """Removed while its run trains, and the run started again: the first writer stops."""
    first = RunFolder(half.path.parents[1], RUN.run_id)
    writes = {
        "log": lambda: first.log(step=40, loss=0.0),
        "log_time": lambda: first.log_time(event="trained"),
        "metrics_bytes": first.metrics_bytes,
        "cut_metrics": lambda: first.cut_metrics(0),
        "finish": lambda: first.finish({}),
        "fail": lambda: first.fail({}),
        "preempt": lambda: first.preempt("SIGTERM", 3),
    }
    with first.locked():
        shutil.move(half.path, half.path.with_name("away"))
        for write in writes.values():
            with pytest.raises(lock.Lost, match="was removed, or made anew, while it trained"):
                write()
        goes_on_from_the_start = execute(RUN, put_into(half.path.parents[1]), quiet=True)
        assert goes_on_from_the_start["status"] == "done"
        for write in writes.values():
            with pytest.raises(lock.Lost):
                write()
    assert_same(outcome(half.path.parents[1], RUN), outcome(whole, RUN))


def test_a_lock_that_does_nothing_keeps_processes_of_one_host_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    mine = lock.Holder(os.getpid(), socket.gethostname())
    with lock.held(tmp_path):
        (tmp_path / "lock").write_text(f"{mine._replace(process=os.getppid())}\n")
        with pytest.raises(Busy, match=f"process {os.getppid()} on "), lock.held(tmp_path):
            pass
    (tmp_path / "lock").write_text(f"{mine._replace(process=2**22 + 1)}\n")  # more than a system gives
    with lock.held(tmp_path):
        assert lock.holder(tmp_path) is None, "itself"


def test_a_file_system_without_locks_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: object, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ValueError, match="Function not implemented: its file system has no locks"):
        execute(RUN, put_into(tmp_path), quiet=True)


@pytest.fixture
def lock_file(half: RunFolder) -> Path:
    return half.path / "lock"


def test_the_lock_of_a_dead_process_of_this_host_is_taken_at_once(
    half: RunFolder, lock_file: Path, whole: Path
) -> None:
    assert lock_file.read_text().startswith("process ")  # of the child that was killed
    assert lock_file.read_text().split()[3] == socket.gethostname()
    assert lock.holder(half.path) is None
    goes_on(half, whole)


@pytest.mark.parametrize("age", [0.0, lock.STALE - 60])
def test_a_live_lock_of_another_host_is_respected(age: float, half: RunFolder, lock_file: Path) -> None:
    """A refused process leaves the heartbeat as it was: asking again and again keeps no dead holder alive."""
    lock_file.write_text(ELSEWHERE)
    then = time.time() - age
    os.utime(lock_file, (then, then))
    before = lock_file.stat().st_mtime_ns
    with pytest.raises(Busy, match="is being written by process 4711 on another-host"):
        execute(RUN, put_into(half.path.parents[1]), quiet=True)
    assert lock.holder(half.path) == lock.Holder(4711, "another-host")
    assert lock_file.read_text() == ELSEWHERE
    assert lock_file.stat().st_mtime_ns == before
    assert not list(half.path.glob("clock.*"))


def test_two_hosts_of_one_name_are_two(half: RunFolder, lock_file: Path) -> None:
    """Copies of a virtual machine share a name, on a file system that does not share locks."""
    lock_file.write_text(f"process 4711 on {socket.gethostname()} 0badb007")
    assert str(lock.holder(half.path)) == f"process 4711 on {socket.gethostname()}"
    with pytest.raises(Busy, match="is being written by process 4711 on"):
        execute(RUN, put_into(half.path.parents[1]), quiet=True)
    then = time.time() - lock.STALE - 60
    os.utime(lock_file, (then, then))
    assert lock.holder(half.path) is None


@pytest.mark.parametrize("age", [lock.STALE + 60, -365 * 86400.0], ids=["old", "of next year"])
def test_a_stale_lock_of_another_host_is_taken(age: float, half: RunFolder, lock_file: Path, whole: Path) -> None:
    """A live holder's heartbeat is of now: one of a clock that was a year ahead will not come again either."""
    lock_file.write_text(ELSEWHERE)
    then = time.time() - age
    os.utime(lock_file, (then, then))
    assert lock.holder(half.path) is None
    goes_on(half, whole)


@pytest.mark.full
def test_a_holder_gives_signs_of_life(half: RunFolder, lock_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with half.locked():
        os.utime(lock_file, (0, 0))
        deadline = time.monotonic() + 30
        while lock_file.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert lock_file.read_text() == ""


CLOCKS = {"backwards": (2e9, -60.0), "of 1970": (0.0, 1e-3), "before 1970": (-1e6, -1.0)}


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_wrong_clock_changes_no_number(
    clock: str, half: RunFolder, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, stride = CLOCKS[clock]

    def wrong() -> float:
        nonlocal now
        now += stride
        return now

    monkeypatch.setattr(time, "time", wrong)
    goes_on(half, whole)
    assert lock.holder(half.path) is None
    times = [json.loads(line)["unix"] for line in (half.path / "timing.jsonl").read_text().splitlines()]
    assert len(times) == 2  # noted as they were read


def test_an_unknown_run_says_how_many_there_are(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no run 'none such' under .*runs \(1 run there\)$"):
        find_run(tmp_path, "none such")
