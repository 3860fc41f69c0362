"""Read automata in AT&T's text format, as OpenFst prints (`fstprint`) and MLRegTest publishes, and minimise them.

    0  1  a  a        from state 0 to state 1 with "a"; a line of three columns names the symbol once
    1  0  a  a
    0  0  b  b
    6                 an accepting state; the first line's first state is the start

States are numbers or words, symbols are single visible characters. An automaton may be nondeterministic and have empty
moves (<eps>). A move that no line describes leads to a dead state. A line that changes a symbol into another, or has a
weight, is refused, because that is no language.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from chomsky_ladder.tasks._automata import Automaton, minimised
from chomsky_ladder.tasks._regex import Machine

EMPTY = ("<eps>", "<epsilon>", "@0@", "ε")
MOST_LINES, MOST_STATES, MOST_SYMBOLS = 200_000, 1024, 64


def digest(path: str) -> str:
    """Return the first 16 digits of a file's sha256."""
    if not Path(path).is_file():
        raise ValueError(f"regular: there is no file {path}")
    found = Path(path).stat()
    return _digest(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _digest(path: str, changed: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=64)
def open_att(path: str, sha256: str, *, alphabet: str) -> Automaton:
    """Return the minimal automaton of a file with this hash, over `alphabet` or the symbols in the file."""
    if not Path(path).is_file():
        raise ValueError(f"regular: the file {path} has gone")
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest()[:16] != sha256:
        raise ValueError(f"regular: {path} has another automaton now than file_sha256={sha256} says")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"regular: {path} is no text") from None
    return from_att(text, alphabet=alphabet, called=Path(path).name)


def from_att(text: str, *, alphabet: str, called: str = "the file") -> Automaton:
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise ValueError(f"regular: {called} is empty")
    if len(lines) > MOST_LINES:
        raise ValueError(f"regular: {called} has {len(lines):,} lines, more than {MOST_LINES:,}")
    number_of: dict[str, int] = {}
    moves: list[tuple[int, str, int]] = []
    ends: set[int] = set()
    for place, columns in lines:
        state = number_of.setdefault(columns[0], len(number_of))
        if len(columns) <= 2:
            _refuse_weight(columns[1:], called, place)
            ends.add(state)
            continue
        _refuse_weight(columns[4:], called, place)
        after, symbol, *written = columns[1:4]
        if written and written[0] != symbol:
            _refuse(called, place, f"{symbol!r} becomes {written[0]!r}: that is a transducer, and no language")
        if symbol not in EMPTY and (len(symbol) != 1 or not symbol.isprintable()):
            _refuse(called, place, f"a symbol is one visible character or <eps>, not {symbol!r}")
        moves.append((state, symbol, number_of.setdefault(after, len(number_of))))
    if not ends:
        raise ValueError(f"regular: {called} has no state of acceptance: a line with nothing but its name")
    symbols = _alphabet(alphabet, {symbol for _, symbol, _ in moves} - {*EMPTY}, called)
    machine = Machine(symbols, [[] for _ in number_of], [[] for _ in number_of])
    for state, symbol, after in moves:
        if symbol in EMPTY:
            machine.empty[state].append(after)
        else:
            machine.moves[state].append((frozenset(symbol), after))
    found = minimised(machine.deterministic(ends, what=called), most=MOST_STATES)
    if found is None:
        raise ValueError(f"regular: the minimal automaton of {called} has more than {MOST_STATES} states")
    return found


def _alphabet(given: str, used: set[str], called: str) -> str:
    if given and len(set(given)) < len(given):
        raise ValueError(f"regular: alphabet {given!r} must list each symbol once")
    symbols = given or "".join(sorted(used))
    if missing := sorted(used - set(symbols)):
        raise ValueError(f"regular: {missing[0]!r}, which {called} has, is not in the alphabet {given!r}")
    if not 2 <= len(symbols) <= MOST_SYMBOLS:
        raise ValueError(f"regular: {called} has {len(symbols)} symbols, and an alphabet 2..{MOST_SYMBOLS}")
    return symbols


def _refuse_weight(columns: list[str], called: str, place: int) -> None:
    if len(columns) > 1:
        _refuse(called, place, "a line has at most five columns: from, to, symbol, symbol, weight")
    try:
        weighs = bool(columns) and float(columns[0]) != 0
    except ValueError:
        _refuse(called, place, f"{columns[0]!r} is no weight")
    if weighs:
        _refuse(called, place, f"weight {columns[0]}: a language has no weights but 0")


def _refuse(called: str, place: int, why: str) -> NoReturn:
    raise ValueError(f"regular: {called}, line {place}: {why}")
