"""Boards to edit: a game up to some move, one square of its board changed, and the moves that are then legal.

    flip     a piece becomes the other player's
    erase    a piece becomes an empty square

The game says which squares may be edited (`BoardGame.may_edit`). The player to move stays the same. A case counts if
both boards have legal moves and these differ. On 8x8 Othello a perfect player who does not know of the edit then makes
2.8 errors, as in published work; over all flips it is 1.7. Further moves are the same on both boards. Each is uniform
over the moves legal on both. Play ends when there is none, or when the boards disagree on whose turn it is.
"""

from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.tasks._bits import UNIFORM, rank_of
from chomsky_ladder.tasks._board import EMPTY, BoardGame, Edit, stacked
from chomsky_ladder.tasks.base import PAD, Task
from chomsky_ladder.tasks.draw import Draw

EDITS: tuple[Edit, ...] = get_args(Edit)
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


def board_of(task: Task) -> BoardGame:
    """Return a task as a game with a board. Raise ValueError if it is none."""
    require(isinstance(task, BoardGame), f"{task.name} has no board to edit: it is no BoardGame (tasks/_board.py)")
    assert isinstance(task, BoardGame)
    return task


def cases_of(run: Run, split: str, edit: Edit, *, count: int, low: int, moves_on: int, device: torch.device) -> Cases:
    """Return one edit in each of `count` random games, after `low` moves or more.

    All models of a task get the same cases.
    """
    task = board_of(run.task)
    draw = Draw(seed=run.eval.seed, split=split, rows_B=torch.arange(count, device=device))
    longest = max(task.legal_lengths(*run.train.lengths))
    width = task.positions(longest)
    tokens_BL = task.sample(draw, torch.full((count,), longest, device=device), width).tokens_BL
    high = width - moves_on
    if low > high:
        raise ValueError(f"an edit after {low} moves leaves no {moves_on} to play on in games of {width}")
    positions = stacked(task.replay(tokens_BL))
    boards_BLS, draw = task.labels(positions, sees="mover"), draw.child(edit)
    rows_B = torch.arange(count, device=device)
    fits_B = torch.zeros(count, dtype=torch.bool, device=device)
    last_B, cell_B, other_B = (torch.zeros_like(rows_B) for _ in range(3))
    for _ in range(TRIES):
        at_B = low - 1 + draw.integers(high - low + 1)
        first_B, second_B, found_B = _two_pieces(task, boards_BLS[rows_B, at_B], draw, edit)
        now = _at(positions, rows_B, at_B)
        legal_BV, edited_legal_BV = task.legal(now), task.legal(task.edited(now, first_B, edit))
        found_B &= legal_BV.any(1) & edited_legal_BV.any(1) & (legal_BV != edited_legal_BV).any(1)
        new_B = found_B & ~fits_B
        last_B, cell_B, other_B = (
            torch.where(new_B, new, old) for new, old in ((at_B, last_B), (first_B, cell_B), (second_B, other_B))
        )
        fits_B = fits_B | found_B
    if not bool(fits_B.any()):
        raise ValueError(f"no board of {count} games could be edited ({edit}): take more cases")
    last_B, cell_B, other_B, rows_B = (x[fits_B] for x in (last_B, cell_B, other_B, rows_B))
    now = _at(positions, rows_B, last_B)
    board_BS = boards_BLS[rows_B, last_B]
    change, wrong = (_change(task, board_BS, one_B, edit) for one_B in (cell_B, other_B))
    tokens_BL = torch.where(torch.arange(width, device=device) <= last_B[:, None], tokens_BL[rows_B], PAD)
    draws = Draw(seed=run.eval.seed, split=split, rows_B=rows_B).child(edit).child("on").integers(UNIFORM, (moves_on,))
    tokens_BL, moments = _played_on(task, tokens_BL, last_B, now, task.edited(now, cell_B, edit), draws)
    edited_BS = board_BS.scatter(1, cell_B[:, None], change.after_B[:, None])
    return Cases(tokens_BL, last_B, change, wrong, board_BS, edited_BS, moments)


def _at(positions: Any, rows_B: Tensor, at_B: Tensor) -> Any:
    return type(positions)(*(x[..., rows_B, at_B] for x in positions))


def _two_pieces(task: BoardGame, board_BS: Tensor, draw: Draw, edit: Edit) -> tuple[Tensor, Tensor, Tensor]:
    """Return two random squares of those that may be edited, and True if there are two."""
    may_BS = task.may_edit(board_BS, edit)
    key_BS = torch.where(may_BS, draw.integers(1 << 30, (board_BS.shape[1],)), -1)
    best_BS = key_BS.sort(dim=1, descending=True, stable=True).indices
    return best_BS[:, 0], best_BS[:, 1], may_BS.sum(1) > 1


def _change(task: BoardGame, board_BS: Tensor, cell_B: Tensor, edit: Edit) -> Change:
    before_B = board_BS.gather(1, cell_B[:, None])[:, 0]
    after_B = torch.full_like(before_B, EMPTY) if edit == "erase" else task.other_colour(before_B)
    return Change(cell_B, before_B, after_B)


def _played_on(
    task: BoardGame, tokens_BL: Tensor, last_B: Tensor, true: Any, edited: Any, uniform_BJ: Tensor
) -> tuple[Tensor, list[Moment]]:
    """Return the tokens with further moves that both boards allow, and the legal moves after each."""
    going_B = torch.ones_like(last_B, dtype=torch.bool)
    moments = [Moment(going_B, task.legal(true), task.legal(edited))]
    place_L = torch.arange(tokens_BL.shape[1], device=last_B.device)
    for moved, uniform_B in enumerate(uniform_BJ.unbind(1), start=1):
        upto_BV = (moments[-1].legal_BV & moments[-1].edited_legal_BV).cumsum(1)
        going_B = going_B & (upto_BV[:, -1] != 0) & (true.black == edited.black)
        token_B = (upto_BV <= rank_of(upto_BV[:, -1], uniform_B)[:, None]).sum(1)
        token_B = torch.where(going_B, token_B, PAD)
        tokens_BL = torch.where(place_L == (last_B + moved)[:, None], token_B[:, None], tokens_BL)
        true, edited = task.played(true, token_B), task.played(edited, token_B)
        legal_BV, edited_legal_BV = task.legal(true), task.legal(edited)
        counted_B = going_B & (true.black == edited.black) & legal_BV.any(1) & edited_legal_BV.any(1)
        moments.append(Moment(counted_B, legal_BV, edited_legal_BV))
    return tokens_BL, moments
