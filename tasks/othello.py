"""The legal next moves in a random game of Othello, of which only the moves are shown.

    d3 c3 c4 e3 f2  ->  c3 c4 e3 f2 ..        read at each move: the next one; any legal move is right

Games are uniform over the legal moves at every ply. Tokens are the squares that can be played on, row by row from a1. A
pass is not written, so the ply does not determine whose turn it is: .34 of the games have a pass, and after ply 59 the
parity is wrong in .28 of them. A length counts the first moves of a game, all of which but the last are input; 60 means
whole games on either board. The .011 of games that end sooner leave blank positions, not scored. Outside the hierarchy:
a finite board, of which the answers are a function. After Li et al. 2023 (2210.13382). The labels of `state`, squares
from the view of the player to move, are after Nanda et al. 2023 (2309.00941).

Whole games on 64 squares have these floors. No loss is below 2.0101 nats, the mean log number of legal moves. No guess
is the move played more often than .1706. A guess is legal at a rate of .144 among all squares and of .409 among the
empty ones. Of the 64 squares' labels, always "empty" is right for .469, the most common for each square .539, for each
square and ply .622.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.tasks._board import EMPTY, BoardGame, Edit, inputs
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._othello import (
    SIZES,
    Position,
    bit_table,
    playable_of,
    random_games,
    replay,
    rules_of,
    squares_of,
    vocab_of,
)
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw


@register
@dataclass(frozen=True, kw_only=True)
class Othello(BoardGame):
    name, version = "othello", 1
    colours = "black", "white"

    size: int = 8
    """Squares on a side of the board: 8 or 6."""

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"othello: size must be {' or '.join(map(str, SIZES))}, not {self.size}")

    @property
    def counts_if_learnt(self) -> bool:
        return self.size == 8

    @property
    def vocab(self) -> tuple[str, ...]:
        return vocab_of(self.size)

    @property
    def plies(self) -> int:
        return self.size**2 - 4  # counted without the vocabulary, through whose cache a compiler would look

    def games(self, draw: Draw, plies: int) -> Tensor:
        return random_games(draw, size=self.size, plies=plies)

    def replay(self, tokens_BL: Tensor) -> Iterator[Position]:
        return replay(tokens_BL, size=self.size)

    def played(self, position: Position, token_B: Tensor) -> Position:
        bit_B = bit_table(self.size, token_B.device).take(token_B)
        return rules_of(self.size, token_B.device).after(position, bit_B & position.legal)

    def legal(self, position: Position) -> Tensor:
        return (position.legal[:, None] & bit_table(self.size, position.legal.device)) != 0

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (3,) * self.size**2

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        return {"mine_theirs": ("empty", "mine", "theirs"), "black_white": ("empty", "black", "white")}

    def labels(self, positions: Position, *, sees: Literal["mover", "first"]) -> Tensor:
        mine, theirs, _, black = positions
        if sees == "first":
            mine, theirs = torch.where(black, mine, theirs), torch.where(black, theirs, mine)
        return _spread(mine, self.size) + 2 * _spread(theirs, self.size)

    def edited(self, position: Position, cell_B: Tensor, edit: Edit) -> Position:
        bit_B = torch.ones_like(cell_B) << _square_numbers(self.size, cell_B.device)[cell_B]
        mine, theirs = position.mine, position.theirs
        mine, theirs = (mine & ~bit_B, theirs & ~bit_B) if edit == "erase" else (mine ^ bit_B, theirs ^ bit_B)
        return position._replace(
            mine=mine, theirs=theirs, legal=rules_of(self.size, cell_B.device).legal_moves(mine, theirs)
        )

    def may_edit(self, board_BS: Tensor, edit: Edit) -> Tensor:
        """Return the squares with a stone. Nobody can play on the centre, so nothing is erased there."""
        playable = set(playable_of(self.size))
        may_S = [edit == "flip" or square in playable for square in squares_of(self.size)]
        return (board_BS != EMPTY) & torch.tensor(may_S, device=board_BS.device)

    def lands(self, token: int) -> int:
        return self.squares.index(self.vocab[token])

    @property
    def facts(self) -> dict[str, str]:
        return super().facts | {"legal_of_empty_squares": f"{_legal_of_empty(self):.3f}"}


def _spread(bits_BL: Tensor, size: int) -> Tensor:
    """Return one bit for each square, [B, L, S]."""
    return (bits_BL[..., None] >> _square_numbers(size, bits_BL.device)) & 1


@kept
def _square_numbers(size: int, device: torch.device) -> Tensor:
    return torch.tensor(squares_of(size), device=device)


@lru_cache
def _legal_of_empty(task: Othello) -> float:
    """Count how often a random empty square is a legal move."""
    tokens_BL = inputs(task, 1, task.plies - 1)
    num_BL, empty_BL = task.allowed(tokens_BL).sum(2), (task.state(tokens_BL) == EMPTY).sum(2)
    return float((num_BL / empty_BL)[num_BL > 0].double().mean())
