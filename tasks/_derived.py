"""A grammar's language for tasks/_edits.py: members of a size, membership of any string, and sure non-members.

Members to be edited are uniform over the derivations of their size, so over strings if each has one derivation. The
task's own members are drawn the same way. In an ambiguous grammar short members are drawn TRIES times. The first draw
that passes a test with probability 1 / its derivations is taken. If none passes, one of them is taken with weight 1 /
its derivations. Beyond EVEN symbols this would take too long, and the first draw is taken. Sure non-members are x a a
.. a y for three symbols. They are checked for every size beforehand.
"""

from itertools import islice, product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import rounded
from chomsky_ladder.tasks._grammar import Grammar, ambiguous_size, derivations
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._trees import MOST_COUNTED, derives, num_derivations, random_strings
from chomsky_ladder.tasks.draw import Draw

TRIES, EVEN = 8, 48
MOST_SHAPES = 256  # of sure non-members


class Derived(NamedTuple):
    grammar: Grammar

    @property
    def num_symbols(self) -> int:
        return len(self.grammar.symbols)

    def has_members(self, most: int, device: torch.device) -> Tensor:
        return _sizes(self.grammar, rounded(most + 1), device)

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return random_strings(self.grammar, draw, size_B, columns, most=rounded(columns + 1))

    def even_members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw members nearly uniform over the strings."""
        if not ambiguous_size(self.grammar)[0]:
            return self.members(draw, size_B, columns)
        short, tries, counts = min(columns, EVEN), [], []
        for number in range(TRIES):
            x_BL = self.members(draw.child(f"derivation {number}"), size_B, columns)
            found_BL = num_derivations(self.grammar, x_BL[:, :short])
            found_B = found_BL.gather(1, (size_B.clamp(1, short) - 1)[:, None])[:, 0].clamp(min=1)
            tries.append(x_BL)
            counts.append(torch.where(size_B > short, 1, found_B))
        count_BT = torch.stack(counts, dim=1)
        passes_BT = draw.integers(MOST_COUNTED, (TRIES,)) * count_BT < MOST_COUNTED
        sum_BT = (MOST_COUNTED // count_BT).cumsum(1)
        by_share_B = (draw.integers(sum_BT[:, -1])[:, None] >= sum_BT).sum(1)
        chosen_B = torch.where(passes_BT.any(1), passes_BT.to(torch.int64).argmax(1), by_share_B)
        return torch.stack(tries, dim=1)[torch.arange(len(size_B), device=size_B.device), chosen_B]

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return derives(self.grammar, x_BL).gather(1, (size_B - 1).clamp(min=0)[:, None])[:, 0] & (size_B > 0)

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        shape_X3, first_S = _outside_on(self.grammar, rounded(columns + 1), size_B.device)
        begin_B, end_B = first_S[size_B], first_S[size_B + 1]
        shape_B = begin_B + draw.integers((end_B - begin_B).clamp(min=1))
        first_B1, middle_B1, last_B1 = shape_X3[shape_B.clamp(max=len(shape_X3) - 1)].split(1, dim=1)
        position_L = torch.arange(columns, device=size_B.device)
        x_BL = torch.where(position_L == size_B[:, None] - 1, last_B1, middle_B1)
        return torch.where(position_L == 0, first_B1, x_BL)

    def mixed(self, most: int) -> np.ndarray:
        """Return True for sizes 0, 1 .. `most` with members and a sure non-member."""
        has_member = np.array(derivations(self.grammar, most)[0], dtype=object) > 0
        mixed: np.ndarray = has_member & outside(self.grammar, most).any(0)
        return mixed


@kept
def _sizes(grammar: Grammar, most: int, device: torch.device) -> Tensor:
    return torch.tensor([count > 0 for count in derivations(grammar, most)[0]], device=device)


def shapes(num_symbols: int) -> list[tuple[int, int, int]]:
    """Return (first, inner, last) symbols of possible sure non-members."""
    symbols = range(num_symbols)
    return list(islice(product(symbols, symbols, symbols), MOST_SHAPES))


@kept
def outside(grammar: Grammar, most: int) -> np.ndarray:
    """Return True where the strings of a shape and size are outside the language, bool [shapes, most + 1].

    A string of one symbol is the first, two are first and last. The table has for each nonterminal the strings a .. a,
    x a .. a, a .. a y and x a .. a y, by size.
    """
    first_X, inner_X, last_X = np.array(shapes(len(grammar.symbols))).T
    inner, head, tail, whole = np.zeros((4, grammar.size, most + 1, len(first_X)), dtype=bool)
    for node, symbol in grammar.letters:
        inner[node, 1] |= inner_X == symbol
        head[node, 1] |= first_X == symbol
        tail[node, 1] |= last_X == symbol
    for size in range(2, most + 1):
        for node, left, right in grammar.pairs:
            for made, one, other in (
                (inner, inner, inner),
                (head, head, inner),
                (tail, inner, tail),
                (whole, head, tail),
            ):
                made[node, size] |= (one[left, 1:size] & other[right, size - 1 : 0 : -1]).any(0)
    found = ~whole[0]
    found[0], found[1:2] = False, ~head[0, 1:2]
    return found.T


@kept
def _outside_on(grammar: Grammar, most: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the shapes outside at each size, all sizes in a row, and where each size begins."""
    found_XS = outside(grammar, most)
    shape_X3 = np.array(shapes(len(grammar.symbols)))
    listed = np.concatenate([shape_X3[found_X] for found_X in found_XS.T] + [shape_X3[:1]])
    begins = np.concatenate([[0], found_XS.sum(0).cumsum(), found_XS.sum()[None]])
    return torch.from_numpy(listed).to(device), torch.from_numpy(begins).to(device)
