"""Formal languages and other tasks, one file each, and the names you need to write your own:

    from chomsky_ladder.tasks import Classification, Draw, Transduction, register

Each name is imported from its own file on first use. Tasks themselves are found by name (`ladder list`). A regular
language only needs its automaton: `Membership` and `from_pattern` or `from_table`.
"""

from typing import TYPE_CHECKING

from chomsky_ladder.face import face

if TYPE_CHECKING:
    from chomsky_ladder.tasks._automata import Automaton
    from chomsky_ladder.tasks._membership import Membership
    from chomsky_ladder.tasks._regex import from_pattern
    from chomsky_ladder.tasks._table import from_table
    from chomsky_ladder.tasks.base import PAD, Batch, Floors, Task, register
    from chomsky_ladder.tasks.draw import Draw
    from chomsky_ladder.tasks.layout import Classification, MarkedTransduction, Transduction

__all__ = [
    "PAD",
    "Automaton",
    "Batch",
    "Classification",
    "Draw",
    "Floors",
    "MarkedTransduction",
    "Membership",
    "Task",
    "Transduction",
    "from_pattern",
    "from_table",
    "register",
]

_HOMES = {
    "tasks._automata": ("Automaton",),
    "tasks._membership": ("Membership",),
    "tasks._regex": ("from_pattern",),
    "tasks._table": ("from_table",),
    "tasks.base": ("PAD", "Batch", "Floors", "Task", "register"),
    "tasks.draw": ("Draw",),
    "tasks.layout": ("Classification", "MarkedTransduction", "Transduction"),
}

__getattr__, __dir__ = face(__name__, _HOMES)
