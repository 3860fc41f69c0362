"""The next symbol in sentences of a grammar that is ambiguous to one who reads from left to right.

    # b a c c a b b # a c b ..  ->  b a c c a b b # a c b c        read at each symbol: the next one

A key draws the grammar (tasks/_layered.py): in each layer, a node of any kind becomes two or three nodes of the next
layer, by one of its rules, and the last layer is letters. A string is sentences one after the other, each behind a #,
cut at its length. Where one node ends and another begins is written nowhere, so a reader has to keep several parses at
once. For a fixed number of layers the language is regular, but its places grow fivefold with each layer, while a
stack needs one cell more.

The next symbol is not determined. The metric `best_possible` says how often the best answer is right, from an exact
filter over all parses. `ladder describe` shows what it is for one grammar, and what a guess from the last one or two
symbols reaches. Loss is in nats a symbol.

After Lano of Physics of Language Models: Part 4.1 (Allen-Zhu 2025, 2512.17351) and the grammars of Part 1 (2305.13673),
by their description: their grammars have three kinds and more layers, and sentences of some hundred symbols (layers=6
is like them). They are other grammars than the key draws, and they score whole continuations.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _layered
from chomsky_ladder.tasks._automata import rounded
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._layered import END, MOST_PLACES
from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

FIRST = 1  # the token of #, then the letters
LETTERS = "abcdefghijklmnop"
LONGEST = 3  # symbols of a right side; the shortest has two
SHOWN = (32, 128)  # strings and their length, by which `ladder describe` shows the best accuracy


@register
@dataclass(frozen=True, kw_only=True)
class Lano(Task):
    name, version, level = "lano", 1, "context_free"
    own_lengths = (128, 128)
    is_unsure = True

    grammar: int = 0
    """The grammar, given by the key it is drawn with."""
    layers: int = 4
    """Number of layers of rules; a sentence has 2 to 3 symbols to this power."""
    kinds: int = 3
    """Number of kinds of nodes in a layer, and of letters."""
    rules: int = 2
    """Number of rules of a kind."""

    def __post_init__(self) -> None:
        bounded(self, "grammar", 0, 2**63 - 1)
        bounded(self, "layers", 1, 8)
        bounded(self, "kinds", 2, len(LETTERS))
        bounded(self, "rules", 2, 64)
        needed, most = self.kinds * self.rules, self.kinds**2 + self.kinds**3
        if needed > most:
            raise ValueError(f"lano: {self.kinds} kinds of {self.rules} rules need {needed} right sides of {most}")
        if (found := _layered.num_places(self._rules)) > MOST_PLACES:
            raise ValueError(f"lano: {found:,} places in a sentence, more than {MOST_PLACES:,}; use fewer layers")

    @property
    def _rules(self) -> tuple[_layered.Rules, ...]:
        return _layered.drawn(self.grammar, layers=self.layers, kinds=self.kinds, rules=self.rules)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "#", *LETTERS[: self.kinds]

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + 1 + self.kinds))

    @property
    def facts(self) -> dict[str, str]:
        """Return the rules, the size of the chain, and what guesses reach."""
        names = [[f"{chr(65 + kind)}{layer}" for kind in range(self.kinds)] for layer in range(1, self.layers)]
        names = [["S"], *names, list(LETTERS)]
        said = [
            f"{names[layer][kind]} -> "
            + " | ".join(" ".join(names[layer + 1][part] for part in side) for side in sides)
            for layer, rules in enumerate(self._rules)
            for kind, sides in enumerate(rules)
        ]
        rows, length = SHOWN
        draw = Draw(seed=0, split="describe", rows_B=torch.arange(rows))
        best_BL = self.best_possible(self.sample(draw, torch.full((rows,), length), length).tokens_BL)
        one, two = _last_symbols(self._rules)
        return {
            "rules": "; ".join(said),
            "places": f"{_layered.num_places(self._rules):,}",
            "sentence": f"{_mean_length(self._rules):.1f} symbols on average",
            "guess from the last symbol": f"{one:.3f} right, from the last two {two:.3f}",
            "best possible": f"{best_BL.mean():.3f} right, in {rows} strings of {length} symbols",
        }

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 1), high + 1))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        sentences = 1 + width // (1 + 2**self.layers)
        is_root_N = torch.arange(2 * sentences, device=lengths_B.device) % 2  # a # before each sentence
        node_BN = is_root_N.expand(len(lengths_B), -1)
        for child_K, size_K in _tables(self._rules, lengths_B.device):
            node_BN = self._grown(node_BN, child_K, size_K, draw.integers(self.rules, (node_BN.shape[1],)), width + 1)
        window_BW = node_BN + FIRST
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        tokens_BL, targets_BL = (torch.where(inside_BL, x, PAD) for x in (window_BW[:, :-1], window_BW[:, 1:]))
        return Batch(tokens_BL, targets_BL, inside_BL, lengths_B, torch.ones_like(lengths_B))

    def _grown(self, node_BN: Tensor, child_K: Tensor, size_K: Tensor, rule_BN: Tensor, most: int) -> Tensor:
        """Replace each node by its parts, and cut what lies behind `most` nodes."""
        way_BN = node_BN * self.rules + rule_BN
        size_BN = size_K.take(way_BN)
        place_BN = size_BN.cumsum(1) - size_BN
        columns = min(most, LONGEST * node_BN.shape[1])
        grown_BM = node_BN.new_zeros(len(node_BN), columns + 1)
        for part in range(LONGEST):
            is_there_BN = (part < size_BN) & (place_BN + part < columns)
            target_BN = torch.where(is_there_BN, place_BN + part, columns)
            grown_BM = grown_BM.scatter(1, target_BN, child_K.take(way_BN * LONGEST + part))
        return grown_BM[:, :columns]

    def best_possible(self, tokens_BL: Tensor) -> Tensor:
        symbol_BL = torch.where(tokens_BL == PAD, END, tokens_BL - FIRST)
        known_BL = (tokens_BL != PAD).cumprod(1).bool()
        best = [law_BK.amax(1) for law_BK in _layered.beliefs(self._rules, symbol_BL)]
        return torch.where(known_BL, torch.stack(best, dim=1), 1.0)

    def answer_law(self, length: int) -> np.ndarray:
        return np.pad(_layered.laws(self._rules, rounded(length))[:length], ((0, 0), (FIRST, 0)))


@kept
def _tables(grammar: tuple[_layered.Rules, ...], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return for each layer the parts [kind x rule x part], and how many there are. Kind 0 is # and stays."""
    made = []
    for layer in grammar:
        rules = len(layer[0])
        child_KRP = np.zeros((1 + len(layer), rules, LONGEST), dtype=np.int64)
        size_KR = np.ones((1 + len(layer), rules), dtype=np.int64)
        for kind, sides in enumerate(layer, start=1):
            for rule, side in enumerate(sides):
                child_KRP[kind, rule, : len(side)] = np.array(side) + 1
                size_KR[kind, rule] = len(side)
        made.append((torch.from_numpy(child_KRP).flatten().to(device), torch.from_numpy(size_KR).flatten().to(device)))
    return made


