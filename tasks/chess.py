"""The legal next moves in a random game of chess, of which only the moves are shown.

    d2d4 g7g6 d1d3  ->  g7g6 d1d3 ..        read at each move: the next one; any legal move is right

Games are uniform over the legal moves at every ply, by all rules but those of draws: a game ends by mate or stalemate
alone. A token is a move by the squares it leaves and reaches, as UCI names it, 1,968 of them: e1g1 castles, e7e8q
promotes. A length counts the first moves of a game, all of which but the last are input. Games that end sooner leave
blank positions, not scored. Outside the hierarchy: a finite board, of which the answers are a function. `state` labels
each square with its piece from the view of the player to move. Walker and Lyons 2026 (2605.30100) train models of human
games to write the board and score them on random games, too; here random games train, and probes read the board.

The first 60 plies have these floors. No loss is below 3.37 nats, the mean log number of legal moves. No guess is the
move played more often than .042. A guess is legal at a rate of .016 among all moves; the best for each ply at one of
.41. Of the 64 squares' labels, always "empty" is right for .543, the most common for each square .545, for each square
and ply .643.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.tasks._board import BoardGame, Edit
from chomsky_ladder.tasks._chess_games import (
    KINDS,
    SQUARES,
    Position,
    edited,
    labels,
    legal_tokens,
    played,
    random_games,
    replay,
    vocab_of,
)
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw

PROMOTED = "nbrq"
PIECES = "pawn", "knight", "bishop", "rook", "queen", "king"


@register
@dataclass(frozen=True, kw_only=True)
class Chess(BoardGame):
    name, version = "chess", 1
    longest, counted = 300, 100

    @property
    def vocab(self) -> tuple[str, ...]:
        return vocab_of()

    def games(self, draw: Draw, plies: int) -> Tensor:
        return random_games(draw, plies=plies)

    def replay(self, tokens_BL: Tensor) -> Iterator[Position]:
        return replay(tokens_BL)

    def played(self, position: Position, token_B: Tensor) -> Position:
        return played(position, token_B)

    def legal(self, position: Position) -> Tensor:
        return legal_tokens(position)

    def marks(self, device: torch.device) -> Tensor:
        """Return the square that a move leaves, the one it reaches, and the piece of a promotion."""
        found = torch.zeros(len(self.vocab), 2 * len(SQUARES) + len(PROMOTED), dtype=torch.bool)
        for token, name in enumerate(self.vocab[1:], start=1):
            found[token, [SQUARES.index(name[:2]), len(SQUARES) + SQUARES.index(name[2:4])]] = True
            found[token, 2 * len(SQUARES) :] = torch.tensor([piece == name[4:] for piece in PROMOTED])
        return found.to(device)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (1 + 2 * len(KINDS),) * len(SQUARES)

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        sides = {"mine_theirs": ("my", "their"), "black_white": self.colours}
        return {
            view: ("empty", *(f"{side} {piece}" for side in pair for piece in PIECES)) for view, pair in sides.items()
        }

    def labels(self, positions: Position, *, sees: Literal["mover", "first"]) -> Tensor:
        found = labels(positions.board_9B, positions.black)
        if sees == "mover":
            return found
        return torch.where(positions.black[..., None] & (found > 0), self.other_colour(found), found)

    def edited(self, position: Position, cell_B: Tensor, edit: Edit) -> Position:
        return edited(position, cell_B, erased=edit == "erase")

    def may_edit(self, board_BS: Tensor, edit: Edit) -> Tensor:
        """Return the squares with a piece that is no king."""
        return board_BS % len(KINDS) != 0

    def lands(self, token: int) -> int:
        return SQUARES.index(self.vocab[token][2:4])
