"""Strings that one edit takes to the other side of a regular language: members next to non-members, and the reverse.

    (ab)*, size 3        a b a    one insertion or deletion from a member
                         a a b    one deletion

An edit inserts, deletes or replaces one symbol. The probability of a string is proportional to its number of edits that
lead to the other side (at any length). In other words, pairs (string, edit) are uniform. MLRegTest's adversarial sets
(2304.07687) are such pairs, found by drawing strings until one has an edit. Here all pairs are counted in exact
integers, so no draw is rejected.

Reading the string up to the edit leads to a state q. Reading the rest starts from a pair of states, that of the string
and that of the edited string, and must end in a pair of which one accepts and the other does not. So from each state we
count the remaining strings with their edits. A uniform integer chooses where the edit is, and the rest is a path of
pairs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._alike import spelled
from chomsky_ladder.tasks._automata import (
    SCALE,
    Automaton,
    classes,
    grouped,
    letters,
    random_path,
    rounded,
    steps,
    thresholds,
    walk,
)
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw

MOST_PAIRS = 2**15
MOST_EDITS = 2**16
"""The largest number of edits in one place, states x kinds of edits."""


def sample(automaton: Automaton, draw: Draw, size_B: Tensor, columns: int, is_member_B: Tensor) -> Tensor:
    """Draw members or non-members [B, columns], each with an edit to the other side.

    Check with `found` that there are any.
    """
    language, groups = grouped(automaton)
    pairs, edits = _pairs(language)
    tables, device = _tables(language, rounded(columns + 1), size_B.device), size_B.device
    position_L, side_B = torch.arange(columns, device=device), is_member_B.to(torch.int64)
    zeros_B = torch.zeros_like(size_B)
    uniform_BL2, uniform_B1 = draw.integers(SCALE, (columns, 2)), draw.integers(SCALE, (1,))
    row_BL = (size_B[:, None] - position_L).clamp(min=0) * 2 + side_B[:, None]
    before_BL, state_BL = walk(letters(language, device), tables.going_RKN, row_BL, uniform_BL2[..., 0], zeros_B)
    here_BL = (before_BL == language.num_symbols) | (position_L >= size_B[:, None])
    place_B = torch.where(here_BL.any(1), here_BL.int().argmax(1), columns)
    state_B = state_BL.gather(1, place_B[:, None])[:, 0]
    edit_B = (uniform_B1 >= tables.edit_RNE[(size_B - place_B) * 2 + side_B, state_B]).sum(1)
    read_B = tables.read_E[edit_B]
    behind_B = place_B + (read_B >= 0).to(torch.int64)
    after_BL, _ = random_path(
        pairs,
        uniform_BL2[..., 1],
        (size_B - behind_B).clamp(min=0),
        targets=edits.targets,
        target_B=side_B,
        start_B=tables.pair_NE[state_B, edit_B],
    )
    after_BL = after_BL.gather(1, (position_L - behind_B[:, None]).clamp(min=0))
    group_BL = torch.where(position_L < place_B[:, None], before_BL, after_BL)
    group_BL = torch.where((position_L == place_B[:, None]) & (read_B >= 0)[:, None], read_B[:, None], group_BL)
    return spelled(group_BL, groups, draw)


@kept
def found(automaton: Automaton, most: int) -> np.ndarray:
    """Return True for sizes 0, 1 .. `most` at which non-members and members have such an edit, bool [2, most + 1]."""
    counts = [going[:, 0] for _, going, _ in _counts(grouped(automaton)[0], most + 1, exact=False)]
    return np.stack(counts, axis=1) > 0


class _Edits(NamedTuple):
    """All edits in one place: first those that insert, then the others."""

    read: np.ndarray  # the symbol that the string has there, or -1
    weight: np.ndarray
    pair: np.ndarray  # the pair to which each edit leads from each state [N, edits]
    targets: tuple[frozenset[int], ...]  # pairs (outside, inside), and (inside, outside)


@kept
def _pairs(language: Automaton) -> tuple[Automaton, _Edits]:
    """Return the automaton of pairs of states, with equal pairs merged, and the edits that lead into it."""
    num, weighed = language.num_states, steps(language)
    if num * len(weighed) * (len(weighed) + 2) > MOST_EDITS:
        what = f"{num} states and {len(weighed)} kinds of symbols"
        raise ValueError(f"a language of {what} has too many edits to count the strings one edit from the other side")
    own = np.arange(num)
    insertions = [(-1, weight, own * num + after) for weight, after in weighed]
    deletions = [(symbol, weight, after * num + own) for symbol, (weight, after) in enumerate(weighed)]
    replacements = [
        (symbol, weight * put_weight, after * num + put_after)
        for symbol, (weight, after) in enumerate(weighed)
        for put, (put_weight, put_after) in enumerate(weighed)
        if put != symbol  # symbols of one group lead to the same state, and so to the same side
    ]
    read, weight, pair = zip(*insertions, *deletions, *replacements, strict=True)
    pair_NE = np.stack(pair, axis=1)
    reached = new = np.unique(pair_NE)
    while len(new):
        after = np.concatenate([moved[new // num] * num + moved[new % num] for _, moved in weighed])
        new = np.setdiff1d(after, reached)
        reached = np.union1d(reached, new)
    accepting_N = np.array(language.accepting).astype(np.int64)
    own, other = np.divmod(reached, num)
    side_P = np.where(accepting_N[own] == accepting_N[other], 0, 1 + accepting_N[own])
    after_PK = np.stack([np.searchsorted(reached, moved[own] * num + moved[other]) for _, moved in weighed], axis=1)
    class_P = classes(after_PK, side_P, most=MOST_PAIRS)
    if class_P is None:
        raise ValueError(f"a language has too many ({MOST_PAIRS}) pairs of states to count what is one edit away")
    _, first = np.unique(class_P, return_index=True)
    automaton = Automaton(
        transitions=tuple(map(tuple, class_P[after_PK[first]].tolist())),
        accepting=tuple((side_P[first] == 2).tolist()),
        alphabet=language.alphabet,
        weights=language.weights,
    )
    targets = tuple(frozenset(np.flatnonzero(side_P[first] == number).tolist()) for number in (1, 2))
    pair_NE = class_P[np.searchsorted(reached, pair_NE)]
    return automaton, _Edits(np.array(read), np.array(weight), pair_NE, targets)


def _counts(language: Automaton, columns: int, *, exact: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield counts for 0, 1 .. symbols left, for strings outside and inside: by edit here, of all edits, and of one
    less.

    The first [2, N, E] has the edit here, the second [2, N] anywhere, the third [2, N] is the second with one symbol
    less. Counts are Python integers; unless `exact`, any positive count is 1.
    """
    pairs, edits = _pairs(language)
    kind: Any = object if exact else np.int64
    behind = np.array([[int(state in target) for state in range(pairs.num_states)] for target in edits.targets], kind)
    one_less, going = np.zeros_like(behind), np.zeros((2, language.num_states), kind)
    inserts = edits.read < 0
    for left in range(columns):
        ways = edits.weight.astype(kind) * np.where(inserts, behind[:, edits.pair], one_less[:, edits.pair])
        before = going
        going = ways.sum(axis=2)
        if left:
            going = going + _before(before, language)
        one_less, behind = behind, _before(behind, pairs)
        if not exact:
            going, behind = np.minimum(going, 1), np.minimum(behind, 1)
        yield ways, going, before


