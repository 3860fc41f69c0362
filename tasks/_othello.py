"""The rules of Othello on whole batches of boards. The stones of a player are the set bits of one 64-bit integer.

Bit 8 * row + column is a square of an 8x8 board, and bit 0 is the square a1. A 6x6 board lies in its middle. Shifts
follow a line of stones in all lanes at once (parallel-prefix fills in eight directions). So no board is looked at
alone, and the host reads no value. A pass is no ply: a player who cannot move is skipped.

    rules = rules_of(8, device)                        rules_of(8) for numpy
    position = rules.opening(like_B)                   black to move
    position.legal                                     bits 19, 26, 37 and 44: d3, c4, f5, e6
    position = rules.after(position, move_B)           a legal bit each, or 0, which changes nothing

The same functions work on int64 tensors and numpy arrays. Tensors handle the four lines of the board side by side.
Arrays handle one line after the other, which is faster in a cache. Sign bits do no harm. Captured stones lie inside the
border, and so does everything that is shifted right. The only exception is the first shift, whose result is masked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._bits import UNIFORM, chosen, signed
from chomsky_ladder.tasks._board import names_of
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw, NumpyDraw

Array = Any  # a tensor, or the ndarray of the numpy twin

SIZES = (6, 8)

_INNER_COLUMNS, _INNER_ROWS = 0x7E7E7E7E7E7E7E7E, 0x00FFFFFFFFFFFF00
_LINES = (
    (1, _INNER_COLUMNS),  # from a square to the next on its row
    (7, _INNER_COLUMNS & _INNER_ROWS),
    (8, _INNER_ROWS),
    (9, _INNER_COLUMNS & _INNER_ROWS),
)


class Position(NamedTuple):
    """Boards from the view of the player to move. After the game, of the player who did not move last."""

    mine: Array  # stones
    theirs: Array
    legal: Array  # where the player may move; 0 when the game is over
    black: Array  # bool: black is to move


@dataclass(frozen=True, eq=False)
class Rules:
    """The game on a board of one size, for arrays of one kind."""

    board: int  # all squares
    black: int  # the stones at the start
    white: int
    lines: tuple[tuple[int | Tensor, int | Tensor, int | Tensor], ...]  # shift, twice the shift, squares to capture

    def opening(self, like_B: Array) -> Position:
        nothing = like_B * 0
        mine, theirs = nothing + self.black, nothing + self.white
        return Position(mine, theirs, self.legal_moves(mine, theirs), nothing == 0)

    def legal_moves(self, mine: Array, theirs: Array) -> Array:
        """Return the empty squares from which a run of their stones leads to one of mine."""
        moves = 0
        for shift, twice, mask in self.lines:
            up, down = _runs(mine, theirs & mask, shift, twice)
            moves = moves | _united((up << shift) | (down >> shift), mine)
        return moves & ~(mine | theirs) & self.board

    def flipped(self, move: Array, mine: Array, theirs: Array) -> Array:
        """Return the stones of theirs that a move (one bit, or none) turns."""
        stones = 0
        for shift, twice, mask in self.lines:
            up, down = _runs(move, theirs & mask, shift, twice)
            up = _where((up << shift) & mine != 0, up, 0)
            stones = stones | _united(up | _where((down >> shift) & mine != 0, down, 0), mine)
        return stones

    def after(self, position: Position, move: Array) -> Position:
        """Return the position after a legal move, one bit; 0 changes nothing."""
        flipped = self.flipped(move, position.mine, position.theirs)
        mine, theirs = position.mine | move | flipped, position.theirs & ~flipped
        reply = self.legal_moves(theirs, mine)
        again = self._moves_where((reply == 0) | (move == 0), mine, theirs)
        stays = (move == 0) | ((reply == 0) & (again != 0))
        return Position(
            mine=_where(stays, mine, theirs),
            theirs=_where(stays, theirs, mine),
            legal=_where(stays, again, reply),
            black=position.black == stays,
        )

    def _moves_where(self, asked: Array, mine: Array, theirs: Array) -> Array:
        """Return the legal moves of the boards asked for.

        A tensor computes those of all boards, without reading values.
        """
        if isinstance(mine, Tensor):
            return self.legal_moves(mine, theirs)
        moves, rows = np.zeros_like(mine), np.flatnonzero(asked)
        moves[rows] = self.legal_moves(mine[rows], theirs[rows])
        return moves

    def random_ply(self, position: Position, uniform: Array) -> tuple[Position, Array]:
        """Choose a move by an integer uniform below UNIFORM.

        Return it as bit number + 1, or 0 when the game is over.
        """
        square = chosen(position.legal, uniform)
        moves = (position.legal != 0) * 1
        return self.after(position, moves << square), moves * (square + 1)


@kept
def rules_of(size: int, device: torch.device | None = None) -> Rules:
    """Return the rules for tensors on a device, or for numpy arrays."""
    _, up_right, down_left, _ = centre = centre_of(size)
    board = sum(1 << square for square in squares_of(size))
    black, white = (sum(1 << square for square in pair) for pair in ((up_right, down_left), centre[::3]))
    whole = signed(board)
    lines = tuple((shift, 2 * shift, mask) for shift, mask in _LINES)
    if device is not None:
        shift, twice, mask = (torch.tensor(column, device=device)[:, None] for column in zip(*lines, strict=True))
        return Rules(whole, black, white, ((shift, twice, mask),))
    return Rules(whole, black, white, lines)


@lru_cache
def squares_of(size: int) -> tuple[int, ...]:
    """Return the bit number of every square, row by row."""
    rim = (8 - size) // 2
    return tuple(8 * (rim + row) + rim + column for row in range(size) for column in range(size))


@lru_cache
def centre_of(size: int) -> tuple[int, ...]:
    """Return the bit numbers of the four squares that are taken at the start."""
    return tuple(squares_of(size)[row * size + column] for row in _middle(size) for column in _middle(size))


def _middle(size: int) -> tuple[int, int]:
    return size // 2 - 1, size // 2


@lru_cache
def playable_of(size: int) -> tuple[int, ...]:
    """Return the bit number of every square that can be played on, row by row: the meaning of tokens 1, 2 .."""
    return tuple(square for square in squares_of(size) if square not in centre_of(size))


@lru_cache
def vocab_of(size: int) -> tuple[str, ...]:
    """Return PAD, then the name of every square that can be played on."""
    name_of = dict(zip(squares_of(size), names_of(size), strict=True))
    return "PAD", *(name_of[square] for square in playable_of(size))


def play(rules: Rules, uniform_PB: Array, *, ply: Callable[..., tuple[Position, Array]] | None = None) -> list[Array]:
    """Play random games. Return the result of every ply, made by `random_ply` or a compiled version of it."""
    ply, squares = ply or rules.random_ply, []
    position = rules.opening(uniform_PB[0])
    for uniform_B in uniform_PB:
        position, square_B = ply(position, uniform_B)
        squares.append(square_B)
    return squares


def random_games(draw: Draw | NumpyDraw, *, size: int, plies: int) -> Array:
    """Return the first moves of games with uniform legal moves, as tokens [B, plies]; PAD after a game's end."""
    uniform_BP = draw.integers(UNIFORM, (plies,))
    if isinstance(uniform_BP, Tensor):
        squares = play(rules_of(size, uniform_BP.device), uniform_BP.T)
        return token_table(size, uniform_BP.device).take(torch.stack(squares, 1))
    return token_table(size).numpy().take(np.stack(play(rules_of(size), uniform_BP.T), 1))


