"""The bitboards play chess: held to published counts, to python-chess at every ply, and to each other."""

from collections.abc import Sequence

import chess
import numpy as np
import pytest
import torch

from chomsky_ladder.tasks._bits import UNIFORM, count_of, nth_bit, signed
from chomsky_ladder.tasks._chess import WAYS, legal_moves
from chomsky_ladder.tasks._chess_games import (
    SQUARES,
    Position,
    after,
    edited,
    labels,
    legal_tokens,
    moves_of,
    opening,
    random_games,
    random_ply,
    replay,
    upside_down,
    vocab_of,
)
from chomsky_ladder.tasks.draw import Draw, NumpyDraw
from support.cases import full

torch.set_num_threads(1)

CPU = torch.device("cpu")
PERFT = {  # the positions and counts of www.chessprogramming.org/Perft_Results
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1": [20, 400, 8902, 197281, 4865609],
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1": [48, 2039, 97862, 4085603],
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1": [14, 191, 2812, 43238, 674624],
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1": [6, 264, 9467, 422333],
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8": [44, 1486, 62379, 2103487],
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10": [46, 2079, 89890, 3894594],
}
DAILY = 10_000  # positions
PIECES = ["", *"PNBRQK"]


def position_of(boards: Sequence[chess.Board]) -> Position:
    """The same boards as numpy arrays."""
    columns = []
    for board in boards:
        sides = board.occupied_co[chess.WHITE], board.occupied_co[chess.BLACK]
        kinds = board.pawns, board.knights, board.bishops | board.queens, board.rooks | board.queens, board.kings
        jumped = 0 if board.ep_square is None else 1 << board.ep_square
        columns.append([*(sides if board.turn else sides[::-1]), *kinds, board.castling_rights, jumped])
    board_9B = np.array([list(map(signed, column)) for column in columns]).T.copy()
    black = np.array([not board.turn for board in boards])
    board_9B = np.where(black, upside_down(board_9B), board_9B)
    return Position(board_9B, legal_moves(board_9B), black)


def expanded(position: Position) -> Position:
    """Every position after one more move."""
    parts, count_MB = [], count_of(position.legal_MB)
    for way in range(WAYS):
        for rank in range(int(count_MB[way].max())):
            rows = np.flatnonzero(count_MB[way] > rank)
            chosen_from = Position(*(part[..., rows] for part in position))
            number = 64 * way + nth_bit(chosen_from.legal_MB[way], np.full(len(rows), rank))
            parts.append(after(chosen_from, number, np.ones(len(rows), dtype=bool)))
    return Position(*(np.concatenate(part, -1) for part in zip(*parts, strict=True)))


def counted(fen: str, most: int) -> None:
    position, wanted = position_of([chess.Board(fen)]), [count for count in PERFT[fen] if count <= most]
    for ply, count in enumerate(wanted, start=1):
        assert int(count_of(position.legal_MB).sum()) == count, ply
        if ply < len(wanted):
            position = expanded(position)


@pytest.mark.parametrize("fen", PERFT)
@pytest.mark.each_time(6)
def test_perft(fen: str) -> None:
    counted(fen, DAILY)


@pytest.mark.full
@pytest.mark.parametrize("fen", PERFT)
def test_perft_further(fen: str) -> None:
    counted(fen, 5_000_000)


def piece_labels(board: chess.Board, viewer: chess.Color) -> list[int]:
    found = []
    for square in chess.SQUARES:
        piece = board.piece_at(square)
        found.append(0 if piece is None else piece.piece_type + 6 * (piece.color != viewer))
    return found


@pytest.mark.parametrize("games", [12, full(10_000)])
def test_every_ply_of_random_games_is_that_of_python_chess(games: int) -> None:
    """Moves, boards, castling rights and captures in passing, and what ends a game."""
    vocab, ends, kinds, chunk, plies = vocab_of(), 0, set(), 200, 60 if games < 100 else 120
    for start in range(0, games, chunk):
        rows = torch.arange(start, min(start + chunk, games))
        tokens_BP = random_games(Draw(seed=3, split="test", rows_B=rows), plies=plies)
        boards = [chess.Board() for _ in rows]
        for token_B, position in zip(tokens_BP.T.tolist(), replay(tokens_BP), strict=True):
            legal_BV, label_BS = legal_tokens(position).numpy(), labels(position.board_9B, position.black).tolist()
            rights = torch.where(position.black, upside_down(position.board_9B), position.board_9B)[7].tolist()
            for row, (board, token) in enumerate(zip(boards, token_B, strict=True)):
                if token:
                    move = chess.Move.from_uci(vocab[token])
                    assert board.is_legal(move)
                    kinds |= {
                        "passing" if board.is_en_passant(move) else "",
                        "castling" if board.is_castling(move) else "",
                        chess.piece_name(move.promotion) if move.promotion else "",
                    }
                    board.push(move)
                else:
                    assert not any(board.legal_moves)
                    ends += 1
                legal = {vocab[place] for place in np.flatnonzero(legal_BV[row]).tolist()}
                assert legal == {move.uci() for move in board.legal_moves}, board.fen()
                assert bool(position.black[row]) == (board.turn == chess.BLACK)
                assert label_BS[row] == piece_labels(board, board.turn), board.fen()
                assert rights[row] % 2**64 == board.clean_castling_rights()
    assert games < 100 or (ends > 1000 and len(kinds - {""}) == 6), "every kind of move, and ends"