def _before(counts: np.ndarray, automaton: Automaton) -> np.ndarray:
    """Return the counts with one symbol more."""
    return np.stack([weight * counts[:, after] for weight, after in steps(automaton)]).sum(axis=0)


class _Tables(NamedTuple):
    """The counts as thresholds: a row for strings outside and one for those inside, by the number of symbols left."""

    going_RKN: Tensor  # for the first 1, 2 .. symbols, then the edit
    edit_RNE: Tensor
    read_E: Tensor
    pair_NE: Tensor


@kept
def _tables(language: Automaton, columns: int, device: torch.device) -> _Tables:
    _, edits = _pairs(language)
    going, chosen = [], []
    for ways, _, before in _counts(language, columns, exact=True):
        on = [weight * before[:, after] for weight, after in steps(language)]
        going.append(thresholds(np.stack([*on, ways.sum(axis=2)], axis=1)))
        chosen.append(thresholds(ways.swapaxes(1, 2)).swapaxes(1, 2))
    return _Tables(
        torch.from_numpy(np.concatenate(going).astype(np.int32)).to(device),
        torch.from_numpy(np.concatenate(chosen).astype(np.int32)).to(device),
        torch.from_numpy(edits.read).to(device),
        torch.from_numpy(edits.pair).to(device),
    )
