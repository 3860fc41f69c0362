"""Finite groups as tables: symmetric, alternating, cyclic and dihedral groups, and their direct products.

    S3  012 021 102 120 201 210        A4  0123 0231 ..        Z5  0 1 2 3 4        D4  r0 .. r3 s0 .. s3
    A4xZ5  0123|0 0123|1 ..            a product, factor by factor

An element of S or A is written as the images of 0, 1, .. in a row. k of Z adds k. rk maps a polygon's corner i to i +
k, and sk to k - i. All are permutations of some points, x first, then y: (x y)(i) = y[x[i]].
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept

MOST = 1000
"""The largest number of elements of a group. Its table has the square of this."""

Permutation = tuple[int, ...]
_LEAST = {"S": 3, "A": 4, "Z": 2, "D": 3}
_SIZES = {"S": math.factorial, "A": lambda n: math.factorial(n) // 2, "Z": lambda n: n, "D": lambda n: 2 * n}


class Group(NamedTuple):
    names: tuple[str, ...]
    elements: tuple[Permutation, ...]  # the neutral element first
    table: np.ndarray  # [x, y]: x first, then y
    generators: tuple[int, ...]


class _Factor(NamedTuple):
    names: list[str]
    elements: list[Permutation]
    generators: list[Permutation]


@kept
def group(name: str) -> Group:
    """Return the group of this name. Refuse any other name."""
    factors = [_factor(*part) for part in _parsed(name)]
    names = tuple("|".join(parts) for parts in product(*(factor.names for factor in factors)))
    elements = tuple(_side_by_side(parts) for parts in product(*(factor.elements for factor in factors)))
    number = {element: index for index, element in enumerate(elements)}
    points_ED = np.array(elements)
    composed_EED = points_ED[:, points_ED].transpose(1, 0, 2)  # [y, x, i] -> y[x[i]], turned to [x, y, i]
    table = np.array([[number[tuple(z)] for z in row] for row in composed_EED.tolist()])
    neutral = [factor.elements[0] for factor in factors]
    generators = dict.fromkeys(
        _side_by_side([*neutral[:place], one, *neutral[place + 1 :]])
        for place, factor in enumerate(factors)
        for one in factor.generators
    )
    return Group(names, elements, table, tuple(number[one] for one in generators))


def _parsed(name: str) -> list[tuple[str, int]]:
    """Return each factor's kind and number."""
    parts = [re.fullmatch(r"([SAZD])(\d{1,3})", part) for part in name.split("x")]
    found = [(part[1], int(part[2])) for part in parts if part]
    is_known = len(found) == len(parts) and all(number >= _LEAST[kind] for kind, number in found)
    too_large = f"{name} has more than {MOST} elements"
    if not is_known:
        least = ", ".join(f"{kind}{number}" for kind, number in _LEAST.items())
        raise ValueError(f"word_problem: no group {name!r}; there are {least} and on, and products such as A4xZ5")
    if max((number for kind, number in found if kind in "SA"), default=0) > 6:
        raise ValueError(f"word_problem: {too_large}")
    if math.prod(_SIZES[kind](number) for kind, number in found) > MOST or sum(n for _, n in found) > 256:
        raise ValueError(f"word_problem: {too_large}, or moves more than 256 points")
    return found


def _factor(kind: str, number: int) -> _Factor:
    points = range(number)
    turn = tuple((place + 1) % number for place in points)
    if kind in "SA":
        elements = [x for x in permutations(points) if kind == "S" or is_even(x)]
        first = (1, 0, *points[2:]) if kind == "S" else (1, 2, 0, *points[3:])
        cycle = turn if kind == "S" or number % 2 else (0, *points[2:], 1)  # a cycle of even length is odd
        return _Factor(["".join(map(str, x)) for x in elements], elements, [first, cycle])
    turns = [tuple((place + k) % number for place in points) for k in points]
    if kind == "Z":
        return _Factor([str(k) for k in points], turns, turns[:2])
    mirrors = [tuple((k - place) % number for place in points) for k in points]
    names = [f"{letter}{k}" for letter in "rs" for k in points]
    return _Factor(names, turns + mirrors, [turns[1], mirrors[0]])


