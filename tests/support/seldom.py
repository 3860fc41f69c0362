"""Which models train in the slow tests alone: loops by nature, which would cost as much as all the others together."""

from collections.abc import Iterable

import pytest

LOOPS = ("dnc", "ntm", "tape_rnn")


def seldom(names: Iterable[str]) -> list:
    """The parameters of a test that trains each model; `-m slow` runs it for the loops."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LOOPS else name for name in names]
