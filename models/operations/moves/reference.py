"""Memories of cells that move: a stack or a tape after actions of which each is taken for a share.

    cells = a new cell, and those of the memory: all of them, it stands in front, or all but the first, in its place
    memory'[n] = sum over actions a of share_a cells[source_a(n)]        0 where an action brings nothing

A move is a run of cells that an action brings from one place to another. Of three cells and a new one, v a b c:

    a stack      push  v a b            pop  b c 0                  stay  a b c
    a ring       stay  v b c            by one to the right  c v b
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Move(NamedTuple):
    """`count` of the cells, from `source` on, go to the places from `to` on, by the share of an action."""

    action: int
    to: int
    source: int
    count: int


@lru_cache
def of_stack(cells: int) -> tuple[Move, ...]:
    """Push, pop and stay; the new cell stands in front."""
    return Move(0, 0, 0, cells), Move(1, 0, 2, cells - 1), Move(2, 0, 1, cells)


@lru_cache(maxsize=1024)
def of_ring(cells: int, shifts: tuple[int, ...]) -> tuple[Move, ...]:
    """All cells by so many places to the right, an action a shift; the new one stands in the first one's place."""
    moves = []
    for action, shift in enumerate(shifts):
        over = shift % cells  # as many go round the end
        moves += [Move(action, 0, cells - over, over), Move(action, over, 0, cells - over)]
    return tuple(moves)


def moved(new_BHW: Tensor, memory_BHNW: Tensor, share_BHA: Tensor, moves: Sequence[Move], *, replaces: bool) -> Tensor:
    """The memory after all actions. `moves` come by action and by the place to which they go."""
    cells_BHXW = torch.cat([new_BHW[:, :, None], memory_BHNW[:, :, int(replaces) :]], 2)
    cells, parts = memory_BHNW.shape[2], []
    for action in range(share_BHA.shape[-1]):
        own = [move for move in moves if move.action == action]
        brought = [cells_BHXW[:, :, move.source : move.source + move.count] for move in own]
        missing = cells - sum(move.count for move in own)
        parts += brought if not missing else [*brought, torch.zeros_like(memory_BHNW[:, :, :missing])]
    return mixed(share_BHA, parts)


def mixed(share_BHA: Tensor, rows_BHNW: list[Tensor]) -> Tensor:
    """The sum over A actions of their shares times the memories they would leave, whose rows follow one another.

    A product instead of A of them and a sum: the backward pass is half as long.
    """
    memory_BHAX = torch.cat(rows_BHNW, 2).unflatten(2, (share_BHA.shape[-1], -1)).flatten(3)
    return (share_BHA[:, :, None] @ memory_BHAX).unflatten(-1, (-1, rows_BHNW[0].shape[-1]))[:, :, 0]


def rolled(memory_BHNW: Tensor, shift: int | Tensor) -> Tensor:
    """A ring moved to the right, each row by its own shift or all by one."""
    if isinstance(shift, int):
        return memory_BHNW.roll(shift, 2)
    cells = memory_BHNW.shape[2]
    from_BN = (torch.arange(cells, device=shift.device) - shift[:, None]) % cells
    return memory_BHNW.gather(2, from_BN[:, None, :, None].expand_as(memory_BHNW))
