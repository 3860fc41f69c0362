"""A guard on what the tests cost: the run prints its processor seconds, and above `MOST` it fails.

Wall time says little on a busy machine, so processor seconds are counted: of each test, with the processes it started
and waited for, and of all processes of the run. A run of `scripts/test --all` is not held to the limit. Children that
still run, such as the one in which Triton interprets, count in the run alone: a look for them takes milliseconds.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MOST = 1000.0
NAMED = 10
KEY = "processor_s"

_by_test: dict[str, float] = {}
_of_workers: list[float] = []


def used(*, children: bool = True) -> float:
    """Return the processor seconds of this process, and of those it waited for unless told not to count them."""
    times = os.times()
    return times.user + times.system + (times.children_user + times.children_system if children else 0.0)


def _alive() -> float:
    """Return the processor seconds of children that still run."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += sum(map(int, fields[11:15]))  # its own, and those of its children that ended
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_START] = used()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    item.user_properties.append((KEY, used() - item.stash[_START]))
    return result


_START = pytest.StashKey[float]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _by_test[report.nodeid] = dict(report.user_properties).get(KEY, 0.0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker process of pytest-xdist has used."""
    _of_workers.append(getattr(node, "workeroutput", {}).get(KEY, 0.0))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a worker: the process that started it adds them up
        output[KEY] = used() + _alive()
    elif exceeded(session.config) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def exceeded(config: pytest.Config) -> bool:
    return total() > MOST and config.option.markexpr != ""


def total() -> float:
    """Return the processor seconds of the whole run. Workers are children, and have counted themselves."""
    return used(children=False) + sum(_of_workers) if _of_workers else used() + _alive()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.write_line(f"{total():.0f} processor seconds")
    if exceeded(config):
        terminalreporter.write_line(
            f"more than {MOST:.0f}, so this run fails; the slowest tests, in processor seconds:"
        )
        for name, seconds in sorted(_by_test.items(), key=lambda each: -each[1])[:NAMED]:
            terminalreporter.write_line(f"  {seconds:6.1f}  {name}")
