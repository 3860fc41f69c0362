"""Games of chess on whole batches of boards: moves and their names, random play, replay, and boards to read or edit.

    tokens_BP = random_games(draw, plies=60)              uniform over the legal moves at every ply
    for position in replay(tokens_BP): ..                 any tokens; PAD and illegal moves change nothing
    labels(position.board_9B, position.black)             a label for each square

A move's number is 64 * way + square, from the mover's view (tasks/_chess.py). Its token names the squares that it
leaves and reaches, from white's view, and the piece of a promotion.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._bits import UNIFORM, count_of, nth_bit, rank_of, signed
from chomsky_ladder.tasks._board import names_of
from chomsky_ladder.tasks._chess import (
    DOWN,
    JUMPS,
    KNIGHTS,
    PROMOTIONS,
    RANK_1,
    TWO_UP,
    UP,
    WAYS,
    Array,
    column,
    device_of,
    legal_moves,
    library_of,
    on_device,
    stepped,
)
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw, NumpyDraw

KINDS, SQUARES = "PNBRQK", names_of(8)
_START = (0xFFFF, 0xFFFF << 48, 0xFF00 | 0xFF << 48, *(row | row << 56 for row in (0x42, 0x2C, 0x89, 0x10, 0x81)), 0)


class Position(NamedTuple):
    """Boards with their legal moves, and the colour of the player to move."""

    board_9B: Array
    legal_MB: Array
    black: Array  # bool [B]: black is to move


class Moves(NamedTuple):
    """Facts about a move by its number, 64 * way + square; a way and square that make no move have token 0."""

    token: Array  # of white's moves, then of black's
    number: Array  # of each token: as white's move, then as black's
    leaves: Array  # bit of the square it leaves
    reaches: Array  # bit of each square
    turns: Array  # [5, ways]: True for a kind that a promotion takes or gives
    rook: Array  # [ways]: squares where a castling changes the rook, if the king moves
    jumps: Array  # [ways]: True for a pawn's jump
    start: Array  # [9, 1]: the board before the first move


@kept
def vocab_of() -> tuple[str, ...]:
    """Return PAD and the 1,968 moves by the names of UCI: e2e4, e7e8q; castling is e1g1."""
    return "PAD", *sorted({name for black in (False, True) for *_, name in _all_moves(black=black)})


def _all_moves(*, black: bool) -> Iterator[tuple[int, int, int, str]]:
    """Yield way, square it leaves, square it leads to and name of each move, the squares from the mover's view."""

    def name(square: int) -> str:
        return SQUARES[square ^ 56 if black else square]

    for way in range(WAYS):
        step, times = _step_of(way)
        for to in range(64):
            square = stepped(to, step, -times)
            kind = "nbrq"[(way - PROMOTIONS) // 3] if way >= PROMOTIONS else ""
            if square is not None and (not kind or to >= 56):
                yield way, square, to, name(square) + name(to) + kind


def _step_of(way: int) -> tuple[tuple[int, int], int]:
    """Return the step of a way to move, and how often it is taken."""
    if way >= PROMOTIONS:
        return UP[(way - PROMOTIONS) % 3], 1
    if way >= KNIGHTS:
        return JUMPS[way % 4], 1 if way < KNIGHTS + 4 else -1
    return UP[way % 4], way // 4 + 1 if way < DOWN else 6 - way // 4


@kept
def moves_of(device: torch.device | None) -> Moves:
    """Return the table of moves for tensors on a device, or for numpy arrays."""
    token_of = {name: token for token, name in enumerate(vocab_of())}
    token, number = np.zeros((2, WAYS * 64), dtype=np.int64), np.zeros((2, len(token_of)), dtype=np.int64)
    leaves = np.zeros(WAYS * 64, dtype=np.int64)
    for black in (False, True):
        for way, square, to, name in _all_moves(black=black):
            token[int(black), 64 * way + to] = token_of[name]
            number[int(black), token_of[name]] = 64 * way + to
            leaves[64 * way + to] = signed(1 << square)
    turns, rook = np.zeros((5, WAYS), dtype=np.bool), np.zeros(WAYS, dtype=np.int64)
    turns[0, PROMOTIONS:] = True
    for kind, rows in enumerate(((1,), (2,), (3,), (2, 3))):
        turns[list(rows), PROMOTIONS + 3 * kind : PROMOTIONS + 3 * kind + 3] = True
    rook[7], rook[DOWN + 7] = 0b10100000, 0b00001001
    reaches, start = column(*(1 << square for square in range(64)))[:, 0], column(*_START)
    jumps = np.arange(WAYS) == TWO_UP
    tables = token.flatten(), number.flatten(), leaves, reaches, turns, rook, jumps, start
    return Moves(*(on_device(table, device) for table in tables))


def opening(like_B: Array) -> Position:
    """Return the board at the start of a game, for each row of an array."""
    nothing_B = like_B * 0
    board_9B = moves_of(device_of(like_B)).start + nothing_B
    return Position(board_9B, legal_moves(board_9B), nothing_B != 0)


def after(position: Position, number_B: Array, moves_B: Array) -> Position:
    """Return the position after legal moves with these numbers; the same where `moves_B` is False."""
    board_9B, table, xp = position.board_9B, moves_of(device_of(number_B)), library_of(number_B)
    mine, theirs, _, _, _, _, _, rights, jumped = board_9B
    kinds_5B = board_9B[2:7]
    way_B, from_B, to_B = number_B >> 6, table.leaves[number_B], table.reaches[number_B & 63]
    is_5B = (kinds_5B & from_B) != 0
    is_pawn, is_king = is_5B[0], is_5B[4]
    gone = from_B | to_B | xp.where(is_pawn & (to_B == jumped), to_B >> 8, 0)
    rook = is_king * table.rook[way_B]
    kinds_5B = kinds_5B & ~gone | (is_5B ^ table.turns[:, way_B]) * to_B
    sides_2B = xp.stack([theirs & ~gone, mine ^ from_B ^ to_B ^ rook])
    others_2B = xp.stack([rights & ~(gone | is_king * RANK_1), (is_pawn & table.jumps[way_B]) * (from_B << 8)])
    next_9B = upside_down(xp.concat([sides_2B, kinds_5B[:3], (kinds_5B[3] ^ rook)[None], kinds_5B[4:], others_2B]))
    next_9B = xp.where(moves_B, next_9B, board_9B)
    return Position(next_9B, legal_moves(next_9B), position.black ^ moves_B)


def upside_down(bits: Array) -> Array:
    """Reverse the order of the ranks: the bytes of each integer."""
    if isinstance(bits, Tensor):
        return bits[..., None].view(torch.uint8).flip(-1).view(torch.int64)[..., 0]
    return bits.byteswap()


def random_ply(position: Position, uniform_B: Array) -> tuple[Position, Array]:
    """Choose a move by an integer uniform below UNIFORM. Return its token, or 0 when the game is over."""
    legal_MB, table, xp = position.legal_MB, moves_of(device_of(uniform_B)), library_of(uniform_B)
    upto_BM = count_of(legal_MB.T).cumsum(1)
    rank_B = rank_of(upto_BM[:, -1], uniform_B)
    way_B = (upto_BM[:, :-1] <= rank_B[:, None]).sum(1)
    row_B = xp.arange(len(way_B), device=way_B.device)
    bits_B = legal_MB[way_B, row_B]
    number_B = 64 * way_B + nth_bit(bits_B, rank_B - upto_BM[row_B, way_B] + count_of(bits_B))
    moves_B = upto_BM[:, -1] != 0
    number_B = number_B * moves_B
    token_B = table.token[number_B + position.black * (64 * WAYS)]
    return after(position, number_B, moves_B), token_B * moves_B


def random_games(draw: Draw | NumpyDraw, *, plies: int) -> Array:
    """Return the first moves of games with uniform legal moves, as tokens [B, plies]; PAD after a game's end."""
    uniform_BP = draw.integers(UNIFORM, (plies,))
    if not isinstance(uniform_BP, Tensor) or not _has_values(uniform_BP):
        return _games(uniform_BP)
    tokens_BP = torch.empty_like(uniform_BP)  # numpy takes half the time of torch for a batch of 128 on a CPU
    tokens_BP.numpy()[:] = _games(uniform_BP.numpy())
    return tokens_BP


def _has_values(tensor: Tensor) -> bool:
    """Return True for a tensor on the CPU that is no stand-in of a trace."""
    return tensor.device.type == "cpu" and type(tensor) is Tensor and not torch.compiler.is_compiling()


def _games(uniform_BP: Array) -> Array:
    position, tokens = opening(uniform_BP[:, 0]), []
    for ply in range(uniform_BP.shape[1]):
        position, token_B = random_ply(position, uniform_BP[:, ply])
        tokens.append(token_B)
    return library_of(uniform_BP).stack(tokens, 1)


def played(position: Position, token_B: Array) -> Position:
    """Return the position after a token. PAD and an illegal move change nothing."""
    number_B, xp = moves_of(device_of(token_B)).number[token_B + position.black * len(vocab_of())], library_of(token_B)
    bits_B = position.legal_MB[number_B >> 6, xp.arange(len(token_B), device=token_B.device)]
    return after(position, number_B, ((bits_B >> (number_B & 63)) & 1 != 0) & (token_B != 0))


def replay(tokens_BL: Tensor) -> Iterator[Position]:
    """Yield the position after each token."""
    faster = _has_values(tokens_BL)
    line_BL = tokens_BL.numpy() if faster else tokens_BL
    position = opening(line_BL[:, 0])
    for place in range(line_BL.shape[1]):
        position = played(position, line_BL[:, place])
        yield Position(*map(torch.from_numpy, position)) if faster else position


def legal_tokens(position: Position) -> Tensor:
    """Return the legal moves as tokens, bool [B, V]."""
    legal_MB = position.legal_MB
    bytes_M8B = legal_MB[..., None].view(torch.uint8).transpose(1, 2)
    legal_NB = (bytes_M8B[:, :, None] & _bits(legal_MB.device)).flatten(0, 2)  # a row for each move's number
    number_2V = moves_of(legal_MB.device).number.view(2, -1)
    legal_BV = torch.where(position.black, legal_NB[number_2V[1]], legal_NB[number_2V[0]]).T != 0
    legal_BV[:, 0] = False
    return legal_BV


@kept
def _bits(device: torch.device) -> Tensor:
    return torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=device)[:, None]


