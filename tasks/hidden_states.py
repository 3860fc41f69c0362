"""The state that wrote each symbol, in words of a random grammar where several states write the same symbol.

    b d a # a c a d g      ->  b1 d5 a1 #0 a0 c4 a1 d6 g0      read at each symbol
    b . . d . a # f a . a  ->  b1 d5 a1 #0 a0                  blanks; f begins no word, and a cannot follow a0

`grammar` draws the rules (tasks/_hidden_grammar.py). From each state a symbol may follow or not. If it may, it always
leads to the same one of its copies. All symbols that may follow are equally likely. Words end with #. A string is words
one after the other, cut at its length. The first symbol of a word determines its state, so the string determines every
state.

Three settings test selectivity. `steps`: the number of steps an element takes, itself and blanks, drawn uniformly.
`noise`: this percentage of the blanks hold a symbol instead. `distractors`: this percentage of the elements are
followed by a further one, from the element `quiet` on. Noise and distractors are uniform over the symbols that may not
follow the state, which does not change. So the grammar alone distinguishes them from elements, and it always can. If
every symbol may follow, they are blank. Only elements are scored, but lengths count every step. Regular: the machine
holds the state.

More copies make it harder. Given the last two symbols, the likeliest state is right at .64 of all symbols; with
ambiguous=4 copies=4 at .96, and with the published settings at .16.

SelectivBench, Bouhadjar et al. 2026 (2601.12598), written from its description and then compared with its code. It has
40 symbols with 40 copies, 1,600 states. One in a hundred of these may end a word, and a symbol follows with .4 if it
has all 40 copies (# is one). Strings have 200 elements: `symbols=40 ambiguous=40 copies=40 ends=1`. One blank follows
each element, steps=[2,2]. Or 1 to 10 blanks do in training, steps=[2,11], the ends half as likely (a spacing of U(.1,
1), rounded, in units of .1). In the tests it is then 10, 20, 50 or 100: sets of `ladder export` with steps=[11,11] and
the like, for `eval.file` to score. Or there are no blanks, but distractors=10 quiet=51. The published code differs in
these points. It draws words of more than 200 symbols again, so that # is .9 percent of the symbols, here .1. Two states
that begin words may write the same symbol. Blanks are trained on, too, and an element's answer is read over it and its
blanks. Its noise is a uniform number below .2 added to all inputs, while noise=20 is a probability of a symbol. And #
may distract.
"""

from dataclasses import dataclass
from functools import lru_cache
from string import ascii_letters
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _hidden_grammar, _monoid
from chomsky_ladder.tasks._automata import composed, rounded, states_along
from chomsky_ladder.tasks._hidden_grammar import END, HiddenGrammar
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

BLANK, FIRST_SYMBOL = 1, 2  # # and the letters, then the states
BITS = 31
ANY = 2**BITS - 1
FEW = 32
"""Number of states up to which maps compose. Larger grammars are followed step by step (61 states and strings of 200
take 20 us, not 220).
"""


class Tables(NamedTuple):
    after_NJ: Tensor  # the successors of each state
    degree_N: Tensor  # number of successors
    symbol_N: Tensor  # the token of each state's symbol
    foreign_NF: Tensor  # the letters that may not follow, as tokens; a blank if there are none
    foreigners_N: Tensor  # number of these letters
    goes_KN: Tensor  # the state after each token; a token that may not follow changes nothing


