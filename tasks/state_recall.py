"""The bit to which a variable points after many swaps: state tracking whose result is a key to look up.

    i0 1 i1 0 i2 0  a i2 b i0 c i1  a b  b c  ?  ->  1        a = 2; swapped with b, a = 0; b and c leave it; bit 0 is 1

A string gives a bit to every address in turn, and a different address to every variable. Then come pairs of variables
that exchange their addresses. The question is the bit to which the first variable, a, points. So the swaps have to be
composed, which needs the group of permutations of the variables, and the result is a key to recall. A hybrid of a
recurrence and attention is made for both. Regular: the addresses held and the bits are finitely many. After the
state-based recall of Olmo Hybrid (2604.03444), whose strings are lines of code with 16 to 32 bits and 4 to 16 swaps of
five variables. The tokens here are ours. A swap names any two variables with equal probability.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks import _groups, _monoid
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

ASK, ZERO, FIRST_VARIABLE = 1, 2, 4  # then the variables, then the addresses


@register
@dataclass(frozen=True, kw_only=True)
class StateRecall(Classification):
    name, version, level = "state_recall", 1, "regular"
    tracks_state = True

    bits: int = 6
    """Number of addresses, each with a bit."""
    variables: int = 5
    """Number of variables, named from a on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "variables", 3, 6)
        if not self.variables <= self.bits <= 1024:
            raise ValueError(f"state_recall: bits must lie in variables ({self.variables})..1024, not {self.bits}")

    @property
    def vocab(self) -> tuple[str, ...]:
        addresses = (f"i{address}" for address in range(self.bits))
        return "PAD", "?", "0", "1", *"abcdef"[: self.variables], *addresses

    @property
    def answers(self) -> tuple[int, ...]:
        return ZERO, ZERO + 1

    @property
    def demand(self) -> str:
        return _monoid.demand(_groups.transitions(f"S{self.variables}"))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: each variable's address + 1, and each address's bit + 1; 0 before they are given."""
        return (*[self.bits + 1] * self.variables, *[3] * self.bits)

    @property
    def state_parts(self) -> tuple[str, ...]:
        return self.vocab[FIRST_VARIABLE:]

    @property
    def given(self) -> int:
        """Return the number of symbols before the first swap."""
        return 2 * (self.bits + self.variables)

    def legal_size(self, size: int) -> bool:
        return size > self.given and size % 2 == 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        variables, first_address = self.variables, FIRST_VARIABLE + self.variables
        bit_BM = draw.integers(2, (self.bits,)) + ZERO
        address_BM = torch.arange(self.bits, device=bit_BM.device).expand_as(bit_BM) + first_address
        held_BV = draw.permutation(self.bits)[:, :variables] + first_address
        variable_BV = torch.arange(variables, device=bit_BM.device).expand_as(held_BV) + FIRST_VARIABLE
        pairs = (columns - self.given) // 2 + 1
        pair_BP = draw.integers(variables * (variables - 1), (pairs,))
        one_BP, other_BP = pair_BP // (variables - 1), pair_BP % (variables - 1)
        other_BP = other_BP + (other_BP >= one_BP).to(torch.int64)
        parts = ((address_BM, bit_BM), (variable_BV, held_BV), (one_BP + FIRST_VARIABLE, other_BP + FIRST_VARIABLE))
        x_BL = torch.cat([torch.stack(part, dim=2).flatten(1) for part in parts], dim=1)[:, :columns]
        return x_BL.masked_fill(torch.arange(columns, device=x_BL.device) == size_B[:, None] - 1, ASK)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        address_B1 = self._addresses(x_BL)[..., 0].gather(1, size_B[:, None] - 1) - 1
        return x_BL.gather(1, 2 * address_B1 + 1)[:, 0]

    def state(self, tokens_BL: Tensor) -> Tensor:
        position_L1 = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)[:, None]
        place_M = 2 * torch.arange(self.bits, device=tokens_BL.device) + 1
        bit_BM = self._whole(tokens_BL)[:, place_M] - ZERO + 1
        return torch.cat([self._addresses(tokens_BL), torch.where(position_L1 >= place_M, bit_BM[:, None], 0)], dim=2)

    def _whole(self, tokens_BL: Tensor) -> Tensor:
        """Pad to the width of what is given, also for shorter prefixes."""
        return pad(tokens_BL, (0, max(self.given - tokens_BL.shape[1], 0)), value=PAD)

    def _addresses(self, tokens_BL: Tensor) -> Tensor:
        """Return the address + 1 that each variable holds after each position, 0 before it is given one: [B, L, V]."""
        length, variables = tokens_BL.shape[1], self.variables
        swap_VV, holds_EV = _tables(variables, tokens_BL.device)
        one_BL, other_BL = pad(tokens_BL[:, :-1], (1, 0)) - FIRST_VARIABLE, tokens_BL - FIRST_VARIABLE
        are_variables_BL = (torch.minimum(one_BL, other_BL) >= 0) & (torch.maximum(one_BL, other_BL) < variables)
        position_L = torch.arange(length, device=tokens_BL.device)
        swaps_BL = are_variables_BL & (position_L >= self.given) & (position_L % 2 == 1)
        key_BL = torch.where(swaps_BL, one_BL * variables + other_BL, 0)
        element_BL = swap_VV.index_select(0, key_BL.flatten()).view_as(key_BL)  # at 0 a swap with itself
        group = f"S{variables}"
        product_BL = _groups.running(element_BL, _groups.table_of(group, tokens_BL.device), num=_groups.order(group))
        from_BLV = holds_EV.index_select(0, product_BL.flatten()).view(*product_BL.shape, variables)
        place_V = 2 * (self.bits + torch.arange(variables, device=tokens_BL.device)) + 1
        given_BV = self._whole(tokens_BL)[:, place_V] - FIRST_VARIABLE - variables + 1
        held_BLV = given_BV[:, None].expand(-1, length, -1).gather(2, from_BLV)
        return torch.where(position_L[:, None] >= place_V, held_BLV, 0)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()


@kept
def _tables(variables: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the exchange of two variables as an element of the group, [V * V]; and whose first address each then
    holds.

    What stood at i stands at p[i] after the swaps that make up p. So v holds the inverse of p at v.
    """
    elements = _groups.group(f"S{variables}").elements
    number = {element: place for place, element in enumerate(elements)}
    swaps = []
    for one in range(variables):
        for other in range(variables):
            images = list(range(variables))
            images[one], images[other] = other, one
            swaps.append(number[tuple(images)])
    holds = [[element.index(v) for v in range(variables)] for element in elements]
    return torch.tensor(swaps, device=device), torch.tensor(holds, device=device)
