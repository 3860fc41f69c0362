"""The display of a sweep: redrawn in place on a terminal, plain lines in a log file, failures always."""

import io
import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.sweep import live
from chomsky_ladder.harness.sweep.engines.base import Fate, Job
from chomsky_ladder.harness.sweep.live import Live, duration

Patch = pytest.MonkeyPatch


class Terminal(io.StringIO):
    """A terminal of some columns: what is written, and the screen after the control sequences are carried out."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self.columns, self.lines = columns, lines

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        rows, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if part == "\r":
                column = 0
            elif part == "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            elif part == "\x1b[K":
                rows[row] = rows[row][:column]
            elif part == "\x1b[J":
                rows[row:] = [rows[row][:column]]
            elif part.startswith("\x1b["):
                assert part[-1] == "A", part
                row -= int(part[2:-1])
                assert row >= 0, "above the screen"
            else:
                assert column + len(part) < self.columns, f"{part!r} would wrap"
                rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
                column += len(part)
        return rows


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: Patch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(live, "_size", lambda stream: (stream.columns, stream.lines))
    return clock


def job(number: int, *, count: int = 1, task: str = "parity", steps: int = 1000) -> Job:
    score = Eval(lengths=(8, 12), test=8, validation=8, every=0, bins=(8, 12), extrapolate=())
    train = Train(steps=steps, batch=4, lengths=(3, 8))
    run = Run(task=find_task(task)(), model=find_model("lstm").tiny(), train=train, eval=score)
    return Job(number, tuple(replace(run, seed=100 * number + seed) for seed in range(count)))


def log(results: Path, job: Job, *lines: dict[str, float], torn: str = "") -> None:
    folder = results / "runs" / job.runs[0].run_id
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines) + torn)


def display(jobs: list[Job], results: Path, stream: io.StringIO, **expected: float) -> Live:
    return Live(jobs, results, runs=sum(len(job.runs) for job in jobs), expected=expected, stream=stream)


def done(job: Job, accuracy: float = 0.5) -> list[Fate]:
    return [Fate(run.run_id, "done", f"1000 steps, test accuracy {accuracy:.3f}, 3.0s", 0.5, 3.0) for run in job.runs]


def failed(job: Job) -> list[Fate]:
    return [Fate(run.run_id, "failed", "failed: RuntimeError: broken") for run in job.runs]


def test_a_terminal_shows_a_bar_and_a_line_for_each_pack(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2, count=9, task="cycle_nav"), job(3)], Terminal()
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    shown.started(jobs[1])
    shown.show()
    assert [line.split()[:4] for line in stream.screen[1:3]] == [
        ["parity", "lstm", "s100", "0/1000"],
        ["cycle_nav", "lstm", "x9", "0/1000"],
    ]
    log(tmp_path, jobs[0], {"step": 100, "loss": 0.7}, {"step": 100, "validation": 0.5}, torn='{"step": 2')
    clock.now += 10
    shown.show()
    assert stream.screen == [
        "[----------------------------------------]  0/11 runs",  # none has ended, so that nothing is known
        "parity lstm s100                  100/1000  loss 0.7000  val 0.500   1m30s left",
        "cycle_nav lstm x9                   0/1000",
        "",
    ]


def test_lines_are_shorter_than_the_terminal(tmp_path: Path, clock: Clock) -> None:
    for columns in (40, 60, 80, 200):
        jobs, stream = [job(1, steps=1_000_000)], Terminal(columns)
        shown = display(jobs, tmp_path / str(columns), stream)
        shown.started(jobs[0])
        for step in (1, 500_000, 999_999):
            log(tmp_path / str(columns), jobs[0], {"step": step, "loss": 123.456, "validation": 0.123})
            clock.now += 5000
            shown.show()  # the terminal objects to a line that wraps
        assert ("left" in stream.screen[1]) == (columns >= 80)


def test_a_frame_is_one_write_over_the_last(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2)], Terminal()
    shown, writes = display(jobs, tmp_path, stream), []
    write = stream.write
    stream.write = lambda text: (writes.append(text), write(text))[1]
    for each in jobs:
        shown.started(each)
    shown.show()
    shown.show()
    assert len(writes) == 2
    assert writes[1].startswith("\r\x1b[3A[") and writes[1].count("\n") == 3
    assert "\x1b[J" not in writes[1][:-3]  # nothing is erased before it is overwritten
    assert len(stream.screen) == 4


def test_failures_stay_above_the_display(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2)], Terminal(columns=120)
    with display(jobs, tmp_path, stream) as shown:
        for each in jobs:
            shown.started(each)
        shown.show()
        shown.ended(jobs[0], failed(jobs[0]))
        shown.show()
        assert stream.screen[0] == f"{jobs[0].runs[0].run_id} failed: RuntimeError: broken"
        assert "0/2 runs  1 failed" in stream.screen[1]
        shown.ended(jobs[1], done(jobs[1]))
        shown.show()
        assert "1/2 runs  1 failed" in stream.screen[1]
        assert len(stream.screen) == 3
    assert stream.screen == [f"{jobs[0].runs[0].run_id} failed: RuntimeError: broken", ""]


def test_a_diverged_run_is_said(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1)], Terminal(columns=120)
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    shown.ended(jobs[0], [Fate(jobs[0].runs[0].run_id, "diverged", "diverged at step 7: loss nan")])
    shown.show()
    assert stream.screen[0].endswith("diverged at step 7: loss nan") and "1/1 runs" in stream.screen[1]


def test_more_packs_than_lines(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(number) for number in range(1, 31)], Terminal(lines=10)
    shown = display(jobs, tmp_path, stream)
    for each in jobs:
        shown.started(each)
    shown.show()
    assert len(stream.screen) - 1 == 10
    assert stream.screen[-2] == "and 22 more"


def test_a_resumed_run_does_not_count_what_it_did_not_do(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1)], Terminal()
    log(tmp_path, jobs[0], {"step": 900, "loss": 0.7}, {"step": 950, "loss": 0.7})
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    shown.show()
    (tmp_path / "runs" / jobs[0].runs[0].run_id / "metrics.jsonl").write_text('{"step": 900, "loss": 0.7}\n')
    clock.now += 5
    shown.show()  # it has gone back to its checkpoint
    clock.now += 10
    log(tmp_path, jobs[0], {"step": 910, "loss": 0.7})
    shown.show()
    assert "1m30s left" in stream.screen[1]  # 10 steps in 10 s, 90 to go
    clock.now += 40
    shown.show()
    assert "50s left" in stream.screen[1]  # between two looks it counts down
    shown.ended(jobs[0], done(jobs[0]))
    shown.show()
    assert stream.screen[0] == f"[{'#' * 40}]  1/1 runs  0s left"  # nothing is left of the longer line


def test_the_first_steps_pay_for_what_is_built(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1)], Terminal()
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    shown.show()
    for step, seconds in ((100, 110), (200, 10), (300, 10)):
        clock.now += seconds
        log(tmp_path, jobs[0], {"step": step, "loss": 0.7})
        shown.show()
    assert "1m10s left" in stream.screen[1]


def test_at_the_last_step_it_scores(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1)], Terminal()
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    log(tmp_path, jobs[0], {"step": 1000, "loss": 0.7})
    shown.show()
    assert stream.screen[1].endswith("scores")


def test_expected_seconds_weigh_the_time_left(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2)], Terminal()
    expected = {jobs[0].runs[0].run_id: 10.0, jobs[1].runs[0].run_id: 90.0}
    shown = Live(jobs, tmp_path, runs=2, expected=expected, stream=stream)
    shown.started(jobs[0])
    clock.now += 20
    shown.ended(jobs[0], done(jobs[0]))
    shown.show()
    assert "at most 3m00s left" in stream.screen[0]  # 10 s took 20, so 90 will take 180


def test_the_bound_of_a_planned_sweep_falls_while_steps_get_longer(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2), job(3)], Terminal()
    expected = {each.runs[0].run_id: seconds for each, seconds in zip(jobs, (100.0, 100.0, 300.0), strict=True)}
    shown = Live(jobs, tmp_path, runs=3, expected=expected, stream=stream)
    bounds = []
    for first, step, seconds in ((True, 500, 25), (False, 1000, 50), (True, 500, 25), (False, 1000, 50)):
        each = jobs[len(bounds) // 2]
        if first:
            shown.started(each)
            shown.show()
        clock.now += seconds
        log(tmp_path, each, {"step": step, "loss": 0.7})
        shown.show()
        bounds.append(stream.screen[0].partition("at most ")[2])
        if not first:
            shown.ended(each, done(each))
    assert bounds == ["7m30s left", "6m40s left", "5m50s left", "5m00s left"]  # by the pace it was 3m45s, then 5m00s
    shown.started(jobs[2])
    shown.show()
    assert "at most 5m00s left" in stream.screen[0]


def test_the_time_left_is_that_of_runs_like_those_that_are_left(tmp_path: Path, clock: Clock) -> None:
    """The first runs may have compiled kernels, and what a learnt task took says little of another."""
    jobs, stream = [job(1), job(2), job(3, task="cycle_nav"), job(4), job(5, task="even_pairs")], Terminal()
    shown = display(jobs, tmp_path, stream)
    for each, seconds in zip(jobs[:3], (100.0, 20.0, 30.0), strict=True):
        shown.started(each)
        shown.show()
        assert "left" not in stream.screen[0]
        shown.ended(each, [Fate(each.runs[0].run_id, "done", "", 0.5, seconds)])
    shown.started(jobs[3])
    shown.show()
    assert "3/5 runs  1m50s left" in stream.screen[0]  # 60 s as parity's two, 50 as all three
    log(tmp_path, jobs[3], {"step": 500, "loss": 0.7})
    shown.show()
    assert "1m20s left" in stream.screen[0]
    shown.started(jobs[4])
    shown.show()
    assert "40s left" in stream.screen[0]  # by two workers


@pytest.mark.parametrize(
    ("passed", "says"), [(20, ["expected: about 15m30s for the packs under way alone; stop so"]), (200, [])]
)
def test_a_long_pack_says_so_once(passed: int, says: list[str], tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2)], io.StringIO()
    shown = Live(jobs, tmp_path, runs=2, expected={}, stream=stream, stopping="stop so")
    shown.started(jobs[0])
    shown.show()  # nothing is known yet
    clock.now += 19
    log(tmp_path, jobs[0], {"step": passed, "loss": 0.7})
    shown.show()  # too early to say
    for _ in range(3):
        clock.now += 1
        shown.show()
    assert [line for line in stream.getvalue().splitlines() if "expected" in line] == says


def test_a_long_sweep_says_so_once_and_a_planned_one_has_said_it(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(number) for number in range(1, 9)], io.StringIO()
    shown = Live(jobs, tmp_path, runs=8, expected={}, stream=stream, stopping="stop so")
    for each in jobs[:3]:
        shown.started(each)
        shown.ended(each, [Fate(each.runs[0].run_id, "done", "", 0.5, 300.0)])
    clock.now += 30
    for _ in range(2):
        shown.show()
    said = [line for line in stream.getvalue().splitlines() if "expected" in line]
    assert said == ["expected: about 25m00s more; stop so"]
    stream, known = io.StringIO(), {each.runs[0].run_id: 9000.0 for each in jobs}
    shown = Live(jobs, tmp_path / "20", runs=8, expected=known, stream=stream, stopping="stop so")
    clock.now += 60
    shown.show()
    assert "expected" not in stream.getvalue(), "the plan has said it"


def test_a_log_file_has_plain_lines(tmp_path: Path, clock: Clock) -> None:
    jobs, stream = [job(1), job(2, count=3), job(3)], io.StringIO()
    shown = display(jobs, tmp_path, stream)
    shown.started(jobs[0])
    log(tmp_path, jobs[0], {"step": 500, "loss": 0.25})
    clock.now += 30
    shown.show()
    shown.ended(jobs[0], done(jobs[0]))
    shown.started(jobs[1])
    shown.ended(jobs[1], [*done(jobs[1])[:2], *failed(jobs[1])[2:]])
    shown.started(jobs[2])
    shown.ended(jobs[2], failed(jobs[2]))
    first, third, last = jobs[0].runs[0].run_id, jobs[1].runs[2].run_id, jobs[2].runs[0].run_id
    assert stream.getvalue().splitlines() == [
        "0/5 runs  1 packs under way",
        "parity lstm s100                               500/1000  loss 0.2500",
        f"[1/3] {first}  1000 steps, test accuracy 0.500, 3.0s",
        f"{third} failed: RuntimeError: broken",
        "[2/3] 3 of parity lstm  2 of 3 runs done, mean test accuracy 0.500, 3.0s",
        f"{last} failed: RuntimeError: broken",
    ]


def test_quiet_says_failures_alone(tmp_path: Path) -> None:
    for stream in (Terminal(columns=120), io.StringIO()):
        jobs = [job(1), job(2)]
        with Live(jobs, tmp_path, runs=2, expected={}, stream=stream, quiet=True) as shown:
            shown.started(jobs[0])
            shown.say("not this")
            shown.ended(jobs[0], done(jobs[0]))
            shown.started(jobs[1])
            shown.ended(jobs[1], failed(jobs[1]))
        assert stream.getvalue() == f"{jobs[1].runs[0].run_id} failed: RuntimeError: broken\n"


def test_what_others_write_goes_above_the_display(tmp_path: Path, monkeypatch: Patch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(live, "_TERMINAL_EVERY", 1e9)
    jobs = [job(1)]
    with Live(jobs, tmp_path, runs=1, expected={}) as shown:
        shown.started(jobs[0])
        shown.show()
        print("a warning", file=sys.stderr)
        sys.stderr.write("half")
        shown.show()
        assert stream.screen[0] == "a warning" and stream.screen[1].startswith("[---")
    assert sys.stderr is stream
    assert stream.screen == ["a warning", "half", ""]


def test_it_redraws_by_itself(tmp_path: Path, monkeypatch: Patch) -> None:
    stream, jobs = Terminal(), [job(1)]
    monkeypatch.setattr(live, "_TERMINAL_EVERY", 0.01)
    with display(jobs, tmp_path, stream) as shown:
        shown.started(jobs[0])
        log(tmp_path, jobs[0], {"step": 10, "loss": 0.5})
        for _ in range(500):
            if "10/1000" in stream.getvalue():
                break
            shown._over.wait(0.01)
    assert "10/1000  loss 0.5000" in stream.getvalue()
    before = len(stream.getvalue())
    shown._over.wait(0.05)
    assert len(stream.getvalue()) == before


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (62, "1m02s"), (3600, "1h00m"), (359_999, "99h59m"), (360_000, "4d04h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
