"""Grammars in layers, drawn by a key: each kind of node becomes two or three nodes of the layer below.

    S -> B C | C A A        layer 0, the root
    A -> c b | a a c        layer 1: A, B, C become letters        B C -> b a  a a c        one of the sentences
    ..

All kinds have equally many rules, equally likely. No two rules of a layer have the same right side, so a node could be
told from its parts, if one knew where they begin and end.

The place in a sentence is a path: the rule and the position in it, in each layer. So sentences come from a Markov chain
of places, each of which writes one letter, and the belief of an ideal reader is exact (a forward filter).
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import NumpyDraw

MOST_PLACES = 1 << 16
TRIALS = 64  # layers drawn, of which the most even one is taken
END = 0  # the place between sentences, and its symbol; letter k is symbol k + 1

Side = tuple[int, ...]
Rules = tuple[tuple[Side, ...], ...]  # the right sides of each kind of one layer
Path = tuple[tuple[int, int], ...]  # (rule, position) in each layer


class Chain(NamedTuple):
    """The Markov chain of places. Entry e leads from one place to another with a chance."""

    symbol_N: np.ndarray
    from_E: np.ndarray
    to_E: np.ndarray
    chance_E: np.ndarray


@kept
def drawn(key: int, *, layers: int, kinds: int, rules: int) -> tuple[Rules, ...]:
    """Draw the grammar of a key, from the root down. Every layer uses all kinds, about equally often."""
    stream, made = NumpyDraw(seed=key, split="lano", rows_B=np.arange(1)), []
    for layer in range(layers):
        num = kinds if layer else 1
        trials = [_layer(stream.child(f"{layer} {trial}"), num, kinds, rules) for trial in range(TRIALS)]
        made.append(min(trials, key=lambda trial: np.ptp(_counts(trial, kinds))))
        if not _counts(made[-1], kinds).all():
            raise ValueError(f"lano: grammar {key} has too few rules for {kinds} kinds; raise rules")
    return tuple(made)


def _layer(draw: NumpyDraw, num: int, kinds: int, rules: int) -> Rules:
    left = {size: [sides[place] for place in draw.permutation(len(sides))[0]] for size, sides in _sides(kinds)}
    sizes_KR = (2 + draw.integers(2, (num, rules))[0]).tolist()
    return tuple(tuple((left[size] or left[5 - size]).pop() for size in sizes) for sizes in sizes_KR)


def _counts(rules: Rules, kinds: int) -> np.ndarray:
    return np.bincount([kind for sides in rules for side in sides for kind in side], minlength=kinds)


def _sides(kinds: int) -> list[tuple[int, list[Side]]]:
    return [(size, list(product(range(kinds), repeat=size))) for size in (2, 3)]


def num_letters(grammar: tuple[Rules, ...]) -> int:
    return 1 + max(kind for sides in grammar[-1] for side in sides for kind in side)


def num_places(grammar: tuple[Rules, ...]) -> int:
    """Return the number of places in sentences, and one between them."""
    below = [1] * num_letters(grammar)
    for layer in reversed(grammar):
        below = [sum(below[kind] for side in sides for kind in side) for sides in layer]
    return 1 + below[0]


@kept
def chain(grammar: tuple[Rules, ...]) -> Chain:
    """Return the chain of places, in the order of their paths."""
    places: list[tuple[Path, int]] = [((), END)]  # of each place its path, and its letter
    first: dict[tuple[int, int, Path], list[int]] = {}

    def grow(layer: int, kind: int, path: Path) -> None:
        if layer == len(grammar):
            places.append((path, kind + 1))
            return
        for rule, side in enumerate(grammar[layer][kind]):
            for position, child in enumerate(side):
                grow(layer + 1, child, (*path, (rule, position)))

    grow(0, 0, ())
    number = {path: place for place, (path, _) in enumerate(places)}

    def begun(layer: int, kind: int, path: Path) -> list[int]:
        """Return the places at which a node may begin, all equally likely."""
        if layer == len(grammar):
            return [number[path]]
        if (layer, kind, path) not in first:
            first[layer, kind, path] = [
                place
                for rule, side in enumerate(grammar[layer][kind])
                for place in begun(layer + 1, side[0], (*path, (rule, 0)))
            ]
        return first[layer, kind, path]

    def after(path: Path) -> list[int]:
        sides = []
        kind = 0
        for layer, (rule, position) in enumerate(path):
            sides.append(grammar[layer][kind][rule])
            kind = sides[-1][position]
        for layer in reversed(range(len(path))):
            rule, position = path[layer]
            if position + 1 < len(sides[layer]):
                return begun(layer + 1, sides[layer][position + 1], (*path[:layer], (rule, position + 1)))
        return [END] if path else begun(0, 0, ())

    ways = [after(path) for path, _ in places]
    return Chain(
        symbol_N=np.array([symbol for _, symbol in places]),
        from_E=np.repeat(np.arange(len(ways)), [len(to) for to in ways]),
        to_E=np.concatenate([np.array(to) for to in ways]),
        chance_E=np.concatenate([np.full(len(to), 1 / len(to)) for to in ways]),
    )


def stepped(chain: Chain, share_N: np.ndarray) -> np.ndarray:
    """Return the distribution over places one symbol later."""
    return np.bincount(chain.to_E, weights=share_N[chain.from_E] * chain.chance_E, minlength=len(share_N))


def by_symbol(chain: Chain, share_N: np.ndarray) -> np.ndarray:
    """Return the distribution over symbols."""
    return np.bincount(chain.symbol_N, weights=share_N)


@kept
def laws(grammar: tuple[Rules, ...], steps: int) -> np.ndarray:
    """Return P(symbol) one, two .. `steps` symbols after the end of a sentence, [steps, symbols]."""
    made = chain(grammar)
    share_N, rows = np.eye(1, len(made.symbol_N), END)[0], []
    for _ in range(steps):
        share_N = stepped(made, share_N)
        rows.append(by_symbol(made, share_N))
    return np.stack(rows)


@kept
def _forward(grammar: tuple[Rules, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the transposed transitions, sparse, and which places write each symbol, [N, symbols]."""
    made = chain(grammar)
    size = len(made.symbol_N)
    index_2E = torch.from_numpy(np.stack([made.to_E, made.from_E]))
    forward_NN = torch.sparse_coo_tensor(
        index_2E, torch.from_numpy(made.chance_E), (size, size), check_invariants=False
    )
    writes_NK = torch.from_numpy(np.eye(1 + made.symbol_N.max())[made.symbol_N])
    return forward_NN.coalesce().to(device), writes_NK.to(device)


def beliefs(grammar: tuple[Rules, ...], symbol_BL: Tensor) -> Iterator[Tensor]:
    """Yield P(next symbol | all symbols up to here), float64 [B, symbols], at each position. Strings begin with #."""
    forward_NN, writes_NK = _forward(grammar, symbol_BL.device)
    belief_NB = torch.ones(len(writes_NK), len(symbol_BL), dtype=torch.float64, device=symbol_BL.device)
    for symbol_B in symbol_BL.unbind(1):
        belief_NB = belief_NB * writes_NK[:, symbol_B]
        belief_NB = forward_NN @ (belief_NB / belief_NB.sum(0, keepdim=True))
        yield belief_NB.T @ writes_NK
