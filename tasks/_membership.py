"""Membership in a regular language: the shared code of `regular` and `random_dfa`, for any automaton.

Half the strings are members, uniform over those of their length. The others never are. With negatives="near"
non-members begin and end as members do: their first and last symbols come from the members' distribution. Given these,
half of the non-members are uniform, and half are near misses: a uniform member with one or two inner symbols
substituted so that it leaves the language. If the language has no non-member with these ends, the ends give the answer
away, and the floor `content_free` counts that. tasks/_labelled.py describes the other kinds of non-members. For uniform
ones the floor also counts the ends. For edited ones it counts the length alone. With "edits", a uniform non-member is
drawn if four tries were all members.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _automata, _monoid
from chomsky_ladder.tasks._automata import SCALE, Automaton
from chomsky_ladder.tasks._following import asked_of_members, following_states
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._labelled import Negatives, labelled, mixed
from chomsky_ladder.tasks.base import PAD, Batch, Floors
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST = 1
MOST_ENTRIES = 2**16
"""The largest table of thresholds for one length, states x symbols x targets. 256 of these take ten seconds."""


@dataclass(frozen=True, kw_only=True)
class Membership(Classification):
    negatives: Literal["near", "uniform", "edits", "one_edit", "border"] = "near"
    """Kind of non-members. near: with members' ends, half of them near misses. uniform. edits: edited members.
    one_edit: one edit from a member. border: the same, and members are one edit from a non-member.
    """

    @property
    @abstractmethod
    def dfa(self) -> Automaton:
        """Return the minimal complete automaton of the language, numbered breadth-first from the start state 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        automaton = self.dfa
        if not mixed(automaton, 256)[1:].any():
            raise ValueError(f"{self.name}: no length up to 256 has strings both in the language and outside it")
        if not self._mixed(256)[1:].any():
            raise ValueError(
                f"{self.name}: no length up to 256 has strings one edit from the other side of the language"
            )
        if (
            self.negatives == "near"
            and len(_targets(automaton)[0]) * automaton.num_states * automaton.num_symbols > MOST_ENTRIES
        ):
            size = f"{automaton.num_states} states and {automaton.num_symbols} symbols"
            raise ValueError(f"{self.name}: {size} are too many together to count the strings")

    @property
    def member_odds(self) -> tuple[int, ...]:
        """Return weights of states, if members of a length are not equally likely (tasks/_automata.py)."""
        return ()

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *self.dfa.alphabet, "NO", "YES"

    @property
    def answers(self) -> tuple[int, ...]:
        no = FIRST + self.dfa.num_symbols
        return no, no + 1

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of states of `dfa`."""
        return (self.dfa.num_states,)

    @property
    def demand(self) -> str:
        return _monoid.demand(self.dfa.transitions)

    @property
    def facts(self) -> dict[str, str]:
        """Return the size of the automaton and the class of the language."""
        size = f"{self.dfa.num_states} states, {self.dfa.num_symbols} symbols"
        return {"minimal automaton": size, **_monoid.facts(self.dfa.transitions)}

    def legal_size(self, size: int) -> bool:
        return size >= 1 and bool(self._mixed(_automata.rounded(size))[size])

    def _mixed(self, most: int) -> np.ndarray:
        """Return True for sizes 0, 1 .. `most` at which strings can be made for training and for the test."""
        kinds: set[Literal["near"] | Negatives] = {self._negatives(split) for split in ("train", "test")}
        return np.logical_and.reduce([mixed(self.dfa, most, negatives=kind) for kind in kinds])

    def _negatives(self, split: str) -> Literal["near"] | Negatives:
        """Return the kind of non-members in a split."""
        return self.negatives

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        no, yes = self.answers
        if (negatives := self._negatives(draw.split)) != "near":
            odds = self.member_odds
            x_BL, is_member_B = labelled(self.dfa, draw, size_B, columns, negatives=negatives, odds=odds)
            return x_BL + FIRST, torch.where(is_member_B, yes, no)
        automaton = self.dfa
        kind_B = draw.integers(8)  # 0-3 a member, 4 and 5 any non-member, 6 one changed symbol, 7 two
        member_B, other_B = _draw_ends(automaton, draw.integers(SCALE, (2,)), size_B, columns)
        uniform_BL2 = draw.integers(SCALE, (max(columns - 2, 0), 2))
        member_BL = _between(automaton, True, member_B, uniform_BL2[..., 0], size_B, columns)
        other_BL = _between(automaton, False, other_B, uniform_BL2[..., 1], size_B, columns)
        missed_BL, found_B = _near_miss(automaton, draw, member_BL, size_B, kind_B == 7)
        other_BL = torch.where(((kind_B >= 6) & found_B)[:, None], missed_BL, other_BL)
        is_member_B = kind_B < 4
        return torch.where(is_member_B[:, None], member_BL, other_BL) + FIRST, torch.where(is_member_B, yes, no)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        accepting_N = _constants(self.dfa, x_BL.device).accepting_N
        return self.answers[0] + accepting_N[self._states(x_BL)].to(torch.int64)

    def state(self, tokens_BL: Tensor) -> Tensor:
        return self._states(tokens_BL)[..., None]

    def may_follow(self, batch: Batch) -> Tensor:
        states_BL = self._states(batch.tokens_BL)
        following_BLK = following_states(self.dfa, states_BL.device)[states_BL]
        yes, closing = self.answers[1], len(self.closing)
        return asked_of_members(batch, following_BLK, yes=yes, closing=closing, vocab=len(self.vocab))

    def _states(self, tokens_BL: Tensor) -> Tensor:
        num = self.dfa.num_symbols
        symbol_BL = torch.where(tokens_BL == PAD, num, tokens_BL - FIRST).clamp(max=num)
        levels = _automata.composed(_automata.letter_maps(self.dfa, symbol_BL))
        return _automata.states_along(levels, torch.zeros_like(tokens_BL[:, 0]))[:, 1:]

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors.

        `content_free` is the best guess from length, first and last symbol; with edits from the length.
        """
        by_ends = self._negatives("test") in ("near", "uniform")
        guesses = [self._guess_from_ends(self.size(length)) if by_ends else 1 / 2 for length in lengths]
        return Floors(s_rand=1 / 2, best_constant=1 / 2, content_free=float(np.mean(guesses)))

    def _guess_from_ends(self, size: int) -> float:
        automaton = self.dfa if self.negatives == "near" else _automata.grouped(self.dfa)[0]
        ends = _ends(automaton, _automata.rounded(size))
        members, others = (np.diff(bounds[size], prepend=0) / SCALE for bounds in (ends.members, ends.others))
        drawn = np.where(ends.has_others[size], members, 0) if self.negatives == "near" else np.zeros_like(members)
        return float(np.maximum(members, drawn + (1 - drawn.sum()) * others).sum() / 2)


