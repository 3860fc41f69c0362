"""The value modulo 5 of a sum of products without brackets; '*' binds tighter than '+' and '-'.

    2 + 3 * 4 - 1 =  ->  3        2 + 12 - 1 = 13

Regular: a machine that holds (sum of the closed terms, value of the open term) modulo m. Digits and operators are
uniform. Deletang et al. 2022 (2207.02098) have no '=' and a query token (`query="token"`); Beck et al. 2024.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._arithmetic import Arithmetic
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw

PLUS, MINUS, TIMES, EQUALS, ZERO = 1, 2, 3, 4, 5


@register
@dataclass(frozen=True, kw_only=True)
class ModArithmetic(Arithmetic):
    name, version, level = "mod_arithmetic", 1, "regular"
    tracks_state = True

    query: Literal["none", "token", "equals"] = "equals"
    """The input between the expression and the answer: nothing, one blank token, or '='."""

    @property
    def closing(self) -> tuple[int, ...]:
        return (EQUALS,) if self.query == "equals" else super().closing

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "+", "-", "*", "=", *map(str, range(self.modulus))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(ZERO, ZERO + self.modulus))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the closed terms' sum, the open term's signed value, the pending operator (0 for none)."""
        return self.modulus, self.modulus, 4

    def legal_size(self, size: int) -> bool:
        return size % 2 == 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        digit_L = torch.arange(columns, device=size_B.device) % 2 == 0
        value_BL = draw.integers(torch.where(digit_L, self.modulus, len(self.operators)), (columns,))
        return value_BL + torch.where(digit_L, ZERO, PLUS)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        closed_BK, open_BK = self._terms(x_BL)
        answers_BK = (closed_BK + open_BK) % self.modulus + ZERO
        return torch.stack([answers_BK, torch.zeros_like(answers_BK)], dim=2).flatten(1)[:, : x_BL.shape[1]]

    def _terms(self, x_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return the closed terms' sum and the open term's signed value after each digit, mod m, [B, digits]."""
        digit_BK = (x_BL[:, ::2] - ZERO).clamp(0, self.modulus - 1)  # tokens beyond a string may be anything
        operator_BK = pad(x_BL[:, 1::2], (1, 0), value=PLUS)[:, : digit_BK.shape[1]]
        index_K = torch.arange(digit_BK.shape[1], device=x_BL.device)
        opens_BK = operator_BK != TIMES
        start_BK = torch.where(opens_BK, index_K, 0).cummax(1).values
        open_BK = torch.where(operator_BK == MINUS, -digit_BK, digit_BK)
        reach = 1
        while reach < digit_BK.shape[1]:  # products of runs of 2, 4, 8 .. digits that stay inside their term
            before_BK = pad(open_BK, (reach, 0), value=1)[:, :-reach]
            open_BK = open_BK * torch.where(index_K - reach >= start_BK, before_BK, 1) % self.modulus
            reach *= 2
        closed_BK = torch.where(opens_BK, pad(open_BK, (1, 0))[:, :-1], 0).cumsum(1)
        return closed_BK % self.modulus, open_BK % self.modulus

    def state(self, tokens_BL: Tensor) -> Tensor:
        closed_BK, open_BK = self._terms(tokens_BL)
        operator_BL = torch.where((tokens_BL >= PLUS) & (tokens_BL <= TIMES), tokens_BL, 0)
        after_BLS = torch.stack([closed_BK, open_BK], dim=2).repeat_interleave(2, dim=1)[:, : tokens_BL.shape[1]]
        closes_BL = (operator_BL == PLUS) | (operator_BL == MINUS) | (tokens_BL == EQUALS)
        closed_BL = torch.where(closes_BL, after_BLS.sum(2) % self.modulus, after_BLS[..., 0])
        open_BL = torch.where(closes_BL, 0, after_BLS[..., 1])
        held_BLS = torch.stack([closed_BL, open_BL, operator_BL], dim=2)
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        latest_BL = torch.where(tokens_BL != 0, position_L, 0).cummax(1).values
        return held_BLS.gather(1, latest_BL[..., None].expand_as(held_BLS))

    def answer_law(self, length: int) -> np.ndarray:
        """Use f_k(v) = E[w**(k closed); open = v] for each character k of Z_m. A digit maps it linearly."""
        m, digits = self.modulus, np.arange(self.modulus)
        character = np.exp(2j * np.pi / m * np.outer(digits, digits))
        products = np.zeros((m, m))  # how many digits take an open value v to v'
        np.add.at(products, (digits[:, None], digits[:, None] * digits % m), float("*" in self.operators))
        f = np.full((m, m), 1 / m, dtype=complex)
        for _ in range(self.size(length) // 2):
            closing = (f * character).sum(axis=1, keepdims=True)  # + and - each make any value the open one
            f = (2 * closing + f @ products) / m / len(self.operators)
        law = ((f * character).sum(axis=1) @ character.conj()).real / m
        return np.concatenate([np.zeros(ZERO), law.clip(0, 1)])[None]
