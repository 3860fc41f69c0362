"""The FLaRe languages that no finite automaton decides, except those of numbers (tasks/_flare_numbers.py).

Each draws members of a given length as the published samplers do for that length, and decides any string. Its sure
non-members are strings without the marker, or reversed ones.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import SCALE
from chomsky_ladder.tasks._following import free_until_there, only_the_next
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw


@dataclass(frozen=True)
class Language(ABC):
    """A language for tasks/_edits.py, over the symbols of `alphabet`."""

    alphabet: tuple[str, ...]

    @property
    def num_symbols(self) -> int:
        return len(self.alphabet)

    @abstractmethod
    def has(self, size: int) -> bool:
        """Return True if there are members of this many symbols."""

    @abstractmethod
    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor: ...

    @abstractmethod
    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor: ...

    @abstractmethod
    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Return for members which symbols may follow each position, and (last) True if the string may end there."""

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw bits without the marker that every member has."""
        return draw.integers(2, (columns,))

    def has_members(self, most: int, device: torch.device) -> Tensor:
        return _sizes(self, most, device)


@kept
def _sizes(language: Language, most: int, device: torch.device) -> Tensor:
    return torch.tensor([language.has(size) for size in range(most + 1)], device=device)


def places(x_BL: Tensor) -> Tensor:
    return torch.arange(x_BL.shape[1], device=x_BL.device)


def at(x_BL: Tensor, place_BL: Tensor) -> Tensor:
    """Return the symbols at places, which may lie outside."""
    return x_BL.gather(1, place_BL.clamp(0, x_BL.shape[1] - 1))


class Majority(Language):
    """More 1s than 0s. The number of 1s is uniform, and so is their order."""

    def has(self, size: int) -> bool:
        return size >= 1

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        ones_B = size_B // 2 + 1 + draw.integers((size_B - size_B // 2).clamp(min=1))
        key_BL = draw.integers(SCALE, (columns,))
        key_BL = torch.where(places(key_BL) < size_B[:, None], key_BL, SCALE)
        rank_BL = key_BL.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
        return (rank_BL < ones_B[:, None]).to(torch.int64)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return 2 * (x_BL * (places(x_BL) < size_B[:, None])).sum(1) > size_B

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw a uniform string, with 0 and 1 exchanged if it is a member."""
        x_BL = draw.integers(2, (columns,))
        return torch.where(self.accepts(x_BL, size_B)[:, None], 1 - x_BL, x_BL)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return free_until_there(self, x_BL)


class Halves(Language):
    """A uniform w and a second half computed from it, with or without a marker between them."""

    @property
    def marker(self) -> int:
        return self.num_symbols - 1

    def has(self, size: int) -> bool:
        return size % 2 == 1

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        half_B1 = size_B[:, None] // 2
        x_BL = draw.integers(self.marker, (columns,))
        x_BL = torch.where(places(x_BL) == half_B1, self.marker, x_BL)
        return torch.where(places(x_BL) > half_B1, self.second(x_BL, half_B1), x_BL)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        half_B1, inside_BL = size_B[:, None] // 2, places(x_BL) < size_B[:, None]
        marked_BL = (x_BL == self.marker) == (places(x_BL) == half_B1)
        follows_BL = (places(x_BL) <= half_B1) | (x_BL == self.second(x_BL, half_B1))
        return ((marked_BL & follows_BL) | ~inside_BL).all(1) & (size_B % 2 == 1)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Allow anything before the marker, and the right symbol after it."""
        free_BL1 = (places(x_BL) < size_B[:, None] // 2)[..., None]
        anything_K = torch.arange(self.num_symbols + 1, device=x_BL.device) < self.num_symbols
        return torch.where(free_BL1, anything_K, only_the_next(self, x_BL, size_B))

    @abstractmethod
    def second(self, x_BL: Tensor, half_B1: Tensor) -> Tensor:
        """Return the right symbol at each place after the marker."""


class MarkedReversal(Halves):
    def second(self, x_BL: Tensor, half_B1: Tensor) -> Tensor:
        return at(x_BL, 2 * half_B1 - places(x_BL))


class MarkedCopy(Halves):
    def second(self, x_BL: Tensor, half_B1: Tensor) -> Tensor:
        return at(x_BL, places(x_BL) - half_B1 - 1)


class OddsFirst(Halves):
    """Symbols 1, 3, 5 .. of w, then 2, 4, 6 .."""

    def second(self, x_BL: Tensor, half_B1: Tensor) -> Tensor:
        number_BL, odds_B1 = places(x_BL) - half_B1 - 1, (half_B1 + 1) // 2
        return at(x_BL, torch.where(number_BL < odds_B1, 2 * number_BL, 2 * (number_BL - odds_B1) + 1))


class BucketSort(Halves):
    """The symbols of w in order."""

    def second(self, x_BL: Tensor, half_B1: Tensor) -> Tensor:
        first_BL = torch.where(places(x_BL) < half_B1, x_BL, self.num_symbols)
        return at(first_BL.sort(dim=1).values, places(x_BL) - half_B1 - 1)


class UnmarkedReversal(Language):
    """A uniform w and its reversal."""

    def has(self, size: int) -> bool:
        return size % 2 == 0

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        x_BL = draw.integers(2, (columns,))
        return at(x_BL, torch.minimum(places(x_BL), size_B[:, None] - 1 - places(x_BL)))

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        same_BL = (x_BL == at(x_BL, size_B[:, None] - 1 - places(x_BL))) | (places(x_BL) >= size_B[:, None])
        return same_BL.all(1) & (size_B % 2 == 0)

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw strings whose last symbol is not the first."""
        x_BL = draw.integers(2, (columns,))
        return torch.where((places(x_BL) == size_B[:, None] - 1) & (places(x_BL) > 0), 1 - x_BL[:, :1], x_BL)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return free_until_there(self, x_BL)


