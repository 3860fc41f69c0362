"""Vafa et al.'s metrics for languages of next tokens (`Task.allowed`), by random walks behind pairs of games.

    d3 c3 c4 e3   and   c4 c3 d3 e3        one board: black's first two moves are exchanged

Random games only share boards near plies 4 to 12. Exchanging one side's moves i and i+2 works at any ply, and the
simulator checks that both games are legal and end on one board. The boundary of two prefixes is searched by walks. Each
step is uniform over the tokens accepted behind both. A token accepted behind only one of them is in the boundary. So
all its elements of one token are found, and those of up to `depth` tokens are sampled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw

Accepts = Callable[[Tensor, Tensor], Tensor]
"""Maps strings [B, L] with their lengths [B] to the tokens accepted next, bool [B, V]."""

_SHORTEST = 3  # to have moves i and i+2
_TRIES = 32  # exchanges tried in a game
_CHUNK = 32  # games whose exchanges are replayed at once
_MOST_CHUNKS = 400
_ROWS = 512  # strings that are replayed at once


@dataclass(frozen=True, kw_only=True)
class Walks:
    """The settings of the search for a boundary."""

    count: int
    depth: int
    seed: int


class Pairs(NamedTuple):
    tokens_2PL: Tensor  # the two prefixes of each pair, then blanks
    length_P: Tensor  # of both


def truth(task: Any) -> Accepts:
    """Return the function that tells which tokens may really come next. Nothing follows a finished game."""

    def accepts(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        parts = zip(tokens_BL.split(_ROWS), length_B.split(_ROWS), strict=True)
        return torch.cat([task.allowed(part_BL)[torch.arange(len(part_BL)), last_B - 1] for part_BL, last_B in parts])

    return accepts


def score(task: Task, accepts: Accepts, *, length: int, pairs: int, walks: Walks) -> dict[str, Tensor]:
    """Return the three metrics of each pair, float64 [P]. NaN marks an empty boundary, for which a metric is undefined.

    All strings have the same length. Prefixes leave room for the suffixes.
    """
    same = same_state(task, length=length, pairs=pairs, walks=walks)
    different = different_states(task, length=length, pairs=pairs, walks=walks)
    true = truth(task)
    found_P, _ = boundary(same, accepts, true, walks)
    own_P, own_right_P = boundary(different, accepts, true, walks)
    true_P, true_right_P = boundary(different, true, accepts, walks)
    return {
        "compression_precision": (found_P == 0).double(),
        "distinction_precision": own_right_P / own_P,
        "distinction_recall": true_right_P / true_P,
    }


def boundary(pairs: Pairs, walker: Accepts, judge: Accepts, walks: Walks) -> tuple[Tensor, Tensor]:
    """Count the elements of the walker's boundary found for each pair, and those that the judge has, too, float64 [P].

    An element is a suffix together with the one prefix behind which it is accepted. The judge must accept it there
    alone.
    """
    num, walkers = len(pairs.length_P), walks.count
    tokens_2PWL = pairs.tokens_2PL[:, :, None].expand(-1, -1, walkers, -1)
    tokens_2PWL = pad(tokens_2PWL, (0, walks.depth))
    length_PW = pairs.length_P[:, None].expand(-1, walkers)
    path_PWD = torch.zeros(num, walkers, 0, dtype=torch.int64)
    alive_PW = torch.ones(num, walkers, dtype=torch.bool)
    judged_2PW = torch.ones(2, num, walkers, dtype=torch.bool)  # the judge accepts the path so far
    found_P, right_P = torch.zeros(2, num, dtype=torch.float64)
    draw = Draw(seed=walks.seed, split="worldmodel/walks", rows_B=torch.arange(num))
    for _ in range(walks.depth):
        strings = tokens_2PWL.flatten(0, 2), length_PW.expand(2, -1, -1).flatten()
        walked_2PWV, seen_2PWV = (accepts(*strings).unflatten(0, (2, num, walkers)) for accepts in (walker, judge))
        seen_2PWV = seen_2PWV & judged_2PW[..., None]
        alone_2PWV = walked_2PWV & ~walked_2PWV.flip(0) & (alive_PW & _first(path_PWD, alive_PW))[..., None]
        found_P += alone_2PWV.sum((0, 2, 3))
        right_P += (alone_2PWV & seen_2PWV & ~seen_2PWV.flip(0)).sum((0, 2, 3))
        both_PWV = walked_2PWV.all(0)
        count_PW = both_PWV.sum(2)
        rank_PW = draw.integers(count_PW.clamp(min=1), (walkers,))
        token_PW = (both_PWV.cumsum(2) <= rank_PW[..., None]).sum(2).clamp(max=both_PWV.shape[2] - 1)
        alive_PW = alive_PW & (count_PW > 0)
        at_2PW1 = token_PW.expand(2, -1, -1)[..., None]
        judged_2PW = seen_2PWV.gather(3, at_2PW1)[..., 0]
        tokens_2PWL = tokens_2PWL.scatter(3, length_PW.expand(2, -1, -1)[..., None], at_2PW1)
        path_PWD = torch.cat([path_PWD, token_PW[..., None]], dim=2)
        length_PW = length_PW + 1
    return found_P, right_P


def _first(path_PWD: Tensor, alive_PW: Tensor) -> Tensor:
    """Return True for walks whose path no earlier walk has taken, so that a suffix counts once."""
    equal_PWW = (path_PWD[:, :, None] == path_PWD[:, None]).all(3) & alive_PW[:, None]
    return ~equal_PWW.tril(-1).any(2)


def same_state(task: Task, *, length: int, pairs: int, walks: Walks) -> Pairs:
    """Return pairs of games that end in the same state, made by exchanging two moves of one side."""
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for chunk in range(_MOST_CHUNKS):
        draw = Draw(seed=walks.seed, split="worldmodel/same", rows_B=torch.arange(_CHUNK) + chunk * _CHUNK)
        length_B = _lengths(task, draw, length, walks)
        tokens_BL = _prefixes(task, draw, length, length_B)
        first_BT = draw.child("exchange").integers((length_B - 2)[:, None], (_TRIES,))
        order_BTL = torch.arange(tokens_BL.shape[1]).repeat(_CHUNK, _TRIES, 1)
        order_BTL = order_BTL.scatter(2, first_BT[..., None], first_BT[..., None] + 2)
        order_BTL = order_BTL.scatter(2, first_BT[..., None] + 2, first_BT[..., None])
        other_BTL = tokens_BL[:, None].expand(-1, _TRIES, -1).gather(2, order_BTL)
        fits_BT = _same(task, tokens_BL, other_BTL, length_B) & _go_on(task, tokens_BL, length_B)[:, None]
        row_K = fits_BT.any(1).nonzero()[:, 0]
        other_KL = other_BTL[row_K, fits_BT[row_K].long().argmax(1)]
        kept.append((tokens_BL[row_K], other_KL, length_B[row_K]))
        if sum(len(length_K) for *_, length_K in kept) >= pairs:
            break
    one_PL, other_PL, length_P = (torch.cat(parts)[:pairs] for parts in zip(*kept, strict=True))
    if len(length_P) < pairs:
        raise ValueError(f"{task.name}: {_MOST_CHUNKS * _CHUNK} games have but {len(length_P)} pairs of one state")
    return Pairs(torch.stack([one_PL, other_PL]), length_P)


def _same(task: Any, tokens_BL: Tensor, other_BTL: Tensor, length_B: Tensor) -> Tensor:
    """Return True where the other string is legal and ends in the same state, bool [B, T].

    The same tokens must follow, too: a board of chess does not show which pawn may be captured in passing.
    """
    tries = other_BTL.shape[1]
    other_XL, length_X = other_BTL.flatten(0, 1), length_B.repeat_interleave(tries)
    inside_XL = torch.arange(other_XL.shape[1]) < length_X[:, None]
    next_XLV = task.allowed(pad(other_XL, (1, 0)))  # the tokens after a blank are those that may come first
    legal_X = (next_XLV[:, :-1].gather(2, other_XL[..., None])[..., 0] | ~inside_XL).all(1)
    goes_on_BV = truth(task)(tokens_BL, length_B)
    legal_X &= (next_XLV[torch.arange(len(length_X)), length_X] == goes_on_BV.repeat_interleave(tries, 0)).all(1)
    state_XS = _state(task, other_XL, length_X)
    state_BS = _state(task, tokens_BL, length_B)
    return (legal_X & (state_XS == state_BS.repeat_interleave(tries, 0)).all(1)).unflatten(0, (-1, tries))


def different_states(task: Task, *, length: int, pairs: int, walks: Walks) -> Pairs:
    """Return prefixes of equal length of two games that end in different states.

    Drawn pairs in one state are dropped.
    """
    draws = [Draw(seed=walks.seed, split=f"worldmodel/{side}", rows_B=torch.arange(pairs)) for side in ("one", "other")]
    length_P = _lengths(task, draws[0], length, walks)
    one_PL, other_PL = (_prefixes(task, draw, length, length_P) for draw in draws)
    differ_P = (_state(task, one_PL, length_P) != _state(task, other_PL, length_P)).any(1)
    kept_P = differ_P & _go_on(task, one_PL, length_P) & _go_on(task, other_PL, length_P)
    return Pairs(torch.stack([one_PL, other_PL])[:, kept_P], length_P[kept_P])


def _lengths(task: Task, draw: Draw, length: int, walks: Walks) -> Tensor:
    """Draw lengths, uniform over those that leave room for an exchange and for suffixes."""
    longest = task.positions(length) - walks.depth + 1
    if longest < _SHORTEST:
        raise ValueError(f"{task.name}: a string of {length} has no room for suffixes of {walks.depth} tokens")
    return draw.child("length").integers(longest - _SHORTEST + 1) + _SHORTEST


def _prefixes(task: Task, draw: Draw, length: int, length_B: Tensor) -> Tensor:
    """Return prefixes of random strings, followed by blanks."""
    width = task.positions(length)
    tokens_BL = task.sample(draw, torch.full_like(draw.rows_B, length), width).tokens_BL
    return torch.where(torch.arange(width) < length_B[:, None], tokens_BL, 0)


def _go_on(task: Task, tokens_BL: Tensor, length_B: Tensor) -> Tensor:
    """Return True where something may follow. Models have learnt nothing about finished games."""
    return truth(task)(tokens_BL, length_B).any(1)


def _state(task: Task, tokens_BL: Tensor, length_B: Tensor) -> Tensor:
    return task.state(tokens_BL)[torch.arange(len(tokens_BL)), length_B - 1]