def replay(tokens_BL: Tensor, *, size: int) -> Iterator[Position]:
    """Yield the position after each token. An illegal move changes nothing."""
    device = tokens_BL.device
    rules, bits_BL = rules_of(size, device), bit_table(size, device).take(tokens_BL)
    position = rules.opening(tokens_BL[:, 0])
    for bit_B in bits_BL.unbind(1):
        position = rules.after(position, bit_B & position.legal)
        yield position


@kept
def token_table(size: int, device: torch.device | None = None) -> Tensor:
    """Return the token of each bit number + 1; PAD for 0."""
    token_of = {square + 1: token for token, square in enumerate(playable_of(size), start=1)}
    return torch.tensor([token_of.get(number, 0) for number in range(65)], device=device)


@kept
def bit_table(size: int, device: torch.device) -> Tensor:
    """Return the bit of each token; 0 for PAD."""
    bits = [0, *(1 << square for square in playable_of(size))]
    return torch.tensor(list(map(signed, bits)), device=device)


def _runs(start: Array, theirs: Array, shift: Array | int, twice: Array | int) -> tuple[Array, Array]:
    """Return the unbroken runs of their stones that begin beside `start`, towards higher and lower bits."""
    pairs = theirs & (theirs << shift)
    up = theirs & (start << shift)
    up |= theirs & (up << shift)
    up |= pairs & (up << twice)
    up |= pairs & (up << twice)
    pairs = pairs >> shift
    down = theirs & (start >> shift)
    down |= theirs & (down >> shift)
    down |= pairs & (down >> twice)
    down |= pairs & (down >> twice)
    return up, down


def _united(lanes: Array, like: Array) -> Array:
    """Combine the four lines of the board into one, if they lie side by side."""
    return lanes if lanes.ndim == like.ndim else lanes[0] | lanes[1] | lanes[2] | lanes[3]


def _where(condition: Array, a: Array, b: Array | int) -> Array:
    return torch.where(condition, a, b) if isinstance(a, Tensor) else np.where(condition, a, b)
