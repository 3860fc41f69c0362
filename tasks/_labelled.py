"""Draw members of a regular language and non-members of several kinds.

    labelled(parity, draw, size_B, columns, negatives="uniform")    a fair coin, then a uniform string with that label

"uniform": members and non-members are uniform over those of their length, as in MLRegTest (2304.07687). "edits":
non-members are edited members, or uniform strings, as in FLaRe (2411.07107; tasks/_edits.py), and `odds` make some
members likelier. "one_edit": non-members are one edit from a member. "border": members are also one edit from a
non-member, as in MLRegTest's adversarial sets (tasks/_border.py).
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _border, _edits
from chomsky_ladder.tasks._alike import spelled
from chomsky_ladder.tasks._automata import (
    SCALE,
    Automaton,
    composed,
    grouped,
    letter_maps,
    random_path,
    rounded,
    states_along,
)
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw

Negatives = Literal["uniform", "edits", "one_edit", "border"]
TRIES = 4


def labelled(
    automaton: Automaton, draw: Draw, size_B: Tensor, columns: int, *, negatives: Negatives, odds: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Draw strings of which half are members, and return which are."""
    is_member_B, language = draw.integers(2) == 1, Regular(automaton, odds)
    if negatives == "border":
        return _border.sample(automaton, draw, size_B, columns, is_member_B), is_member_B
    if negatives == "uniform":
        return language.sample(draw, size_B, columns, is_member_B), is_member_B
    x_BL = language.members(draw, size_B, columns)
    if negatives == "edits":
        other_BL = _edits.non_members(language, draw.child("edits"), size_B, columns, tries=TRIES)
    else:
        other_BL = _border.sample(automaton, draw.child("edits"), size_B, columns, torch.zeros_like(is_member_B))
    return torch.where(is_member_B[:, None], x_BL, other_BL), is_member_B


class Regular(NamedTuple):
    """A regular language for tasks/_edits.py, given by its automaton."""

    automaton: Automaton
    odds: tuple[int, ...] = ()
    """Weights of states (tasks/_automata.py), if members of a length are not equally likely."""

    @property
    def num_symbols(self) -> int:
        return self.automaton.num_symbols

    def has_members(self, most: int, device: torch.device) -> Tensor:
        return _kinds_on(self.automaton, rounded(most + 1), device)[1]

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        likely = Regular(replace(self.automaton, odds=self.odds))
        return likely.sample(draw, size_B, columns, torch.ones_like(size_B, dtype=torch.bool))

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.sample(draw, size_B, columns, torch.zeros_like(size_B, dtype=torch.bool))

    def sample(self, draw: Draw, size_B: Tensor, columns: int, is_member_B: Tensor) -> Tensor:
        """Draw uniformly from the members of a size, or from the non-members."""
        automaton, groups = grouped(self.automaton)
        targets = automaton.states(accepting=False), automaton.states(accepting=True)
        uniform_BL = draw.integers(SCALE, (columns,))
        group_BL, _ = random_path(automaton, uniform_BL, size_B, targets=targets, target_B=is_member_B.to(torch.int64))
        return spelled(group_BL, groups, draw)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        inside_BL = torch.arange(x_BL.shape[1], device=x_BL.device) < size_B[:, None]
        levels = composed(letter_maps(self.automaton, torch.where(inside_BL, x_BL, self.num_symbols)))
        last_B = states_along(levels, torch.zeros_like(size_B))[:, -1]
        return _accepting(self.automaton, x_BL.device)[last_B]


@kept
def kinds(automaton: Automaton, most: int) -> np.ndarray:
    """Return True for sizes 0, 1 .. `most` with strings outside, and inside, the language, bool [2, most + 1]."""
    transitions, accepting = np.array(automaton.transitions), np.array(automaton.accepting)
    reached_N = np.arange(automaton.num_states) == 0
    found = np.zeros((2, most + 1), dtype=bool)
    for size in range(most + 1):
        found[:, size] = (reached_N & ~accepting).any(), (reached_N & accepting).any()
        reached_N = np.isin(np.arange(automaton.num_states), transitions[reached_N])
    return found


@kept
def mixed(automaton: Automaton, most: int, *, negatives: Literal["near"] | Negatives = "near") -> np.ndarray:
    """Return True for sizes 0, 1 .. `most` with members and non-members of this kind."""
    found: np.ndarray = np.logical_and(*kinds(automaton, most))
    if negatives not in ("one_edit", "border"):
        return found
    beside = _border.found(automaton, most)[: 2 if negatives == "border" else 1]
    return np.logical_and.reduce([found, *beside])


@kept
def _kinds_on(automaton: Automaton, most: int, device: torch.device) -> Tensor:
    return torch.from_numpy(kinds(automaton, most)).to(device)


@kept
def _accepting(automaton: Automaton, device: torch.device) -> Tensor:
    return torch.tensor(automaton.accepting, device=device)
