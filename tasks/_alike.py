"""Draw symbols that an automaton treats alike as one group, and choose among them afterwards.

group_BL = [0 1 0]    groups = ((0, 2), (1,))    ->    a or c, b, a or c
"""

import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw


def spelled(group_BL: Tensor, groups: tuple[tuple[int, ...], ...], draw: Draw) -> Tensor:
    """Draw a uniform symbol from each group."""
    size_G, symbol_GK = _tables(groups, group_BL.device)
    index_BL = group_BL.clamp(max=len(groups) - 1)
    member_BL = draw.integers(size_G[index_BL], (group_BL.shape[1],))
    return symbol_GK[index_BL, member_BL]


@kept
def _tables(groups: tuple[tuple[int, ...], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the size of each group, and its symbols."""
    most = max(map(len, groups))
    padded = [[*group, *[group[0]] * (most - len(group))] for group in groups]
    return torch.tensor([len(group) for group in groups], device=device), torch.tensor(padded, device=device)