def _side_by_side(parts: Sequence[Permutation]) -> Permutation:
    """Combine permutations of several sets of points into one of all points."""
    whole: list[int] = []
    for part in parts:
        start = len(whole)
        whole += [start + place for place in part]
    return tuple(whole)


def is_even(x: Sequence[int]) -> bool:
    return sum(before > after for before, after in combinations(x, 2)) % 2 == 0


def moved(x: Permutation) -> int:
    """Count the points that do not stay in place."""
    return sum(image != place for place, image in enumerate(x))


def transitions(name: str) -> tuple[tuple[int, ...], ...]:
    """Return the generators' action on the points: an automaton whose transition monoid is the group."""
    found = group(name)
    return tuple(zip(*(found.elements[one] for one in found.generators), strict=True))


@kept
def order(name: str) -> int:
    """Return the number of elements."""
    return len(group(name).elements)


@kept
def table_of(name: str, device: torch.device) -> Tensor:
    """Return a flat table with the product of x and y at x * order + y."""
    return torch.from_numpy(group(name).table).flatten().to(device)


def running(element_BL: Tensor, table: Tensor, *, num: int) -> Tensor:
    """Return the product of each prefix, computed first for prefixes that end with a pair, by products of pairs."""
    if element_BL.shape[1] <= 1:
        return element_BL
    firsts_BP, seconds_BP = element_BL[:, ::2], element_BL[:, 1::2]
    pairs = seconds_BP.shape[1]
    ends_BP = running(_product(firsts_BP[:, :pairs], seconds_BP, table, num=num), table, num=num)
    later_BP = _product(ends_BP[:, : firsts_BP.shape[1] - 1], firsts_BP[:, 1:], table, num=num)
    inside_BP = torch.cat([firsts_BP[:, :1], later_BP], dim=1)
    both_BL = torch.stack([inside_BP[:, :pairs], ends_BP], dim=2).flatten(1)
    return torch.cat([both_BL, inside_BP[:, pairs:]], dim=1)


def _product(x_BP: Tensor, y_BP: Tensor, table: Tensor, *, num: int) -> Tensor:
    return table.index_select(0, (x_BP * num + y_BP).flatten()).view(x_BP.shape)


@kept
def points(name: str) -> range:
    """Return the points that a group permutes."""
    return range(len(group(name).elements[0]))


def _parts(name: str, observe: str) -> list[int]:
    elements = group(name).elements
    seen = {"image": [x[0] for x in elements], "source": [x.index(0) for x in elements]}
    return seen.get(observe, list(range(len(elements))))


@kept
def parts(name: str, observe: str, device: torch.device) -> Tensor:
    """Return the part of each element that is seen: all of it, the point that 0 goes to, or the one that comes to 0."""
    return torch.tensor(_parts(name, observe), device=device)


def folded(law: np.ndarray, name: str, observe: str) -> np.ndarray:
    """Return P(part) from P(element), [.., parts]."""
    seen = _parts(name, observe)
    return law @ np.eye(max(seen) + 1)[seen]


@lru_cache(maxsize=32)
def walk(name: str, symbols: tuple[int, ...], steps: int, *, effect: int) -> np.ndarray:
    """Return P(product) of 0, 1 .. uniform draws from these symbols, [steps + 1, elements].

    A draw takes effect in `effect` of 100 cases.
    """
    found = group(name)
    after = found.table[:, list(symbols)]
    law = np.zeros((steps + 1, len(found.elements)))
    law[0, 0] = 1
    for step in range(steps):
        np.add.at(law[step + 1], after, effect / 100 * law[step, :, None] / len(symbols))
        law[step + 1] += (1 - effect / 100) * law[step]
    return law
