"""The next symbols allowed by an automaton that only this string shows: random walks on a new random automaton.

    f b c f | f b a f b | f b c  ->  b c f f b a f b f b c        read at each token: a symbol that may come next

Every string has its own automaton, drawn from its row: some states, some letters of the alphabet, and from each state
1..`outgoing` different letters to as many other states, never to itself. A walk starts in the first state and takes
each of a state's letters with equal probability. An answer is right if the automaton allows it, so accuracy is the
share of legal symbols. Nothing is asked where a separator comes next. RegBench, Akyurek et al. 2024 (2401.12973), also
has 4..12 states, 4..18 letters of 18, and 10..19 walks. It differs in three points. Its automata are minimised and
trimmed, which changes no walk's probability. Its walks have 1..49 symbols with equal probability and determine the
string's length. Here the length is given and cut into walks, all cuts equally likely, with fewer walks if not so many
fit. And it trains on 5,000 automata in epochs, which is `train.examples` here. Outside the hierarchy: no automaton is
known beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import composed, states_along
from chomsky_ladder.tasks.base import PAD, Batch, Floors, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

CUT, FIRST = 1, 2  # then the letters
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BITS = 31
ANY = 2**BITS - 1
BEYOND = 2**BITS  # above every key drawn


class Machines(NamedTuple):
    """The automaton of each row. Entries from a state's degree on are no edges."""

    letter_BNJ: Tensor  # the token of each edge
    after_BNJ: Tensor  # the state it leads to
    degree_BN: Tensor  # number of edges of a state


