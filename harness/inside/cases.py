"""Boards to edit: a game up to some move, one square of its board changed, and the moves that are then legal.

    flip     a stone becomes the other player's
    erase    a stone becomes an empty square that can be played on

The player to move stays the same. A case counts if both boards have legal moves and these differ. On 8x8 a perfect
player who does not know of the edit then makes 2.8 errors, as in published work; over all flips it is 1.7. Further
moves are the same on both boards. Each is uniform over the moves legal on both. Play ends when there is none, or when
the boards disagree on whose turn it is.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.tasks._othello import (
    UNIFORM,
    Position,
    Rules,
    bit_table,
    chosen,
    playable_of,
    replay,
    rules_of,
    squares_of,
    token_table,
)
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.othello import EMPTY, MINE, THEIRS

Edit = Literal["flip", "erase"]
EDITS: tuple[Edit, ...] = ("flip", "erase")
TRIES = 16  # places and squares tried in a game; a game in which none fits is left out


class Change(NamedTuple):
    """One square of each board, its class before and its class after, in the main view."""

    cell_B: Tensor
    before_B: Tensor
    after_B: Tensor


class Moment(NamedTuple):
    """The legal moves, bool [B, V], on the true and on the edited board, some moves after the edit."""

    going_B: Tensor  # True while play continues and the edited board has a move
    legal_BV: Tensor
    edited_legal_BV: Tensor


class Cases(NamedTuple):
    tokens_BL: Tensor  # the game up to the edit and the moves after it; then PAD
    last_B: Tensor  # the position of the move after which the board is edited
    change: Change
    wrong: Change  # the same change at another square
    board_BS: Tensor  # labels from the view of the player to move
    edited_BS: Tensor
    moments: list[Moment]  # at the edit, and after each further move

    @property
    def count(self) -> int:
        return len(self.last_B)

    def part(self, rows_N: Tensor) -> "Cases":
        change, wrong = (Change(*(x[rows_N] for x in one)) for one in (self.change, self.wrong))
        moments = [Moment(*(x[rows_N] for x in moment)) for moment in self.moments]
        board_BS, edited_BS = self.board_BS[rows_N], self.edited_BS[rows_N]
        return Cases(self.tokens_BL[rows_N], self.last_B[rows_N], change, wrong, board_BS, edited_BS, moments)


def cases_of(run: Run, split: str, edit: Edit, *, count: int, low: int, moves_on: int, device: torch.device) -> Cases:
    """Return one edit in each of `count` random games, after `low` moves or more.

    All models of a task get the same cases.
    """
    task: Any = run.task  # its rules are known to the harness, so it has a size
    draw = Draw(seed=run.eval.seed, split=split, rows_B=torch.arange(count, device=device))
    longest = task.legal_lengths(1, 10**6)[-1]
    width = task.positions(longest)
    tokens_BL = task.sample(draw, torch.full((count,), longest, device=device), width).tokens_BL
    high = width - moves_on
    if low > high:
        raise ValueError(f"an edit after {low} moves leaves no {moves_on} to play on in games of {width}")
    position = Position(*(torch.stack(parts, 1) for parts in zip(*replay(tokens_BL, size=task.size), strict=True)))
    boards_BLS, draw = task.state(tokens_BL), draw.child(edit)
    rows_B, rules = torch.arange(count, device=device), rules_of(task.size, device)
    fits_B = torch.zeros(count, dtype=torch.bool, device=device)
    last_B, cell_B, other_B = (torch.zeros_like(rows_B) for _ in range(3))
    for _ in range(TRIES):
        at_B = low - 1 + draw.integers(high - low + 1)
        first_B, second_B, found_B = _two_stones(boards_BLS[rows_B, at_B], draw, edit, task.size)
        now = Position(*(x[rows_B, at_B] for x in position))
        edited = _edited(now, first_B, edit, task.size, rules)
        legal_BV, edited_legal_BV = (_tokens(board.legal, task.size) for board in (now, edited))
        found_B &= legal_BV.any(1) & edited_legal_BV.any(1) & (legal_BV != edited_legal_BV).any(1)
        new_B = found_B & ~fits_B
        last_B, cell_B, other_B = (
            torch.where(new_B, new, old) for new, old in ((at_B, last_B), (first_B, cell_B), (second_B, other_B))
        )
        fits_B = fits_B | found_B
    if not bool(fits_B.any()):
        raise ValueError(f"no board of {count} games could be edited ({edit}): take more cases")
    last_B, cell_B, other_B, rows_B = (x[fits_B] for x in (last_B, cell_B, other_B, rows_B))
    now = Position(*(x[rows_B, last_B] for x in position))
    board_BS = boards_BLS[rows_B, last_B]
    change, wrong = (_change(board_BS, one_B, edit) for one_B in (cell_B, other_B))
    tokens_BL = torch.where(torch.arange(width, device=device) <= last_B[:, None], tokens_BL[rows_B], PAD)
    draws = Draw(seed=run.eval.seed, split=split, rows_B=rows_B).child(edit).child("on").integers(UNIFORM, (moves_on,))
    edited = _edited(now, cell_B, edit, task.size, rules)
    tokens_BL, moments = _played_on(tokens_BL, last_B, now, edited, draws, task.size, rules)
    edited_BS = board_BS.scatter(1, cell_B[:, None], change.after_B[:, None])
    return Cases(tokens_BL, last_B, change, wrong, board_BS, edited_BS, moments)


def _two_stones(board_BS: Tensor, draw: Draw, edit: Edit, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return two random squares of those that may be edited, and True if there are two."""
    may_BS = board_BS != EMPTY
    if edit == "erase":
        playable = set(playable_of(size))
        may_BS = may_BS & torch.tensor([square in playable for square in squares_of(size)], device=board_BS.device)
    key_BS = torch.where(may_BS, draw.integers(1 << 30, (board_BS.shape[1],)), -1)
    best_BS = key_BS.sort(dim=1, descending=True, stable=True).indices
    return best_BS[:, 0], best_BS[:, 1], may_BS.sum(1) > 1