def test_each_legal_move_is_chosen_by_an_equal_share_of_the_integers() -> None:
    """On boards of every kind of move: as many integers as there are moves, evenly spread, give each of them once."""
    for fen in PERFT:
        for board in (chess.Board(fen), chess.Board(fen).mirror()):
            moves = {move.uci() for move in board.legal_moves}
            uniform = [edge for rank in range(len(moves)) for edge in share(rank, len(moves))]
            _, token_B = random_ply(position_of([board] * len(uniform)), np.array(uniform))
            chosen = [vocab_of()[token] for token in token_B.tolist()]
            assert chosen[::2] == chosen[1::2] and set(chosen) == moves and len(chosen) == 2 * len(moves)


def share(rank: int, count: int) -> tuple[int, int]:
    """The least and the greatest integer that means this rank."""
    return -(-rank * UNIFORM // count), -(-(rank + 1) * UNIFORM // count) - 1


def test_torch_makes_the_games_of_numpy_and_a_game_is_its_row_alone() -> None:
    rows = torch.tensor([5, 1, 2**40, 7])
    whole = random_games(Draw(seed=3, split="test", rows_B=torch.arange(8)), plies=40)
    assert (random_games(NumpyDraw(seed=3, split="test", rows_B=np.arange(8)), plies=40) == whole.numpy()).all()
    some = random_games(Draw(seed=3, split="test", rows_B=rows), plies=40)
    assert torch.equal(some[[0, 1, 3]], whole[[5, 1, 7]])
    uniform_BP = Draw(seed=3, split="test", rows_B=torch.arange(8)).integers(UNIFORM, (40,))
    position, found = opening(uniform_BP[:, 0]), []
    for uniform_B in uniform_BP.unbind(1):
        position, token_B = random_ply(position, uniform_B)
        found.append(token_B)
    assert isinstance(position.board_9B, torch.Tensor) and torch.equal(torch.stack(found, 1), whole)


def test_what_is_no_legal_move_changes_nothing() -> None:
    """A blank, and the move just played, which its piece cannot make again."""
    tokens_BP = random_games(Draw(seed=3, split="test", rows_B=torch.arange(8)), plies=12)
    padded_BP = torch.stack([tokens_BP, torch.zeros_like(tokens_BP), tokens_BP], 2).flatten(1)
    again = list(replay(padded_BP))
    for place, position in enumerate(replay(tokens_BP)):
        for same in again[3 * place : 3 * place + 3]:
            assert all(map(torch.equal, position, same)), place


@pytest.mark.parametrize("erased", [False, True])
def test_edited_boards_are_those_of_python_chess(erased: bool) -> None:
    """One piece taken away or given to the other side, wherever the king that may not be taken is safe."""
    allowed = 0
    for fen in list(PERFT)[1:4:2]:
        for board in (chess.Board(fen), chess.Board(fen).mirror()):
            squares = [square for square, piece in board.piece_map().items() if piece.piece_type != chess.KING]
            found = edited(as_tensors(position_of([board] * len(squares))), torch.tensor(squares), erased=erased)
            for row, square in enumerate(squares):
                other, piece = board.copy(), board.remove_piece_at(square)
                assert piece is not None
                board.set_piece_at(square, piece)
                other.remove_piece_at(square)
                if not erased:
                    other.set_piece_at(square, chess.Piece(piece.piece_type, not piece.color))
                legal = {vocab_of()[place] for place in legal_tokens(found)[row].nonzero()[:, 0].tolist()}
                label_S = labels(found.board_9B, found.black)[row].tolist()
                assert label_S == piece_labels(other, other.turn), (fen, SQUARES[square])
                if legal or not other.was_into_check():
                    assert legal == {move.uci() for move in other.legal_moves}, (fen, SQUARES[square])
                allowed += bool(legal)
    assert allowed > 75


def as_tensors(position: Position) -> Position:
    return Position(*(torch.from_numpy(np.ascontiguousarray(part)) for part in position))


def test_vocabulary() -> None:
    vocab, table = vocab_of(), moves_of(CPU)
    assert len(vocab) == 1969 and vocab[0] == "PAD" and list(vocab[1:]) == sorted(vocab[1:])
    assert {"e2e4", "e1g1", "e1c1", "g1f3", "a1h8", "e7e8q", "b2a1n"} <= set(vocab) and "e7e6q" not in vocab
    for black in range(2):
        numbers = table.number.view(2, -1)[black]
        known = (numbers != 0).nonzero()[:, 0]
        assert torch.equal(table.token.view(2, -1)[black][numbers[known]], known)
