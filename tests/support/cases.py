"""Which cases of a parametrised test run every time, and which with `scripts/test --all` alone.

    @pytest.mark.parametrize("model", some(MODELS))  # every third each time
    @pytest.mark.parametrize("model", some(MODELS, always=KINDS))  # these each time
    @pytest.mark.parametrize("rows", [60, full(10_000)])

What `--all` adds is more of the same: each kind of mistake has a case that runs every time.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

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
