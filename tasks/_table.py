"""Read transition tables for the task `regular`, and turn them into minimal automata.

    from_table("even: a>odd b>even; odd: a>even b>odd; accept odd", alphabet="")        2 states: parity of the "a"s

The first row is the start state's. A symbol missing from a row leads to a dead state.
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import NoReturn

from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._regex import checked_alphabet, minimal

MOST_ROWS = 4096


@kept
def from_table(table: str, *, alphabet: str) -> Automaton:
    """Return the minimal automaton of a table like "0: a>1 b>0; 1: a>0 b>1; accept 1"."""
    *rows, last = [part.strip() for part in table.rstrip("; ").split(";")]
    if last.split()[:1] != ["accept"] or not rows:
        _refuse(last, 'a table is rows "state: symbol>state .." and ends with "accept state ..", parted by ";"')
    moves: dict[str, dict[str, str]] = {}
    for row in rows:
        found = re.fullmatch(r"(\w+)\s*:((\s*\S>\w+)*)", row)
        if not found:
            _refuse(row, 'a row reads "state: symbol>state symbol>state .."')
        if found[1] in moves or found[1] == "accept":
            _refuse(row, f"{found[1]!r} cannot name another state")
        steps = [(step[0], step[2:]) for step in found[2].split()]
        if len(moves.setdefault(found[1], dict(steps))) < len(steps):
            _refuse(row, "a symbol stands here twice")
    for row, steps in zip(rows, moves.values(), strict=True):
        _known(steps.values(), moves, part=row)
    accepting = last.split()[1:]
    _known(accepting, moves, part=last)
    if len(moves) > MOST_ROWS:
        raise ValueError(f"regular: the table has {len(moves)} states, more than {MOST_ROWS}")
    symbols = checked_alphabet(alphabet, set(chain.from_iterable(moves.values())))
    number = {name: index for index, name in enumerate(moves)}
    dead = len(number)
    transitions = [tuple(number.get(steps.get(symbol, ""), dead) for symbol in symbols) for steps in moves.values()]
    return minimal(
        Automaton(
            transitions=(*transitions, (dead,) * len(symbols)),
            accepting=(*(name in accepting for name in moves), False),
            alphabet=symbols,
        )
    )


def _known(states: Iterable[str], moves: dict[str, dict[str, str]], *, part: str) -> None:
    for state in states:
        if state not in moves:
            _refuse(part, f"no row describes the state {state!r}")


def _refuse(part: str, why: str) -> NoReturn:
    raise ValueError(f"regular: table, in {part!r}: {why}")
