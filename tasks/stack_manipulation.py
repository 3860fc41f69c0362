"""The stack, bottom to top, after a series of pushes and pops; a pop of the empty stack does nothing.

    ST1 ST3 POP PS2 PS2 ACT . . . .  ->  ST1 ST2 ST2        two of the five slots stay blank and unscored

Deterministic context-free. The string is an initial stack of U{1..n-1} symbols, then operations, pushes and pops as
`push : pop`. If the stack would end empty, its last operation, a pop, is replaced by a push, so that every string has
an answer. With a terminator (`end="token"`) an empty stack is answered by END alone. Deletang et al. 2022 (2207.02098)
use bits, top to bottom, with a terminator. Their string of length 1 is a stack of one symbol without any operation
(`every_length`). Beck et al. 2024 (2405.04517) have four symbols as here.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import MarkedTransduction, Size

POP, STACK = 2, 3  # then the stack symbols, then their pushes


@register
@dataclass(frozen=True, kw_only=True)
class StackManipulation(MarkedTransduction):
    name, version, level = "stack_manipulation", 1, "context_free"
    hard = True
    blank_answer = STACK

    num_symbols: int = 4
    """Number of symbols that a stack is made of."""
    push: int = 1
    """The weight of a push among the operations."""
    pop: int = 1
    """The weight of a pop among the operations."""
    reads: Literal["bottom_up", "top_down"] = "bottom_up"
    """The order of the answers."""
    end: Literal["none", "token"] = "none"
    """After the last answer: nothing, or the answer END. With END the stack may end empty."""
    every_length: bool = False
    """Add the strings of a stack of one symbol without an operation."""

    def __post_init__(self) -> None:
        bounded(self, "num_symbols", 2, 2000)
        if not (0 <= self.push <= 1000 and 0 <= self.pop <= 1000 and self.push + self.pop > 0):
            raise ValueError(f"stack_manipulation: push:pop must be weights in 0..1000, not {self.push}:{self.pop}")
        if self.every_length and self.decode == "teacher":
            raise ValueError("stack_manipulation: every_length has a stack that its answer, fed back, would look like")

    @property
    def vocab(self) -> tuple[str, ...]:
        names = [str(symbol + 1) for symbol in range(self.num_symbols)]
        symbols = "PAD", "ACT", "POP", *(f"ST{name}" for name in names), *(f"PS{name}" for name in names)
        return (*symbols, "END") if self.end == "token" else symbols

    @property
    def answers(self) -> tuple[int, ...]:
        symbols = range(STACK, STACK + self.num_symbols)
        return (*symbols, self._end) if self.end == "token" else tuple(symbols)

    @property
    def _end(self) -> int:
        return STACK + 2 * self.num_symbols

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the symbol on top, 0 for an empty stack."""
        return (self.num_symbols + 1,)

    def slots(self, size: Size) -> Size:
        return size + int(self.end == "token")

    def size_of_total(self, total: Size) -> Size:
        return super().size_of_total(total - int(self.end == "token"))

    def legal_size(self, size: int) -> bool:
        return size >= (1 if self.every_length else 2)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        position_L = torch.arange(columns, device=size_B.device)
        initial_B = draw.integers((size_B - 1).clamp(min=1)) + 1
        symbol_BL = draw.integers(self.num_symbols, (columns,)) + STACK
        pops_BL = (draw.categorical((self.push, self.pop), (columns,)) == 1) & (position_L >= initial_B[:, None])
        if self.end == "none":
            ends_empty_B = _depth(pops_BL).gather(1, size_B[:, None] - 1) == 0
            pops_BL = pops_BL & ~(ends_empty_B & (position_L == size_B[:, None] - 1))
        push_BL = torch.where(position_L < initial_B[:, None], symbol_BL, symbol_BL + self.num_symbols)
        return torch.where(pops_BL, POP, push_BL)

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        columns = x_BL.shape[1]
        inside_BL = torch.arange(columns, device=x_BL.device) < size_B[:, None]
        depth_BL = _depth(x_BL == POP)
        # The depth beyond the string cannot bury or remove anything: it counts as infinite.
        later_BL = torch.where(inside_BL, depth_BL, columns + 1).flip(1).cummin(1).values.flip(1)
        survives_BL = inside_BL & (x_BL != POP) & (later_BL >= depth_BL)
        height_B1 = depth_BL.gather(1, size_B[:, None] - 1)
        from_end_BL = depth_BL - 1 if self.reads == "bottom_up" else height_B1 - depth_BL
        slot_BL = torch.where(survives_BL, from_end_BL, columns)
        answers_BM = x_BL.new_zeros(x_BL.shape[0], columns + 1).scatter(1, slot_BL, self._symbol(x_BL))
        if self.end == "none":
            return answers_BM[:, :columns], height_B1[:, 0]
        # The last column collects everything else: END overwrites it, or it stays unused.
        return answers_BM.scatter(1, height_B1, self._end), height_B1[:, 0] + 1

    def _symbol(self, x_BL: Tensor) -> Tensor:
        """Return the stack symbol that an initial symbol or a push puts on the stack."""
        return torch.where(x_BL >= STACK + self.num_symbols, x_BL - self.num_symbols, x_BL)

    def state(self, tokens_BL: Tensor) -> Tensor:
        """Return the top: the latest push that reached the present depth, the largest so far among equal depths."""
        width = tokens_BL.shape[1]
        is_stack_BL = (tokens_BL >= STACK) & (tokens_BL < STACK + self.num_symbols)
        operates_BL = (tokens_BL >= POP) & (tokens_BL < self._end) & ~is_stack_BL
        # Where answers are fed in, every string has an operation: a stack symbol after one changes nothing.
        pushes_BL = (operates_BL & (tokens_BL != POP)) | (is_stack_BL & (operates_BL.cumsum(1) == 0))
        total_BL = (pushes_BL.to(torch.int64) - (tokens_BL == POP).to(torch.int64)).cumsum(1)
        depth_BL = total_BL - total_BL.cummin(1).values.clamp(max=0)
        place_BL = depth_BL * width + torch.arange(width, device=tokens_BL.device)  # sorts by depth, then position
        sorted_BL, order_BL = place_BL.sort(dim=1)
        latest_BL = torch.where(pushes_BL.gather(1, order_BL), sorted_BL, 0).cummax(1).values
        top_BL = torch.zeros_like(latest_BL).scatter(1, order_BL, latest_BL) % width
        symbol_BL = self._symbol(tokens_BL).gather(1, top_BL) - STACK + 1
        return torch.where(depth_BL > 0, symbol_BL, 0)[..., None]

    def answer_law(self, length: int) -> np.ndarray:
        """Return the law.

        Symbols are uniform where there is one, so only the depth's distribution counts: a walk held at 0.
        """
        size = self.size(length)
        push, pop = (weight / (self.push + self.pop) for weight in (self.push, self.pop))
        depth = np.zeros(size + 1)
        for position in range(1, size):  # the initial stack has 1..size-1 symbols, each with equal chance
            depth = _walk(depth, push=push, pop=pop)
            depth[position] += 1 / (size - 1)
        after = _walk(depth, push=push, pop=pop) if size > 1 else np.array([0.0, 1.0])
        if self.end == "none" and size > 1:
            after[0] = 0
            after[1:3] += pop * depth[:2]  # a last pop that would end empty, from depth 0 or 1, is a push instead
        share = after[::-1].cumsum()[::-1][1:] / self.num_symbols
        law = np.zeros((self.slots(size), len(self.vocab)))
        law[:size, STACK : STACK + self.num_symbols] = share[:, None]
        if self.end == "token":
            law[:, self._end] = after
        return law


def _walk(depth: np.ndarray, *, push: float, pop: float) -> np.ndarray:
    after = np.zeros_like(depth)
    after[1:] += push * depth[:-1]
    after[:-1] += pop * depth[1:]
    after[0] += pop * depth[0]
    return after


def _depth(pops_BL: Tensor) -> Tensor:
    """Return the stack's depth after each operation: the walk of +1 and -1, minus its lowest value below zero."""
    total_BL = torch.where(pops_BL, -1, 1).cumsum(1)
    return total_BL - total_BL.cummin(1).values.clamp(max=0)
