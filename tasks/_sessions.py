"""Sessions of word problems: elements, some of which are followed by a ? and the state, up to a last ?."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.draw import Draw


def questions(draw: Draw, size_B: Tensor, columns: int, *, reveal: int) -> Tensor:
    """Draw the positions of ?, bool [B, columns]. The state stands behind each but the last."""
    end_B1 = size_B[:, None] - 1
    is_followed_BN = draw.integers(100, (columns,)) < reveal
    taken_BN = 1 + 2 * is_followed_BN
    asked_BN = taken_BN.cumsum(1) - taken_BN + 1  # where its ? would stand
    place_BN = torch.where(is_followed_BN, asked_BN, columns).clamp(max=columns)
    is_asked_BL = place_BN.new_zeros(len(size_B), columns + 1).scatter(1, place_BN, 1)[:, :columns] > 0
    position_L = torch.arange(columns, device=size_B.device)
    return (is_asked_BL & (position_L <= end_B1 - 3)) | (position_L == end_B1)


def behind(is_asked_BL: Tensor) -> Tensor:
    """Return the positions right after those."""
    return pad(is_asked_BL[:, :-1], (1, 0))


@lru_cache(maxsize=256)
def elements_law(size: int, reveal: int) -> np.ndarray:
    """Return P(a session of this many symbols has k elements), [size + 1].

    If an element at s has three more symbols and another element after it, a ? follows with probability p. The next
    element then stands at s + 3, otherwise at s + 1. A ? and its state take two symbols.
    """
    p = reveal / 100
    least = max(size - 4, 0)  # from here on none is
    at_SR = np.zeros((size + 3, size // 2 + 2))  # [s, shown before]: an element stands at s, those before it decided
    at_SR[0, 0] = 1
    for place in range(least):
        at_SR[place + 1] += (1 - p) * at_SR[place]
        at_SR[place + 3, 1:] += p * at_SR[place, :-1]
    shown_R = at_SR[least : least + 3].sum(0)
    law = np.zeros(size + 1)
    for shown, chance in enumerate(shown_R):
        if chance:
            law[size - 1 - 2 * shown] += chance
    return law