def labels(board_9X: Tensor, turned_X: Tensor) -> Tensor:
    """Return the label of each square [.., 64] of boards [9, ..], which are turned first where `turned_X` is True.

    Labels are 0 for an empty square, 1..6 for pawn, knight, bishop, rook, queen and king of the mover, 7..12 of the
    other player.
    """
    board_9X = torch.where(turned_X, upside_down(board_9X), board_9X)
    square_S = torch.arange(64, device=board_9X.device)
    theirs, pawns, knights, diagonal, straight, kings = (
        ((bits_X[..., None] >> square_S) & 1) for bits_X in board_9X[1:7].unbind(0)
    )
    kind = pawns + 2 * knights + 3 * diagonal + 4 * straight - 2 * (diagonal & straight) + 6 * kings
    return kind + len(KINDS) * theirs


def edited(position: Position, square_B: Tensor, *, erased: bool) -> Position:
    """Return boards without the piece on a square, or with one of the other colour in its place.

    A board on which the other king could be taken has no legal moves.
    """
    square_B = torch.where(position.black, square_B ^ 56, square_B)
    bit_B = torch.ones_like(square_B) << square_B
    board_9B = (
        position.board_9B & ~bit_B if erased else torch.cat([position.board_9B[:2] ^ bit_B, position.board_9B[2:]])
    )
    legal_MB = legal_moves(board_9B)
    legal_MB = torch.where((legal_MB & board_9B[1] & board_9B[6] != 0).any(0), 0, legal_MB)
    return Position(board_9B, legal_MB, position.black)