class _Ends(NamedTuple):
    """Pairs (first symbol, last symbol) as first * num_symbols + last, for each size, [size, pairs]."""

    members: np.ndarray  # of SCALE: the share of the members whose pair is at most this one
    others: np.ndarray
    has_others: np.ndarray  # True if a non-member has this pair


@kept
def _ends(automaton: Automaton, most: int) -> _Ends:
    num = automaton.num_symbols
    targets, target_2K = _targets(automaton)
    starts = automaton.transitions[0]
    inner = _automata.count_paths(automaton, targets, starts, most)
    counts = np.zeros((2, most + 1, num, num), dtype=object)
    for accepts in (0, 1):
        for symbol, start in enumerate(starts):
            counts[accepts, 1, symbol, symbol] = int(automaton.accepting[start] == bool(accepts))
        counts[accepts, 2:] = inner[: most - 1, target_2K[accepts]].swapaxes(1, 2)
    weights = np.array([weight for weight, _ in _automata.steps(automaton)], dtype=object)
    counts[:, 1] *= weights
    counts[:, 2:] *= weights[:, None] * weights
    counts = counts.reshape(2, most + 1, num * num)
    sums = counts.cumsum(axis=2)
    bounds = (sums * SCALE // np.maximum(sums[..., -1:], 1)).astype(np.int64)
    return _Ends(members=bounds[1], others=bounds[0], has_others=(counts[0] > 0).astype(bool))


@kept
def _targets(automaton: Automaton) -> tuple[tuple[frozenset[int], ...], np.ndarray]:
    """Return the distinct sets of states one symbol before the end, and the set for each [accepting, last symbol]."""
    sets = [
        [frozenset(state for state, row in enumerate(automaton.transitions) if row[last] in final) for last in symbols]
        for final in (automaton.states(accepting=False), automaton.states(accepting=True))
        for symbols in [range(automaton.num_symbols)]
    ]
    different = tuple(dict.fromkeys(sets[0] + sets[1]))
    return different, np.array([[different.index(target) for target in row] for row in sets])


class _Constants(NamedTuple):
    """Tensors that do not depend on lengths."""

    after_NK: Tensor
    accepting_N: Tensor  # bool
    target_2K: Tensor


@kept
def _constants(automaton: Automaton, device: torch.device) -> _Constants:
    return _Constants(
        after_NK=torch.tensor(automaton.transitions, device=device),
        accepting_N=torch.tensor(automaton.accepting, device=device),
        target_2K=torch.from_numpy(_targets(automaton)[1]).to(device),
    )


@kept
def _ends_on(automaton: Automaton, most: int, device: torch.device) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(table).to(device) for table in _ends(automaton, most))