def _mean_length(grammar: tuple[_layered.Rules, ...]) -> float:
    """Return the mean number of letters in a sentence."""
    below = np.ones(_layered.num_letters(grammar))
    for layer in reversed(grammar):
        below = np.array([np.mean([below[list(side)].sum() for side in sides]) for sides in layer])
    return float(below[0])


def _last_symbols(grammar: tuple[_layered.Rules, ...]) -> tuple[float, float]:
    """Return how often the likeliest next symbol is right in a long string, given the last one, and the last two."""
    made = _layered.chain(grammar)
    size, num = len(made.symbol_N), 1 + int(made.symbol_N.max())
    share_N = np.zeros(size)  # of all places in a long string: each is visited as often as a sentence passes it
    mass_N = np.eye(1, size, END)[0]
    while mass_N.sum() > 0:
        share_N += mass_N
        mass_N = _layered.stepped(made, mass_N)
        mass_N[END] = 0
    share_N /= share_N.sum()
    found = []
    for known in (1, 2):
        shares = [share_N * (made.symbol_N == symbol) for symbol in range(num)]
        for _ in range(known - 1):
            shares = [_layered.stepped(made, x) * (made.symbol_N == symbol) for x in shares for symbol in range(num)]
        found.append(float(sum(_layered.by_symbol(made, _layered.stepped(made, x)).max() for x in shares)))
    return found[0], found[1]