class MissingDuplicate(Language):
    """w w with one 1 replaced by a gap. A uniform place of w is set to 1, and one of the 1s becomes the gap."""

    def has(self, size: int) -> bool:
        return size % 2 == 0 and size >= 2

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        half_B1 = (size_B[:, None] // 2).clamp(min=1)
        x_BL = draw.integers(2, (columns,))
        x_BL = torch.where(places(x_BL) == draw.integers(half_B1, (1,)), 1, x_BL)
        x_BL = at(x_BL, places(x_BL) % half_B1)
        ones_BL = (x_BL * (places(x_BL) < 2 * half_B1)).cumsum(1)
        chosen_B1 = draw.integers(ones_BL[:, -1:].clamp(min=1), (1,)) + 1
        return torch.where((ones_BL == chosen_B1) & (x_BL == 1), 2, x_BL)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        half_B1, inside_BL = size_B[:, None] // 2, places(x_BL) < size_B[:, None]
        full_BL = torch.where(x_BL == 2, 1, x_BL)
        same_BL = (full_BL == at(full_BL, places(x_BL) + half_B1)) | (places(x_BL) >= half_B1)
        gaps_B = ((x_BL == 2) & inside_BL).sum(1)
        return same_BL.all(1) & (gaps_B == 1) & (size_B % 2 == 0)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Allow any bit, one gap, and the end after members: any beginning of w can still get its second half."""
        has_gap_BL1 = ((x_BL == 2).cumsum(1) > 0)[..., None]
        is_gap_K = torch.arange(self.num_symbols + 1, device=x_BL.device) == 2
        return free_until_there(self, x_BL) & ~(has_gap_BL1 & is_gap_K)


PUSH, POP, MARKER = 2, 3, 4


class StackManipulation(Language):
    """A stack, pushes (with their symbol) and pops, the marker, and the remaining stack, its top first.

    A pop of the empty stack is not allowed. A push or pop also lengthens or shortens the remaining stack. So s symbols
    and p pushes make 2 s + 3 p + 1 symbols, however many pops there are. All pairs (s, p) of a size are equally likely.
    Pushes and pops are equally likely, except that an empty stack must push, until there is one push more than p. The
    depth is the distance from 0 of a walk without a wall.
    """

    def has(self, size: int) -> bool:
        return size >= 1 and size != 2

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        odd_B = (size_B - 1) % 2  # the number of pushes is odd if the size is even
        pushes_B = odd_B + 2 * draw.integers(((size_B - 1).clamp(min=0) // 3 - odd_B).clamp(min=0) // 2 + 1)
        initial_B1 = ((size_B - 1 - 3 * pushes_B).clamp(min=0) // 2)[:, None]
        moves_BL = 2 * draw.integers(2, (columns + 1,)) - 1
        place_L = places(moves_BL)
        walk_BL = (initial_B1 + torch.cat([torch.zeros_like(initial_B1), moves_BL.cumsum(1)], dim=1)).abs()
        up_BL = walk_BL[:, 1:] > walk_BL[:, :-1]
        going_BL = up_BL.cumsum(1) <= pushes_B[:, None]
        symbol_BL, initial_BL = draw.integers(2, (columns + 1,)), draw.integers(2, (columns + 1,))
        long_BL = torch.where(going_BL, 1 + up_BL.to(torch.int64), 0)
        start_BL = initial_B1 + long_BL.cumsum(1) - long_BL
        beyond = columns  # where unused symbols are written
        x_BL = torch.where(place_L < initial_B1, initial_BL, MARKER)
        written_BL = torch.where(going_BL, start_BL.clamp(max=beyond), beyond)
        x_BL = x_BL.scatter(1, written_BL, torch.where(up_BL, PUSH, POP))
        written_BL = torch.where(going_BL & up_BL, (start_BL + 1).clamp(max=beyond), beyond)
        x_BL = x_BL.scatter(1, written_BL, symbol_BL)[:, :columns]
        end_B1 = initial_B1 + long_BL.sum(1, keepdim=True)
        left_BL = _left(x_BL, end_B1)
        return torch.where(places(x_BL) > end_B1, at(left_BL, size_B[:, None] - 1 - places(x_BL)), x_BL)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        place_L, inside_BL = places(x_BL), places(x_BL) < size_B[:, None]
        marks_BL = (x_BL == MARKER) & inside_BL
        end_B1 = marks_BL.to(torch.int64).argmax(1, keepdim=True)
        before_BL, pushed_BL, moves_BL = _read(x_BL, end_B1)
        good_BL = torch.where(x_BL < PUSH, ~before_BL | pushed_BL | (moves_BL == 1), before_BL & ~pushed_BL)
        depth_BL = (moves_BL * before_BL).cumsum(1)
        height_B1 = depth_BL[:, -1:]
        left_BL = _left(x_BL, end_B1)
        same_BL = x_BL == at(left_BL, size_B[:, None] - 1 - place_L)
        fits_BL = torch.where(place_L == end_B1, True, good_BL & (same_BL | (place_L < end_B1)) & (depth_BL >= 0))
        whole_B = (height_B1 == size_B[:, None] - 1 - end_B1)[:, 0]
        last_B = at(x_BL, end_B1 - 1)[:, 0]
        cut_B = (end_B1[:, 0] > 0) & (last_B == PUSH)
        return (fits_BL | ~inside_BL).all(1) & (marks_BL.sum(1) == 1) & whole_B & ~cut_B

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Allow a move or the marker, a bit after a push and before the first move, and the stack after the marker."""
        end_B1 = (x_BL == MARKER).to(torch.int64).argmax(1, keepdim=True)
        before_BL, _, moves_BL = _read(x_BL, end_B1)
        depth_BL = (moves_BL * before_BL).cumsum(1)
        begun_BL, pushing_BL = (x_BL >= PUSH).cumsum(1) > 0, x_BL == PUSH
        bit_BL, move_BL = pushing_BL | ~begun_BL, ~pushing_BL
        free_BLK = torch.stack(
            [bit_BL, bit_BL, move_BL, move_BL & (depth_BL > 0), move_BL, torch.zeros_like(bit_BL)], 2
        )
        return torch.where(before_BL[..., None], free_BLK, only_the_next(self, x_BL, size_B))


def _read(x_BL: Tensor, end_B1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what precedes the marker, which symbols belong to a push, and the stack's growth at each: 1, -1 or 0."""
    before_BL = places(x_BL) < end_B1
    pushed_BL = torch.nn.functional.pad(x_BL[:, :-1] == PUSH, (1, 0)) & before_BL
    started_BL = ((x_BL >= PUSH) & before_BL).cumsum(1) > 0
    grows_BL = (x_BL == PUSH) | ((x_BL < PUSH) & ~started_BL)
    return before_BL, pushed_BL, grows_BL.to(torch.int64) - (x_BL == POP).to(torch.int64)


def _left(x_BL: Tensor, end_B1: Tensor) -> Tensor:
    """Return the stack before the marker, bottom first: at each height the symbol that came there last."""
    before_BL, _, moves_BL = _read(x_BL, end_B1)
    height_BL = (moves_BL * before_BL).cumsum(1)
    came_BL = before_BL & (moves_BL == 1) & (height_BL >= 1)
    slot_BL = torch.where(came_BL, height_BL - 1, x_BL.shape[1])
    last_BL = torch.zeros_like(x_BL[:, :1]).expand(-1, x_BL.shape[1] + 1)
    last_BL = last_BL.scatter_reduce(1, slot_BL, places(x_BL).expand_as(x_BL), "amax")[:, :-1]
    return at(x_BL, last_BL + (at(x_BL, last_BL) == PUSH).to(torch.int64))
