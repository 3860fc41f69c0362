"""Progress is one line redrawn on a terminal, a line now and then in a log file, and nothing when quiet."""

import io
import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from chomsky_ladder.harness.train import progress
from chomsky_ladder.harness.train.progress import Progress


class Stream(io.StringIO):
    """A log file or a terminal that remembers how much of it was flushed."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.flushed = terminal, 0

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushed = len(self.getvalue())

    @property
    def screen(self) -> list[str]:
        """Return what a reader sees, after carriage returns and erasures."""
        lines = []
        for line in self.getvalue().split("\n"):
            redrawn = line.split("\r")
            assert all(part.startswith("\x1b[K") for part in redrawn[1:])
            lines.append(redrawn[-1].removeprefix("\x1b[K"))
        return lines


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def run_to_the_end(shown: Progress, clock: Clock, *, steps: int, seconds_a_step: float, first: int = 1) -> None:
    for step in range(first, steps + 1):
        clock.now += seconds_a_step
        shown.update(step, f"loss {1 / step:.2f}")
    shown.close("done")


def test_a_terminal_shows_one_line_redrawn(clock: Clock) -> None:
    stream = Stream(terminal=True)
    run_to_the_end(Progress("a-run", 50, stream=stream), clock, steps=50, seconds_a_step=0.125)
    assert stream.screen == ["a-run  done", ""]
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().count("\r") == 25 + 1  # at least 0.2 s apart, and the last word
    assert stream.flushed == len(stream.getvalue())


def test_a_terminal_is_not_redrawn_faster_than_one_can_read(clock: Clock) -> None:
    stream = Stream(terminal=True)
    run_to_the_end(Progress("a-run", 1000, stream=stream), clock, steps=1000, seconds_a_step=0.0005)
    assert 2 <= stream.getvalue().count("\r") <= 4


def test_a_log_file_gets_a_line_now_and_then(clock: Clock) -> None:
    stream = Stream(terminal=False)
    run_to_the_end(Progress("a-run", 100, stream=stream), clock, steps=100, seconds_a_step=1.0)
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()
    lines = stream.getvalue().splitlines()
    assert [re.sub(r"  loss .*", "", line) for line in lines] == [
        "a-run   30%  30/100",
        "a-run   60%  60/100",
        "a-run   90%  90/100",
        "a-run  done",
    ]
    assert re.search(r"  loss 0\.03  1m1\ds left$", lines[0])  # 30 steps in 30 s, 70 to go
    assert stream.getvalue().endswith("\n")
    assert stream.flushed == len(stream.getvalue())


def test_a_short_run_leaves_one_line_in_a_log_file(clock: Clock) -> None:
    stream = Stream(terminal=False)
    run_to_the_end(Progress("a-run", 100, stream=stream), clock, steps=100, seconds_a_step=0.2)
    assert stream.getvalue() == "a-run  done\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_long_says_so_once_the_first_steps_tell(terminal: bool, clock: Clock) -> None:
    stream = Stream(terminal=terminal)
    shown = Progress("a-run", 2000, stream=stream)
    shown.update(1)
    clock.now += 9.0
    shown.update(9)
    assert "expected" not in stream.getvalue()  # too early to say
    clock.now += 1.0
    shown.update(11)
    told = "expected: about 33m09s to the last step; Ctrl-C stops it behind a checkpoint, and the same command goes on"
    assert [line for line in stream.screen if "expected" in line] == [f"{told} from there"]  # and it stays
    clock.now += 100.0
    shown.update(20)
    shown.close("done")
    assert sum("expected" in line for line in stream.screen) == 1 and stream.screen[-2:] == ["a-run  done", ""]


def test_what_does_not_take_long_does_not(clock: Clock) -> None:
    for steps, stopping in ((500, "stop so"), (2000, "")):
        stream = Stream(terminal=False)
        run_to_the_end(
            Progress("a-run", steps, stream=stream, stopping=stopping), clock, steps=steps, seconds_a_step=1.0
        )
        assert [line for line in stream.screen if "expected" in line] == (
            [] if stopping else ["expected: about 33m10s to the last step"]
        )


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_is_silent(terminal: bool, clock: Clock) -> None:
    stream = Stream(terminal=terminal)
    run_to_the_end(Progress("a-run", 9, stream=stream, quiet=True), clock, steps=9, seconds_a_step=60.0)
    assert stream.getvalue() == ""


def test_a_resumed_run_does_not_count_what_it_did_not_do(clock: Clock) -> None:
    stream = Stream(terminal=False)
    shown = Progress("a-run", 1000, stream=stream)
    shown.update(901)
    clock.now += 40.0
    shown.update(921)
    assert stream.getvalue() == "a-run   92%  921/1000    2m38s left\n"  # 20 steps in 40 s, 79 to go


def test_without_a_rate_nothing_is_promised(clock: Clock) -> None:
    stream = Stream(terminal=False)
    shown = Progress("a-run", 10, stream=stream)
    clock.now += 40.0
    shown.update(1, "loss 0.50")
    assert stream.getvalue() == "a-run   10%  1/10  loss 0.50\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (62, "1m02s"), (3599, "59m59s"), (3600, "1h00m"), (7322, "2h02m")],
)
def test_durations(seconds: float, text: str, clock: Clock) -> None:
    """The time left, from one step of that many seconds done and one to go."""
    stream = Stream(terminal=True)
    shown = Progress("a-run", 2, stream=stream)
    shown.update(0)
    clock.now += max(seconds, 0.25)
    shown.update(1)
    assert stream.screen[-1] == f"a-run   50%  1/2    {text} left"


def test_nothing_to_do_is_no_error(clock: Clock) -> None:
    stream = Stream(terminal=True)
    shown = Progress("a-run", 0, stream=stream)
    clock.now += 1.0
    shown.update(0)
    shown.close("0 steps")
    assert stream.screen == ["a-run  0 steps", ""]


def test_progress_goes_to_stderr_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("a-run", 5).close("done")
    assert capsys.readouterr() == ("", "a-run  done\n")
