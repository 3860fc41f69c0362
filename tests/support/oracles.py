"""The languages once more in plain Python, a symbol at a time: what every task's answers and states are held to.

An oracle reads the prompt of a string as symbols of `task.vocab`, with or without what closes it, and returns the
answers as symbols; none where a prefix has none. A machine returns the state after each symbol of the prompt as a
tuple; a closing token other than '=' changes nothing, and after the prompt the last state is held. A language says of
a string, without what closes it, whether a task with the given fields may draw it.

    >>> ORACLES["mod_arithmetic"](["2", "+", "3", "*", "4", "="])
    ['4']
    >>> ORACLES["stack_manipulation"](["ST1", "ST2", "POP", "PS4", "ACT"])
    ['ST1', 'ST4']
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from support import (
    oracles_automata,
    oracles_circuits,
    oracles_flare,
    oracles_grammar,
    oracles_groups,
    oracles_hidden_states,
    oracles_ladder,
    oracles_numbers,
    oracles_rearrangements,
    oracles_recall,
    oracles_regular,
)

MODULES = (
    oracles_ladder,
    oracles_rearrangements,
    oracles_numbers,
    oracles_automata,
    oracles_groups,
    oracles_hidden_states,
    oracles_regular,
    oracles_recall,
    oracles_flare,
    oracles_grammar,
    oracles_circuits,
)


def gathered(table: str, modules: tuple[ModuleType, ...] = MODULES) -> dict[str, Any]:
    """One table of all modules; no two may speak of one task."""
    entries = [entry for module in modules for entry in getattr(module, table, {}).items()]
    assert len(dict(entries)) == len(entries), table
    return dict(entries)


LANGUAGES: dict[str, Callable[..., bool]] = gathered("LANGUAGES")
ORACLES: dict[str, Callable[..., list[str]]] = gathered("ORACLES")
PREFIXES: dict[str, Callable[..., list[str]]] = gathered("PREFIXES")
"""The answers of all prefixes at once, where an oracle run on every prefix would take too long."""
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = gathered("MACHINES")
OPTIONS: dict[str, tuple[str, ...]] = gathered("OPTIONS")
"""The fields of a task its oracle and its machine need to know."""
