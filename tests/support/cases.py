"""The cases that run every time, and those that run with `scripts/test --all` alone.

    @pytest.mark.parametrize("model", some(MODELS, always=KINDS))  # these may run each time
    @pytest.mark.parametrize("rows", [60, full(10_000)])

Two cases of each test run, the first and the last (`EACH_TIME`), or as many as its mark `each_time` says. A run that
names a case or a keyword gets all that it names. `--all` adds more of the same: each kind of mistake has a case that
runs every time.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

EACH_TIME = 2
DAILY = "not slow and not full"  # the marks of a run without --all, as pyproject.toml has them

KINDS = ("lstm", "mamba", "delta_net", "xlstm", "stack_rnn", "hyena", "moe", "encoder_decoder")
"""One model for each kind of state: gates, a diagonal, a matrix, both scans of xLSTM, a stack, a filter, what attention
keeps (with a loss beside the answers'), and a string that is read at once.
"""
LOOPS = ("dnc", "ntm", "tape_rnn")
"""Models that are loops by nature: in training each costs as much as all the others together."""


def full(*values: Any) -> Any:
    """The parameters of one case that runs with `--all`; or such a case of what `pytest.param` made."""
    if isinstance(values[0], type(pytest.param())):
        return values[0]._replace(marks=[*values[0].marks, pytest.mark.full])
    return pytest.param(*values, marks=pytest.mark.full)


def some(cases: Iterable[Any], *, always: Collection[Any] | int = 3) -> list[Any]:
    """All cases, of which these or every so many-th run each time; a tuple stands for several parameters."""
    cases = list(cases)
    kept = cases[::always] if isinstance(always, int) else [case for case in cases if case in always]
    assert kept and (isinstance(always, int) or len(kept) == len(always)), "each time some, and none that is not there"
    return [case if any(case is one for one in kept) else full(*_values(case)) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if type(case) is tuple else (case,)


def asked_for(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[str]:
    """The names among a test's cases that this session runs, for a fixture that works for all of them at once."""
    return [item.callspec.params["name"] for item in request.session.items if getattr(item, "function", None) is test]


@pytest.hookimpl(trylast=True)  # behind those that leave cases out by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but a few cases of each test, unless the run asks for all or names what it wants."""
    if config.option.markexpr != DAILY or config.option.keyword or any("::" in word for word in config.args):
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for cases in tests.values() for item in spread(cases, _each_time(cases[0]))}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _each_time(item: pytest.Item) -> int:
    mark = item.get_closest_marker("each_time")
    return mark.args[0] if mark else EACH_TIME


def spread(cases: list[Any], count: int) -> list[Any]:
    """Return so many cases, the first and the last among them, as evenly as can be."""
    if len(cases) <= count or count == 1:
        return cases[:count]
    return [cases[round(place * (len(cases) - 1) / (count - 1))] for place in range(count)]
