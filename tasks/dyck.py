"""The bracket that must close next, or whether the string is balanced. Brackets have `kinds` kinds and depth `depth`.

    ( [ ] [ (  ->  )          ask="close": the last open bracket is the second (
    ( ( [ ] ) ) ( )  ->  YES  ask="valid"
    ( ( [ ) ] ) ( )  ->  NO   two kinds exchanged
    ( [ ( [ ( ) ] ) ( ) ] ->  )    nesting="deep": it rises up to the third quarter, then falls

Deterministic context-free; a counter language with one kind. Bounded depth makes it regular, with one state for each
stack. The nesting is uniform over all that is allowed, then the kinds are. Every unbalanced string has as many opening
as closing brackets. With several kinds, it is a balanced string with a fault before its last symbol. In half of these,
two closing brackets of different kinds are exchanged. If possible they are side by side after a third. Then neither a
count of each kind nor two neighbours show the fault. In the other half, one closing bracket is of another kind. With
one kind, the string is uniform over those that close too often somewhere, with depth also counted below zero. It begins
with ( and ends with ). Ends give the answer only where no such string exists: below four symbols, or six with one kind.
`content_free` counts that.

With nesting="deep" three of four brackets open before a peak drawn in the third quarter of the string. After the peak
three of four close, as far as 1 and `depth` allow. So the bracket that must close next was opened long ago, below many
others. On 225..256 symbols and depth 64 a window of 31 scores .69 (uniform: .94), and a stack of the top 8 brackets .72
(.95).

These guesses need no stack. Scores are at the default settings, at lengths 3..40 and 40..256. With ask="valid", counts
of each kind score .79 and .75, a window of two symbols .79 and .64, and both with a counter for each kind .89 and .76.
With ask="close", the last symbol alone scores .78 and .77, because it is often the bracket in question. A fault at
`depth=1` always shows in two neighbours. With `kinds=1`, one weight for each position scores .78 and .89. Suzgun et al.
2019 (1911.03329), Hewitt et al. 2020 (2010.07515) with bounded depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._automata import SCALE, Automaton, composed, letter_maps, random_path, states_along
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._stacks import top
from chomsky_ladder.tasks.base import PAD, Floors, bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

OPEN, CLOSE = 1, 2  # tokens of the first kind; each further kind has the next two
DEEPEST = 64  # practically no bound: hardly a string of 256 symbols goes deeper
DIPS_INSIDE = 6  # fewest symbols of an unbalanced string ( .. ) of one kind with as many ( as )


@register
@dataclass(frozen=True, kw_only=True)
class Dyck(Classification):
    name, version, level = "dyck", 1, "context_free"

    kinds: int = 2
    """Number of kinds of brackets."""
    depth: int = 8
    """The most brackets that are ever open at once."""
    ask: Literal["close", "valid"] = "close"
    """The question: which bracket must close next, or whether all are balanced."""
    nesting: Literal["uniform", "deep"] = "uniform"
    """Nestings to draw: uniform, or deep (a rise and a fall with three of four brackets in that direction)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 if self.ask == "close" else 1
        if not least <= self.kinds <= 4:
            raise ValueError(f"dyck: kinds must lie in {least}..4 for ask={self.ask!r}, not {self.kinds}")
        bounded(self, "depth", 1, DEEPEST)
        if self.ask == "valid" and self.supervision == "dense":
            raise ValueError("dyck has no answer for a prefix with ask='valid': supervision='dense' is not defined")
        if self.nesting == "deep" and (self.ask == "valid" or self.depth < 2):
            raise ValueError("dyck: nesting='deep' is of ask='close' alone, with a depth of 2 or more")

    @property
    def demand(self) -> str:
        if self.depth < DEEPEST:
            return "star-free"  # one state for each stack of so many brackets, and no group among their maps
        return "nesting" if self.kinds > 1 else "counter"

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *"()[]{}<>"[: 2 * self.kinds], *(("NO", "YES") if self.ask == "valid" else ())

    @property
    def answers(self) -> tuple[int, ...]:
        if self.ask == "valid":
            return 2 * self.kinds + 1, 2 * self.kinds + 2
        return tuple(range(CLOSE, 2 * self.kinds + 1, 2))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the kind on top + 1 or 0, and the number of open brackets."""
        return self.kinds + 1, self.depth + 1

    def legal_size(self, size: int) -> bool:
        if self.ask == "valid":
            return size % 2 == 0
        return size % 2 == 1 or self.depth > 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        if self.ask == "valid" and self.kinds == 1:
            return self._half_dipping(draw, size_B, columns)
        if self.nesting == "deep":
            closes_BL, depth_BL = self._rise_and_fall(draw, size_B, columns)
        else:
            shape = _nesting(self.depth, balanced=self.ask == "valid")
            closes_BL, depth_BL = random_path(shape, draw.integers(SCALE, (columns,)), size_B)
            closes_BL, depth_BL = closes_BL == 1, depth_BL[:, 1:]
        top_BL = top(~closes_BL, depth_BL)
        kind_BL = draw.integers(self.kinds, (columns,))
        closed_BL = kind_BL.gather(1, pad(top_BL[:, :-1], (1, 0)))
        if self.ask == "valid":
            closed_BL, answer_B = self._half_broken(draw, closed_BL, size_B, closes_BL)
        else:
            answer_B = 2 * kind_BL.gather(1, top_BL.gather(1, size_B[:, None] - 1))[:, 0] + CLOSE
        return torch.where(closes_BL, 2 * closed_BL + CLOSE, 2 * kind_BL + OPEN), answer_B

    def _rise_and_fall(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Return which brackets close, and how many are open after each one."""
        half_B1 = size_B[:, None] // 2
        peak_B1 = half_B1 + draw.integers(half_B1 // 2 + 1, (1,))
        against_BL = draw.integers(4, (columns,)) == 0
        is_falling_BL = torch.arange(columns, device=size_B.device) >= peak_B1
        walk_BL = (against_BL ^ is_falling_BL).to(torch.int64)
        depth_BL = states_along(composed(letter_maps(_bounded_walk(self.depth), walk_BL)), torch.zeros_like(size_B))
        return depth_BL[:, 1:] < depth_BL[:, :-1], depth_BL[:, 1:]

    def _half_broken(self, draw: Draw, kind_BL: Tensor, size_B: Tensor, closes_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kinds of the closing brackets, wrong ones in half of the strings, and the answers."""
        fault_B1 = draw.categorical((2, 1, 1), (1,))  # 0 balanced, 1 two exchanged, 2 one of another kind
        half_B1 = size_B[:, None] // 2
        count_BL = closes_BL.cumsum(1)
        inner_BL = closes_BL & (count_BL < half_B1)  # the last one stays as it is
        earliest_BL = closes_BL & (count_BL == 1)
        apart_BL = inner_BL & (kind_BL != (kind_BL * earliest_BL).sum(1, keepdim=True))
        twin_BL = inner_BL & (kind_BL != kind_BL.roll(1, dims=1)) & pad(closes_BL[:, :-1], (1, 0))
        third_BL = twin_BL & pad(closes_BL[:, :-2], (2, 0))
        twins_B1 = twin_BL.any(1, keepdim=True)
        second_BL = torch.where(third_BL.any(1, keepdim=True), third_BL, torch.where(twins_B1, twin_BL, apart_BL))
        seconds_BL = second_BL.cumsum(1)
        exchanged_B1 = (fault_B1 == 1) & (seconds_BL[:, -1:] > 0)
        second_BL = second_BL & (seconds_BL == draw.integers(seconds_BL[:, -1:], (1,)) + 1)
        first_BL = torch.where(twins_B1, second_BL.roll(-1, dims=1), earliest_BL)
        wrong_BL = closes_BL & (count_BL == draw.integers((half_B1 - 1).clamp(min=1), (1,)) + 1) & (fault_B1 > 0)
        other_BL = (kind_BL + draw.integers(self.kinds - 1, (1,)) + 1) % self.kinds
        swapped_BL = torch.where(first_BL, (kind_BL * second_BL).sum(1, keepdim=True), kind_BL)
        swapped_BL = torch.where(second_BL, (kind_BL * first_BL).sum(1, keepdim=True), swapped_BL)
        faulty_BL = torch.where(exchanged_B1, swapped_BL, torch.where(wrong_BL, other_BL, kind_BL))
        no, yes = self.answers
        return faulty_BL, torch.where(fault_B1[:, 0] == 0, yes, no)

    def _half_dipping(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Return brackets of one kind, half of them with more closed than open somewhere, and the answers."""
        dips_B = draw.integers(2)
        walks, begin, targets = _walks(self.depth)
        target_B = torch.where(size_B < DIPS_INSIDE, 2, 1) * dips_B
        closes_BL, _ = random_path(
            walks,
            draw.integers(SCALE, (columns,)),
            size_B,
            targets=targets,
            target_B=target_B,
            start_B=torch.where(target_B == 1, begin, 0),
        )
        no, yes = self.answers
        return closes_BL + OPEN, torch.where(dips_B == 0, yes, no)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        _, depth_BL, top_BL = _run(x_BL)
        return torch.where(depth_BL > 0, x_BL.gather(1, top_BL) + 1, PAD)

    def told_by_end(self, x_BL: Tensor) -> Tensor:
        if self.ask == "valid":
            return super().told_by_end(x_BL)
        opens_BL, depth_BL, top_BL = _run(x_BL)
        top_B1 = top_BL[:, -1:]
        is_there_B1 = opens_BL.gather(1, top_B1) & (depth_BL.gather(1, top_B1) == depth_BL[:, -1:])
        return torch.where(is_there_B1, x_BL.gather(1, top_B1) + 1, PAD)[:, 0]

    def state(self, tokens_BL: Tensor) -> Tensor:
        if self.ask == "valid":
            return self._careful_state(tokens_BL)
        _, depth_BL, top_BL = _run(tokens_BL)
        kind_BL = torch.where(depth_BL > 0, tokens_BL.gather(1, top_BL) // 2 + 1, 0)
        return torch.stack([kind_BL, depth_BL], dim=2)

    def _careful_state(self, tokens_BL: Tensor) -> Tensor:
        """Return the state also for unbalanced strings, step by step. An impossible bracket is ignored."""
        depth_B1 = torch.zeros_like(tokens_BL[:, :1])
        stack_BD = torch.zeros_like(depth_B1).expand(-1, self.depth + 1)
        level_D = torch.arange(self.depth + 1, device=tokens_BL.device)
        states = []
        for token_B1 in tokens_BL.split(1, dim=1):
            top_B1 = stack_BD.gather(1, depth_B1)
            opens_B1 = (token_B1 % 2 == 1) & (depth_B1 < self.depth)
            closes_B1 = (token_B1 != PAD) & (token_B1 == 2 * top_B1)
            depth_B1 = depth_B1 + opens_B1.to(torch.int64) - closes_B1.to(torch.int64)
            stack_BD = torch.where(opens_B1 & (level_D == depth_B1), token_B1 // 2 + 1, stack_BD)
            states.append(torch.stack([stack_BD.gather(1, depth_B1), depth_B1], dim=2))
        return torch.cat(states, dim=1)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors. With ask="valid", `content_free` is the best guess from length, first and last symbol."""
        if self.ask == "close":
            return super().floors(lengths, score=score)
        told = DIPS_INSIDE if self.kinds == 1 else 4  # below that all unbalanced strings differ at the ends
        guesses = [1 if self.size(length) < told else 1 / 2 for length in lengths]
        return Floors(s_rand=1 / 2, best_constant=1 / 2, content_free=float(np.mean(guesses)))


@kept
def _nesting(depth: int, *, balanced: bool) -> Automaton:
    """Return the automaton that counts open brackets. Any overflow leads to a dead state."""
    lost = depth + 1
    opened = (*range(1, lost), lost, lost)
    closed = (lost, *range(depth), lost)
    accepting = tuple((state == 0) == balanced and state != lost for state in range(lost + 1))
    return Automaton(tuple(zip(opened, closed, strict=True)), accepting, "()")


@kept
def _bounded_walk(depth: int) -> Automaton:
    """Return the automaton of walks up and down by one, which turn at 1 and at the depth."""
    up = [*range(1, depth + 1), depth - 1]
    down = [1, 2, *range(1, depth)]
    return Automaton(tuple(zip(up, down, strict=True)), (True,) * (depth + 1), "()")


@kept
def _walks(depth: int) -> tuple[Automaton, int, tuple[frozenset[int], ...]]:
    """Return the walks above and below zero, the state that must open first, and the targets.

    The targets are: balanced; dipped below zero and back by ), by any way.
    """
    zero = 2 * depth + 1  # from depth + 1 on: the heights -depth .. depth after being below zero
    returned, begin, lost = range(3 * depth + 2, 3 * depth + 5)
    opened = [*range(1, depth + 1), lost, *range(depth + 2, 3 * depth + 2), lost, zero + 1, 1, lost]
    closed = [zero - 1, *range(depth), lost, *range(depth + 1, 3 * depth + 1), zero - 1, lost, lost]
    closed[zero + 1] = returned
    accepting = tuple(state == 0 for state in range(lost + 1))
    targets = (frozenset({0}), frozenset({returned}), frozenset({zero, returned}))
    return Automaton(tuple(zip(opened, closed, strict=True)), accepting, "()"), begin, targets


def _run(x_BL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which brackets of a well-nested string open, the depth after each, and where the last one stands."""
    opens_BL = (x_BL & 1) == 1
    depth_BL = torch.where(opens_BL, 1, -(x_BL != PAD).to(torch.int64)).cumsum(1)
    return opens_BL, depth_BL, top(opens_BL, depth_BL)
