"""The transition monoid of an automaton, and what its groups say about the language.

    (ab)*  6 elements, star-free        (aa)* over {a}  2 elements, the group Z2        any language of A5  not solvable

A regular language is star-free (first-order definable) iff every group in its syntactic monoid is trivial
(Schuetzenberger 1965). It is complete for NC1 iff one of them is not solvable, else in ACC0 (Barrington and Therien
1988). The syntactic monoid is the transition monoid of the minimal automaton.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from chomsky_ladder.tasks._c_rasp import in_c_rasp

MOST = 10_000
"""The largest number of elements of a monoid that is computed."""
MOST_STATES = 256

Map = bytes  # state -> state, for at most 256 of them; f.translate(g) is f, then g


class SyntacticClass(NamedTuple):
    num_elements: int  # with the identity, which the empty string makes
    star_free: bool
    solvable: bool  # every group in the monoid is solvable
    abelian: bool  # every group in the monoid is abelian
    exponent: int  # the least power that takes any element of any group to its neutral one


@lru_cache(maxsize=64)
def syntactic_class(transitions: tuple[tuple[int, ...], ...]) -> SyntacticClass | None:
    """Return the class of the minimal automaton with these transitions [state][symbol]; None: too large a monoid."""
    if len(transitions) > MOST_STATES:
        return None
    identity = bytes(range(MOST_STATES))
    letters = [bytes(column) + identity[len(transitions) :] for column in zip(*transitions, strict=True)]
    monoid = _generated(letters, neutral=identity)
    if len(monoid) > MOST:
        return None
    groups = _groups(monoid)
    return SyntacticClass(
        num_elements=len(monoid),
        star_free=all(len(group) == 1 for group in groups.values()),
        solvable=all(_is_solvable(group, neutral=neutral) for neutral, group in groups.items()),
        abelian=all(_is_abelian(group, neutral=neutral) for neutral, group in groups.items()),
        exponent=math.lcm(*(_order(x, neutral=neutral) for neutral, group in groups.items() for x in group)),
    )


def facts(transitions: tuple[tuple[int, ...], ...]) -> dict[str, str]:
    """Return the class in words."""
    found = syntactic_class(transitions)
    unknown = "not computed"
    if found is None:
        size = f"more than {MOST} elements" if len(transitions) <= MOST_STATES else unknown
        return {"transition monoid": size, "star-free": unknown, "solvable groups": unknown, "in C-RASP": unknown}
    return {
        "transition monoid": f"{found.num_elements} elements",
        "star-free": _word(found.star_free),
        "solvable groups": _word(found.solvable),
        "in C-RASP": _word(in_c_rasp(transitions)),
    }


def _word(is_so: bool) -> str:
    return "yes" if is_so else "no"


def demand(transitions: tuple[tuple[int, ...], ...]) -> str:
    """Return the language's demand on a state, by the names of harness/config/theory.py."""
    found = syntactic_class(transitions)
    if found is None:
        return ""
    if found.star_free:
        return "star-free"
    if not found.solvable:
        return "non-solvable"
    if not found.abelian:
        return "solvable"
    if found.exponent == 2:
        return "parity"
    return "" if found.exponent & (found.exponent - 1) == 0 else "cyclic"  # nothing is known for Z4 and Z8


def _generated(generators: Sequence[Map], *, neutral: Map) -> list[Map]:
    """Return all products of the generators, breadth-first from the neutral element; stop beyond MOST."""
    found, queue = {neutral}, [neutral]
    for element in queue:
        for generator in generators:
            product = element.translate(generator)
            if product not in found:
                found.add(product)
                queue.append(product)
        if len(queue) > MOST:
            break
    return queue


def _groups(monoid: Sequence[Map]) -> dict[Map, list[Map]]:
    """Return the maximal subgroup around each idempotent: the elements that are powers of themselves."""
    groups: dict[Map, list[Map]] = {}
    seen: set[Map] = set()
    for element in monoid:
        if element in seen:
            continue
        powers, power = {}, element
        while power not in powers:
            powers[power] = len(powers)
            power = power.translate(element)
        cycle = list(powers)[powers[power] :]
        neutral = next(power for power in cycle if power.translate(power) == power)
        groups.setdefault(neutral, []).extend(power for power in cycle if power not in seen)
        seen.update(powers)
    return groups


def _is_solvable(group: Sequence[Map], *, neutral: Map) -> bool:
    """Return True if the derived groups end in the trivial one.

    A group of fewer than 60 elements is always solvable.
    """
    while len(group) >= 60:
        derived = _derived(_generators(group, neutral=neutral), neutral=neutral)
        if len(derived) == len(group):
            return False
        group = derived
    return True


def _is_abelian(group: Sequence[Map], *, neutral: Map) -> bool:
    generators = _generators(group, neutral=neutral)
    return all(x.translate(y) == y.translate(x) for x in generators for y in generators)


def _order(element: Map, *, neutral: Map) -> int:
    count, power = 1, element
    while power != neutral:
        count, power = count + 1, power.translate(element)
    return count


def _generators(group: Sequence[Map], *, neutral: Map) -> list[Map]:
    """Return few generators of the group. Each at least doubles the subgroup of those before it."""
    generators: list[Map] = []
    made = {neutral}
    for element in group:
        if element not in made:
            generators.append(element)
            made = set(_generated(generators, neutral=neutral))
    return generators


def _derived(generators: Sequence[Map], *, neutral: Map) -> list[Map]:
    """Return the commutator subgroup, generated by the generators' commutators and their conjugates."""
    pairs = [(x, _inverse(x, neutral=neutral)) for x in generators]
    normal: list[Map] = []
    made = {neutral}
    queue = [
        x.translate(y).translate(x_inverse).translate(y_inverse) for x, x_inverse in pairs for y, y_inverse in pairs
    ]
    for element in queue:
        if element not in made:
            normal.append(element)
            made = set(_generated(normal, neutral=neutral))
            queue.extend(x_inverse.translate(element).translate(x) for x, x_inverse in pairs)
    return list(made)


def _inverse(element: Map, *, neutral: Map) -> Map:
    power = neutral
    while (after := power.translate(element)) != neutral:
        power = after
    return power