def _change(board_BS: Tensor, cell_B: Tensor, edit: Edit) -> Change:
    before_B = board_BS.gather(1, cell_B[:, None])[:, 0]
    return Change(cell_B, before_B, torch.full_like(before_B, EMPTY) if edit == "erase" else MINE + THEIRS - before_B)


def _edited(position: Position, cell_B: Tensor, edit: Edit, size: int, rules: Rules) -> Position:
    bit_B = torch.ones_like(cell_B) << torch.tensor(squares_of(size), device=cell_B.device)[cell_B]
    mine, theirs = position.mine, position.theirs
    mine, theirs = (mine & ~bit_B, theirs & ~bit_B) if edit == "erase" else (mine ^ bit_B, theirs ^ bit_B)
    return Position(mine, theirs, rules.legal_moves(mine, theirs), position.black)


def _tokens(bits_B: Tensor, size: int) -> Tensor:
    """Turn squares into tokens, bool [B, V]. The centre has no token, so an erased stone there leads to nothing."""
    return (bits_B[:, None] & bit_table(size, bits_B.device)) != 0


def _played_on(
    tokens_BL: Tensor, last_B: Tensor, true: Position, edited: Position, uniform_BJ: Tensor, size: int, rules: Rules
) -> tuple[Tensor, list[Moment]]:
    """Return the tokens with further moves that both boards allow, and the legal moves after each."""
    going_B = torch.ones_like(last_B, dtype=torch.bool)
    moments = [Moment(going_B, _tokens(true.legal, size), _tokens(edited.legal, size))]
    place_L = torch.arange(tokens_BL.shape[1], device=last_B.device)
    for moved, uniform_B in enumerate(uniform_BJ.unbind(1), start=1):
        both_B = true.legal & edited.legal
        going_B = going_B & (both_B != 0) & (true.black == edited.black)
        square_B = chosen(both_B, uniform_B)
        bit_B = torch.where(going_B, torch.ones_like(square_B) << square_B, 0)
        token_B = torch.where(going_B, token_table(size, last_B.device).take(square_B + 1), PAD)
        tokens_BL = torch.where(place_L == (last_B + moved)[:, None], token_B[:, None], tokens_BL)
        true, edited = rules.after(true, bit_B), rules.after(edited, bit_B)
        legal_BV, edited_legal_BV = _tokens(true.legal, size), _tokens(edited.legal, size)
        counted_B = going_B & (true.black == edited.black) & legal_BV.any(1) & edited_legal_BV.any(1)
        moments.append(Moment(counted_B, legal_BV, edited_legal_BV))
    return tokens_BL, moments
