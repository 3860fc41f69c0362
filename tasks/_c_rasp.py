"""Decide if a regular language is in C-RASP, the programs that count, on which Transformers keep their length.

    (ab)*  yes        (ab|bbaa)*  yes        (ab|aabb)*  no        "ends in b"  no        parity  no

C-RASP counts the positions so far at which a formula holds, and compares sums of counts with constants (Yang and Chiang
2024, 2404.04393). Transformers without positions that learn what is in it provably keep their length under an idealised
learner, and in experiments lose it on languages outside (Huang et al. 2025, 2410.02140). The test is that of Yang et
al. 2026 (2608.13433, appendix J), written anew. It treats each strongly connected part of the minimal automaton:

    give each symbol a number, so that every loop sums to 0      then each state has a value, the sum of a path to it
    tell symbols apart by the values of the states before them   and repeat until no states with equal values part

The language is in C-RASP iff at the end each state of each part has a class of its own: a counter that no loop moves is
all that a program may trust after a long string. Two states have equal values for all such numbers iff their paths
differ by a sum of loops, so a state's class is its path modulo the loops, by exact elimination.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

Letter = tuple[int, int]  # a symbol, and the class of the state before it
Vector = dict[Letter, Fraction]  # without zeros
Table = tuple[tuple[int, ...], ...]  # [state][symbol]


@lru_cache(maxsize=64)
def in_c_rasp(transitions: Table) -> bool:
    """Return the answer for the minimal automaton with these transitions, all states reachable from 0."""
    return all(_separable(part, transitions) for part in _components(transitions))


def _separable(part: Sequence[int], transitions: Table) -> bool:
    """Return True if counters that no loop moves tell all states of a strongly connected part apart."""
    inside = set(part)
    edges = [(q, symbol, after) for q in part for symbol, after in enumerate(transitions[q]) if after in inside]
    class_of, count = dict.fromkeys(part, 0), 1
    while count < len(part):
        paths = _paths(part[0], [(q, (symbol, class_of[q]), after) for q, symbol, after in edges])
        number: dict[frozenset[tuple[Letter, Fraction]], int] = {}
        class_of = {q: number.setdefault(frozenset(paths[q].items()), len(number)) for q in part}
        if len(number) == count:
            return False
        count = len(number)
    return True


def _paths(start: int, edges: Sequence[tuple[int, Letter, int]]) -> dict[int, Vector]:
    """Return how often each letter lies on a path to each state, modulo the loops."""
    after: dict[int, list[tuple[Letter, int]]] = {}
    for q, letter, r in edges:
        after.setdefault(q, []).append((letter, r))
    paths: dict[int, Vector] = {start: {}}
    queue = deque([start])
    while queue:
        q = queue.popleft()
        for letter, r in after[q]:
            if r not in paths:
                paths[r] = _plus(paths[q], {letter: Fraction(1)}, 1)
                queue.append(r)
    rows: dict[Letter, Vector] = {}  # reduced: the letter of a row is in no other
    for q, letter, r in edges:
        loop = _modulo(_plus(_plus(paths[q], {letter: Fraction(1)}, 1), paths[r], -1), rows)
        if loop:
            pivot = min(loop)
            loop = {key: value / loop[pivot] for key, value in loop.items()}
            rows = {key: _plus(row, loop, -row[pivot]) if pivot in row else row for key, row in rows.items()}
            rows[pivot] = loop
    return {q: _modulo(path, rows) for q, path in paths.items()}


def _modulo(vector: Vector, rows: dict[Letter, Vector]) -> Vector:
    for letter, value in list(vector.items()):
        if letter in rows:
            vector = _plus(vector, rows[letter], -value)
    return vector


def _plus(one: Vector, other: Vector, factor: Fraction | int) -> Vector:
    """Return one + factor other."""
    total = dict(one)
    for letter, value in other.items():
        total[letter] = total.get(letter, Fraction(0)) + factor * value
        if not total[letter]:
            del total[letter]
    return total


def _components(transitions: Table) -> Iterator[list[int]]:
    """Yield the strongly connected parts (Tarjan 1972, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    held: set[int] = set()
    work = [(0, iter(transitions[0]))]
    while work:
        q, rest = work[-1]
        if q not in order:
            order[q] = low[q] = len(order)
            stack.append(q)
            held.add(q)
        for r in rest:
            if r not in order:
                work.append((r, iter(transitions[r])))
                break
            if r in held:
                low[q] = min(low[q], order[r])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[q])
            if low[q] == order[q]:
                first = stack.index(q)
                part, stack = stack[first:], stack[:first]
                held.difference_update(part)
                yield part