@register
@dataclass(frozen=True, kw_only=True)
class HiddenStates(Task):
    name, version, level = "hidden_states", 1, "regular"
    tracks_state = True

    grammar: int = 0
    """The grammar, given by the key it is drawn with."""
    symbols: int = 8
    """Number of symbols besides #."""
    ambiguous: int = 8
    """Number of symbols that have several states. The others have one."""
    copies: int = 8
    """Number of states of an ambiguous symbol, minus those that no word uses."""
    density: int = 40
    """Per cent of the symbols that may follow a state."""
    ends: int = 0
    """Per cent of the states that may end a word; 0 for the same as `density`."""
    starts: int = 4
    """Number of states that may begin a word, each with another symbol."""
    steps: tuple[int, int] = (1, 1)
    """The fewest and the most steps that an element takes, itself and the blanks after it."""
    noise: int = 0
    """Per cent of the blanks that hold a symbol that may not follow."""
    distractors: int = 0
    """Per cent of the elements that are followed by a symbol that may not follow, as a further element."""
    quiet: int = 50
    """The first element that may be followed by a distractor. No shorter string has one."""

    def __post_init__(self) -> None:
        bounded(self, "grammar", 0, 2**63 - 1)
        bounded(self, "symbols", 2, len(ascii_letters))
        bounded(self, "ambiguous", 0, self.symbols)
        bounded(self, "copies", 1, 64)
        bounded(self, "density", 1, 100)
        bounded(self, "ends", 0, 100)
        bounded(self, "starts", 1, self.symbols)
        bounded(self, "noise", 0, 100)
        bounded(self, "distractors", 0, 100)
        bounded(self, "quiet", 1, 1 << 20)
        low, high = self.steps
        if not 1 <= low <= high <= 1024:
            raise ValueError(f"hidden_states: steps must rise within 1..1024, not {low}, {high}")
        if self.noise and high == 1:
            raise ValueError("hidden_states: noise stands in blanks, of which steps=(1, 1) has none")

    @property
    def machine(self) -> HiddenGrammar:
        """Return the grammar that the key draws."""
        return _hidden_grammar.drawn(
            self.grammar,
            letters=ascii_letters[: self.symbols],
            ambiguous=self.ambiguous,
            copies=self.copies,
            density=self.density,
            ends=self.ends or self.density,
            starts=self.starts,
        )

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", ".", "#", *ascii_letters[: self.symbols], *self.machine.names

    @property
    def first_state(self) -> int:
        """Return the token of the state of #, which precedes those of all other states."""
        return FIRST_SYMBOL + 1 + self.symbols

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(self.first_state, self.first_state + len(self.machine.names)))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of states. The state is that of the last element; that of # before the first."""
        return (len(self.machine.names),)

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        return {"state": self.machine.names}

    @property
    def demand(self) -> str:
        """Return the demand of the grammar's words. Noise and distractors may demand more."""
        found = _monoid.demand(_hidden_grammar.completed(self.machine))
        return found if not (self.noise or self.distractors) or found == "non-solvable" else ""

    @property
    def facts(self) -> dict[str, str]:
        """Return the size of the grammar, the accuracy of guesses from the last symbols, and the class of its words."""
        grammar = self.machine
        shared = sum(grammar.symbols.count(symbol) > 1 for symbol in set(grammar.symbols))
        successors = sum(map(len, grammar.successors)) / len(grammar.names)
        one, two = _hidden_grammar.best_guesses(grammar)
        return {
            "states": f"{len(grammar.names)}, {shared} symbols with several",
            "successors of a state": f"{successors:.2f} on average",
            "word": f"{1 / _hidden_grammar.in_the_long_run(grammar)[END] - 1:.1f} symbols on average",
            "guess from the last symbol": f"{one:.3f} right, from the last two {two:.3f}",
            **_monoid.facts(_hidden_grammar.completed(grammar)),
        }

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 1), high + 1))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        tables = _tables(self.machine, self.symbols, lengths_B.device)
        elements = -(-width // self.steps[0])
        state_BE = self._walk(tables, draw.integers(ANY, (elements,)))
        is_element_BL, is_foreign_BL = self._places(draw, elements, width)
        state_BL = state_BE.gather(1, is_element_BL.cumsum(1) - 1)
        chance_BL = draw.integers(tables.foreigners_N.take(state_BL), (width,))
        foreign_BL = tables.foreign_NF.take(state_BL * tables.foreign_NF.shape[1] + chance_BL)
        tokens_BL = torch.where(is_foreign_BL, foreign_BL, BLANK)
        tokens_BL = torch.where(is_element_BL, tables.symbol_N.take(state_BL), tokens_BL)
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        scored_BL = is_element_BL & inside_BL
        targets_BL = torch.where(scored_BL, state_BL + self.first_state, PAD)
        tokens_BL = torch.where(inside_BL, tokens_BL, PAD)
        return Batch(tokens_BL, targets_BL, scored_BL, lengths_B, torch.ones_like(lengths_B))

    def _walk(self, tables: Tables, chance_BE: Tensor) -> Tensor:
        """Return the states of the elements, [B, E], from a uniform integer each.

        Many states are followed one by one.
        """
        (num, most), device = tables.after_NJ.shape, chance_BE.device
        if num <= FEW:
            edge_BEN = chance_BE[..., None] * tables.degree_N >> BITS
            maps_BEN = tables.after_NJ.take(edge_BEN + torch.arange(num, device=device) * most)
            return states_along(composed(maps_BEN), torch.zeros_like(chance_BE[:, 0]))[:, 1:]
        state_B, states = torch.zeros_like(chance_BE[:, 0]), []
        for chance_B in chance_BE.unbind(1):
            edge_B = chance_B * tables.degree_N.take(state_B) >> BITS
            state_B = tables.after_NJ.take(state_B * most + edge_B)
            states.append(state_B)
        return torch.stack(states, dim=1)

    def _places(self, draw: Draw, elements: int, width: int) -> tuple[Tensor, Tensor]:
        """Return the positions of elements, and those of distractors and noise, bool [B, width]."""
        low, high = self.steps
        taken_BE2 = low + draw.integers(high - low + 1, (elements, 2))  # of the element, and of a distractor after it
        number_E = torch.arange(elements, device=taken_BE2.device)
        is_followed_BE = (draw.integers(100, (elements,)) < self.distractors) & (number_E >= self.quiet - 1)
        own_BE, whole_BE = taken_BE2[..., 0], taken_BE2[..., 0] + taken_BE2[..., 1] * is_followed_BE
        place_BE = whole_BE.cumsum(1) - whole_BE
        is_element_BL = _marked(place_BE, width)
        is_distractor_BL = _marked(torch.where(is_followed_BE, place_BE + own_BE, width), width)
        is_noise_BL = draw.integers(100, (width,)) < self.noise
        return is_element_BL, is_distractor_BL | is_noise_BL & ~is_element_BL

    def state(self, tokens_BL: Tensor) -> Tensor:
        goes_KN = _tables(self.machine, self.symbols, tokens_BL.device).goes_KN
        tokens_BL = torch.where(tokens_BL < len(goes_KN), tokens_BL, PAD)
        start_B = torch.zeros_like(tokens_BL[:, 0])
        if goes_KN.shape[1] <= FEW:
            maps_BLN = goes_KN.index_select(0, tokens_BL.flatten()).unflatten(0, tokens_BL.shape)
            return states_along(composed(maps_BLN), start_B)[:, 1:, None]
        states = [start_B]
        for token_B in tokens_BL.unbind(1):
            states.append(goes_KN[token_B, states[-1]])
        return torch.stack(states[1:], dim=1)[..., None]

    def answer_law(self, length: int) -> np.ndarray:
        """Return the probability that an element lies within the length, times the distribution of its state."""
        columns = rounded(length)
        within_E = _within(self.steps, self.distractors / 100, self.quiet, columns)[:, length - 1]
        law_EN = within_E[:, None] * _hidden_grammar.along(self.machine, columns)
        elements = -(-length // self.steps[0])
        return np.pad(law_EN[:elements], ((0, 0), (self.first_state, 0)))


def _marked(place_BE: Tensor, width: int) -> Tensor:
    """Mark these places of `width`, bool. Places beyond are dropped."""
    marks_BL = place_BE.new_zeros(len(place_BE), width + 1, dtype=torch.bool)
    return marks_BL.scatter(1, place_BE.clamp(max=width), True)[:, :width]


@kept
def _tables(grammar: HiddenGrammar, letters: int, device: torch.device) -> Tables:
    num, most = len(grammar.names), max(map(len, grammar.successors))
    after_NJ = np.zeros((num, most), dtype=np.int64)
    goes_KN = np.tile(np.arange(num), (FIRST_SYMBOL + 1 + letters, 1))
    foreign = []
    for state, after in enumerate(grammar.successors):
        after_NJ[state, : len(after)] = after
        follow = [grammar.symbols[to] for to in after]
        goes_KN[np.array(follow) + FIRST_SYMBOL, state] = after
        foreign.append([FIRST_SYMBOL + letter for letter in range(1, letters + 1) if letter not in follow])
    foreign_NF = np.full((num, max(1, *map(len, foreign))), BLANK)
    for state, tokens in enumerate(foreign):
        foreign_NF[state, : len(tokens)] = tokens
    degree_N = np.array([len(after) for after in grammar.successors])
    symbol_N = np.array(grammar.symbols) + FIRST_SYMBOL
    foreigners_N = np.array([len(tokens) for tokens in foreign])
    parts = (after_NJ, degree_N, symbol_N, foreign_NF, foreigners_N, goes_KN)
    return Tables(*(torch.from_numpy(part).to(device) for part in parts))


@lru_cache(maxsize=16)
def _within(steps: tuple[int, int], share: float, quiet: int, columns: int) -> np.ndarray:
    """Return P(the first, second .. element lies within a string of 1, 2 .. columns steps), [E, columns]."""
    low, high = steps
    one = np.zeros(high + 1)
    one[low:] = 1 / (high - low + 1)
    followed = share * np.convolve(one, one)
    followed[: high + 1] += (1 - share) * one
    at_L, rows = np.eye(1, columns)[0], []
    for element in range(1, columns + 1):
        rows.append(at_L.cumsum())
        at_L = np.convolve(at_L, followed if share and element >= quiet else one)[:columns]
    return np.stack(rows)