def _draw_ends(automaton: Automaton, uniform_B2: Tensor, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Draw the first and last symbol of a member, and of a non-member, which has the same ones if possible."""
    ends = _ends_on(automaton, _automata.rounded(columns), size_B.device)
    members_BP, others_BP, has_others_BP = (table.index_select(0, size_B) for table in ends)
    member_B = (uniform_B2[:, :1] >= members_BP).sum(1)
    other_B = (uniform_B2[:, 1:] >= others_BP).sum(1)
    shared_B = has_others_BP.gather(1, member_B[:, None])[:, 0]
    return member_B, torch.where(shared_B, member_B, other_B)


def _between(
    automaton: Automaton, accepts: bool, ends_B: Tensor, uniform_BL: Tensor, size_B: Tensor, columns: int
) -> Tensor:
    """Draw strings uniform over the members, or the non-members, with these first and last symbols."""
    first_B, last_B = ends_B // automaton.num_symbols, ends_B % automaton.num_symbols
    constants = _constants(automaton, size_B.device)
    inner_BL, _ = _automata.random_path(
        automaton,
        uniform_BL,
        (size_B - 2).clamp(min=0),
        targets=_targets(automaton)[0],
        target_B=constants.target_2K[int(accepts)].index_select(0, last_B),
        start_B=constants.after_NK[0].index_select(0, first_B),
    )
    x_BL = torch.cat([first_B[:, None], inner_BL, last_B[:, None]], dim=1)[:, :columns]
    return torch.where(torch.arange(columns, device=size_B.device) == size_B[:, None] - 1, last_B[:, None], x_BL)


def _near_miss(
    automaton: Automaton, draw: Draw, member_BL: Tensor, size_B: Tensor, two_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Change an inner symbol of members uniformly so that they leave the language; also return True where that is
    possible.

    With `two_B`, another inner symbol was changed before, and the change that leaves the language is at another place.
    """
    num, device = automaton.num_symbols, size_B.device
    constants = _constants(automaton, device)
    position_L = torch.arange(member_BL.shape[1], device=device)
    place_B = draw.integers((size_B - 2).clamp(min=1)) + 1
    changed_BL = (member_BL + draw.integers(num - 1)[:, None] + 1) % num
    edited_BL = (position_L == place_B[:, None]) & two_B[:, None]
    x_BL = torch.where(edited_BL, changed_BL, member_BL)
    inside_BL = position_L < size_B[:, None]
    levels = _automata.composed(_automata.letter_maps(automaton, torch.where(inside_BL, x_BL, num)))
    states_BL = _automata.states_along(levels, torch.zeros_like(size_B))
    sets_BLN = _automata.sets_along(levels, constants.accepting_N.expand(len(size_B), -1))
    after_BLK = constants.after_NK.index_select(0, states_BL[:, :-1].flatten()).unflatten(0, x_BL.shape)
    free_BL = (position_L >= 1) & (position_L < size_B[:, None] - 1) & ~edited_BL
    other_BLK = x_BL[..., None] != torch.arange(num, device=device)
    choices_BLK = free_BL[..., None] & other_BLK & ~sets_BLN[:, 1:].gather(2, after_BLK)
    choices_BL = choices_BLK.sum(2)
    running_BL = choices_BL.cumsum(1)
    found_B1 = running_BL[:, -1:]
    rank_B1 = draw.integers(found_B1.clamp(min=1), (1,))
    chosen_B1 = (running_BL <= rank_B1).sum(1, keepdim=True).clamp(max=x_BL.shape[1] - 1)
    rank_B1 = rank_B1 - (running_BL - choices_BL).gather(1, chosen_B1)
    choices_BK = choices_BLK.gather(1, chosen_B1[..., None].expand(-1, -1, num))[:, 0]
    symbol_B1 = (choices_BK.cumsum(1) <= rank_B1).sum(1, keepdim=True)
    return torch.where(position_L == chosen_B1, symbol_B1, x_BL), found_B1[:, 0] > 0
