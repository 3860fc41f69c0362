"""Pairs of neighbours that no training string has, although both of their symbols stand everywhere in training.

    circle b e a d c, held-out distance 1  ->  never b e, e a, a d, d c or c b

The symbols stand on a circle in a random order. A pair is held out if the second symbol lies at one of a few random
distances after the first. So each symbol has equally many held-out successors, and predecessors. A string is a walk:
the first symbol is uniform, and every further one is uniform among the allowed successors. So all allowed strings of a
length are equally likely, and a symbol is uniform at every place. In uniform strings, as tests have them, any pair is a
held-out one with the same probability, whatever stands before it.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw


class HeldPairs(NamedTuple):
    circle: tuple[int, ...]  # the symbols in their random order
    held: tuple[int, ...]  # distances
    allowed: tuple[int, ...]  # distances


def number_of(symbols: int, percent: int) -> int:
    """Return the number of held-out successors of each symbol: the nearest whole number, but one at least."""
    return max(1, (symbols * percent + 50) // 100)


def chosen(symbols: tuple[int, ...], percent: int, *, name: str, seed: int) -> HeldPairs:
    """Draw the held-out pairs of a group of this name. A larger share holds out those of a smaller one, too."""
    draw = Draw(seed=seed, split=f"word_problem/held_pairs/{name}", rows_B=torch.zeros(1, dtype=torch.int64))
    places, distances = (draw.permutation(len(symbols))[0].tolist() for _ in range(2))
    number = number_of(len(symbols), percent)
    return HeldPairs(tuple(symbols[at] for at in places), tuple(distances[:number]), tuple(distances[number:]))


def walk(circle_S: Tensor, allowed_D: Tensor, draw: Draw, columns: int) -> Tensor:
    """Draw strings without a held-out pair, [B, columns]."""
    step_BN = allowed_D.take(draw.integers(len(allowed_D), (columns,)))
    place_BN = (draw.integers(len(circle_S))[:, None] + step_BN.cumsum(1)) % len(circle_S)
    return circle_S.take(place_BN)


def are_held(pairs: HeldPairs, symbol_BN: Tensor, *, num: int) -> Tensor:
    """Return True where a symbol, of 0..num-1, makes a held-out pair with the one before it, bool [B, N]."""
    is_held = _table(pairs, num, symbol_BN.device)
    return pad(is_held.take(symbol_BN[:, :-1] * num + symbol_BN[:, 1:]), (1, 0))


@kept
def _table(pairs: HeldPairs, num: int, device: torch.device) -> Tensor:
    """Return a flat table of all pairs, x and y at x * num + y."""
    is_held_NN = torch.zeros(num, num, dtype=torch.bool)
    for place, symbol in enumerate(pairs.circle):
        for distance in pairs.held:
            is_held_NN[symbol, pairs.circle[(place + distance) % len(pairs.circle)]] = True
    return is_held_NN.flatten().to(device)