@register
@dataclass(frozen=True, kw_only=True)
class InContextAutomata(Task):
    name, version, level = "in_context_automata", 1, "none"
    own_lengths = (128, 128)

    states: tuple[int, int] = (4, 12)
    """The fewest and the most states of an automaton."""
    letters: tuple[int, int] = (4, 18)
    """The fewest and the most letters of an automaton."""
    alphabet: int = 18
    """Number of letters in the alphabet."""
    outgoing: int = 3
    """The most letters of a state."""
    walks: tuple[int, int] = (10, 19)
    """The fewest and the most walks of a string; fewer if not so many fit."""

    def __post_init__(self) -> None:
        bounded(self, "alphabet", 2, len(LETTERS))
        bounded(self, "outgoing", 1, 8)
        for name, low, high in (("states", self.outgoing + 1, 64), ("letters", self.outgoing, self.alphabet)):
            least, most = getattr(self, name)
            if not low <= least <= most <= high:
                raise ValueError(f"in_context_automata: {name} must rise within {low}..{high}, not {least}, {most}")
        if not 1 <= self.walks[0] <= self.walks[1] <= 1024:
            raise ValueError(
                f"in_context_automata: walks must rise within 1..1024, not {self.walks[0]}, {self.walks[1]}"
            )

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "|", *LETTERS[: self.alphabet]

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.alphabet))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 1), high + 1))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        machines = self.machines(draw)
        cut_BW = self._cuts(draw, lengths_B + 1, width + 1)
        chance_BW = draw.integers(ANY, (width + 1,))
        # The edge that each state would take, and where it leads: a cut leads back to the first state.
        edge_BWN = (chance_BW[..., None] * machines.degree_BN[:, None]) >> BITS
        maps_BWN = machines.after_BNJ.transpose(1, 2).gather(1, edge_BWN).masked_fill(cut_BW[..., None], 0)
        state_BW1 = states_along(composed(maps_BWN), torch.zeros_like(lengths_B))[:, :-1, None]
        edge_BW1 = edge_BWN.gather(2, state_BW1)
        letter_BW = machines.letter_BNJ.flatten(1).gather(1, (state_BW1 * self.outgoing + edge_BW1)[..., 0])
        window_BW = letter_BW.masked_fill(cut_BW, CUT)
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        scored_BL = inside_BL & ~cut_BW[:, 1:]
        tokens_BL = torch.where(inside_BL, window_BW[:, :-1], PAD)
        targets_BL = torch.where(scored_BL, window_BW[:, 1:], PAD)
        return Batch(tokens_BL, targets_BL, scored_BL, lengths_B, 1 + cut_BW[:, 1].to(torch.int64))

    def _cuts(self, draw: Draw, total_B: Tensor, columns: int) -> Tensor:
        """Return the positions of the separators, bool [B, columns]: uniform, no two side by side."""
        cuts_B = self._walks_of(draw, total_B) - 1
        symbols_B1 = (total_B - cuts_B)[:, None]
        key_BW = draw.integers(ANY, (columns,))
        column_W = torch.arange(columns, device=total_B.device)
        most = min(self.walks[1] - 1, (columns - 1) // 2)
        if most == 0:
            return torch.zeros_like(key_BW, dtype=torch.bool)
        # A cut lies before the symbol column + 1; earlier cuts shift it by one each.
        key_BW = torch.where(column_W < symbols_B1 - 1, key_BW, BEYOND) * columns + column_W
        column_BC = key_BW.topk(most, dim=1, largest=False).indices
        number_C = torch.arange(most, device=total_B.device)
        column_BC = torch.where(number_C < cuts_B[:, None], column_BC, columns).sort(1).values
        place_BC = torch.where(number_C < cuts_B[:, None], column_BC + 1 + number_C, columns)
        return torch.zeros(len(total_B), columns + 1, dtype=torch.bool, device=total_B.device).scatter(
            1, place_BC, True
        )[:, :columns]

    def _walks_of(self, draw: Draw, total_B: Tensor) -> Tensor:
        low, high = self.walks
        return torch.minimum(low + draw.integers(high - low + 1), (total_B + 1) // 2)

    def machines(self, draw: Draw) -> Machines:
        """Return the automata of a draw's rows. They do not depend on earlier draws."""
        draw = draw.child("automaton")
        (few, many), (least, most) = self.states, self.letters
        num_B1 = few + draw.integers(many - few + 1)[:, None]
        letters_B1 = least + draw.integers(most - least + 1)[:, None]
        own_BA = draw.permutation(self.alphabet)  # the first ones are the automaton's
        state_N = torch.arange(many, device=num_B1.device)
        is_other_BNN = (state_N != state_N[:, None]) & (state_N < num_B1[:, None])
        after_BNJ = _some(draw.integers(ANY, (many, many)), is_other_BNN, self.outgoing)
        own_BNA = torch.arange(self.alphabet, device=num_B1.device) < letters_B1[:, None]
        rank_BNJ = _some(draw.integers(ANY, (many, self.alphabet)), own_BNA, self.outgoing)
        letter_BNJ = own_BA.gather(1, rank_BNJ.flatten(1)).view_as(rank_BNJ) + FIRST
        return Machines(letter_BNJ, after_BNJ, 1 + draw.integers(self.outgoing, (many,)))

    def allowed_in(self, tokens_BL: Tensor, draw: Draw) -> Tensor:
        """Return the letters of the state after each position. An impossible token does not change the state."""
        letter_BNJ, after_BNJ, degree_BN = self.machines(draw)
        (rows, many, _), size = letter_BNJ.shape, len(self.vocab)
        edge_J = torch.arange(self.outgoing, device=tokens_BL.device)
        token_BNJ = torch.where(edge_J < degree_BN[..., None], letter_BNJ, PAD)
        state_N1 = torch.arange(many, device=tokens_BL.device)[:, None]
        goes_BNV = state_N1.expand(rows, many, size).scatter(2, token_BNJ, after_BNJ)
        goes_BNV[..., PAD], goes_BNV[..., CUT] = state_N1[:, 0], 0
        maps_BLN = goes_BNV.transpose(1, 2).gather(1, tokens_BL[..., None].expand(-1, -1, many))
        state_BL = states_along(composed(maps_BLN), torch.zeros_like(tokens_BL[:, 0]))[:, 1:]
        has_BNV = torch.zeros_like(goes_BNV, dtype=torch.bool).scatter(2, token_BNJ, True)
        has_BNV[..., PAD] = False
        return has_BNV.gather(1, state_BL[..., None].expand(-1, -1, size))

    def answer_law(self, length: int) -> np.ndarray:
        """Return the distribution of answers. Letters are alike; a string with more walks has fewer answers."""
        low, high = self.walks
        scored_W = length + 1 - np.minimum(np.arange(low, high + 1), (length + 2) // 2)
        law = np.zeros((length, len(self.vocab)))
        law[:, FIRST:] = (np.arange(length)[:, None] < scored_W).mean(1, keepdims=True) / self.alphabet
        return law

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors: accuracy is the share of legal symbols. All guesses are equally good, since letters are
        alike.

        The distribution of a state's letters is the same for all. Walks return more often to states of few letters,
        which changes the mean by less than a hundredth.
        """
        return Floors(*[(1 + self.outgoing) / 2 / self.alphabet] * 3)


def _some(key_BNX: Tensor, may_BNX: Tensor, count: int) -> Tensor:
    """Choose this many different columns of each row among the possible ones, uniformly, [B, N, count]."""
    columns = key_BNX.shape[2]
    key_BNX = torch.where(may_BNX, key_BNX, BEYOND) * columns + torch.arange(columns, device=key_BNX.device)
    return key_BNX.topk(count, dim=2, largest=False).indices
