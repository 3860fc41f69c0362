"""The bitboards play Othello: held to published counts, to a slow board in plain Python, and to each other."""

import random
from functools import lru_cache

import numpy as np
import pytest
import torch

from chomsky_ladder.tasks._bits import UNIFORM, chosen, count_of
from chomsky_ladder.tasks._othello import (
    Position,
    bit_table,
    play,
    playable_of,
    random_games,
    replay,
    rules_of,
    squares_of,
)
from chomsky_ladder.tasks.draw import Draw, NumpyDraw
from support.cases import full
from support.oracles_othello import OTHER, Game

torch.set_num_threads(1)

CPU = torch.device("cpu")
PERFT = [4, 12, 56, 244, 1396, 8200, 55092, 390216, 3005288]
"""Move sequences of 1, 2 .. plies, as published; there a pass is a ply."""
GAMES = {8: 10_000, 6: 1500}

both_sizes = pytest.mark.parametrize("size", [full(8), 6])


def name_of(square: int, size: int) -> str:
    row, column = divmod(squares_of(size).index(square), size)
    return f"{'abcdefgh'[column]}{row + 1}"


def names(bits: int, size: int) -> set[str]:
    return {name_of(square, size) for square in squares_of(size) if bits >> square & 1}


def expanded(position: Position) -> Position:
    """Every position after one more move."""
    rules, count_N, parts = rules_of(8), count_of(position.legal), []
    for rank in range(int(count_N.max())):
        rows_N = np.flatnonzero(count_N > rank)
        chosen_from = Position(*(part[rows_N] for part in position))
        square_N = chosen(chosen_from.legal, (rank * UNIFORM) // count_N[rows_N] + 1)
        parts.append(rules.after(chosen_from, np.int64(1) << square_N))
    return Position(*map(np.concatenate, zip(*parts, strict=True)))


def test_perft() -> None:
    position, counts = rules_of(8).opening(np.zeros(1, dtype=np.int64)), []
    for ply, wanted in enumerate(PERFT):
        passed_N = position.black != (ply % 2 == 0)
        counts.append(int(np.where(passed_N, 1, count_of(position.legal)).sum()))
        assert counts[-1] == wanted
        assert bool(passed_N.any()) == (ply == 8)  # the first passes come before the ninth move
        if ply < 8:
            position = expanded(position)
    assert len(position.legal) == PERFT[7]


def test_the_slow_board_gives_the_published_counts() -> None:
    lines: list[list[str]] = [[]]
    for wanted in PERFT[:5]:
        longer = []
        for line in lines:
            game = Game(8)
            for move in line:
                game.play(move)
            longer += [[*line, move] for move in game.moves]
        assert len(longer) == wanted
        lines = longer


@lru_cache
def tokens_of(size: int) -> torch.Tensor:
    draw = Draw(seed=3, split="test", rows_B=torch.arange(GAMES[size]))
    return random_games(draw, size=size, plies=len(playable_of(size)))


@pytest.mark.full
@both_sizes
def test_every_ply_of_random_games_is_that_of_the_slow_board(size: int) -> None:
    tokens_BP = tokens_of(size)
    draw = Draw(seed=3, split="test", rows_B=torch.arange(GAMES[size]))
    uniform = draw.integers(UNIFORM, (tokens_BP.shape[1],)).tolist()
    name_of_token = ["", *(name_of(square, size) for square in playable_of(size))]
    bit_of = {name: 1 << square for square in squares_of(size) for name in [name_of(square, size)]}
    columns = [[part.tolist() for part in position] for position in replay(tokens_BP, size=size)]
    passes = early = 0
    for row, tokens in enumerate(tokens_BP.tolist()):
        game = Game(size)
        for ply, token in enumerate(tokens):
            moves = game.moves
            if not moves:
                assert token == 0
            else:
                assert name_of_token[token] == moves[uniform[row][ply] * len(moves) // UNIFORM]
                game.play(name_of_token[token])
            mine, theirs, legal, black = (
                part[row] % 2**64 if i < 3 else part[row] for i, part in enumerate(columns[ply])
            )
            assert black == (game.viewer == "B")
            assert legal == sum(bit_of[name] for name in game.moves)
            assert mine == sum(bit_of[name] for name in game.stones(game.viewer))
            assert theirs == sum(bit_of[name] for name in game.stones(OTHER[game.viewer]))
        passes += game.passes
        early += tokens[-1] == 0
    assert passes > 100 and early > 5


@both_sizes
def test_moves_and_turned_stones_on_boards_nobody_reaches(size: int) -> None:
    """Stones anywhere, up to the rim and in long lines."""
    source, boards = random.Random(7), []
    for _ in range(150):
        game, weights = Game(size), [source.random() ** 2, source.random(), source.random() + 0.01]
        for place in game.places.values():
            game.board[place] = source.choices(".BW", weights)[0]
        boards.append(game)
    square_of = {name_of(square, size): square for square in squares_of(size)}
    for rules, kind in ((rules_of(size), np.array), (rules_of(size, CPU), torch.tensor)):
        as_bits = {
            stone: [sum(1 << square_of[name] for name in game.stones(stone)) for game in boards] for stone in "BW"
        }
        black, white = (kind([bits - (bits >> 63 << 64) for bits in as_bits[stone]]) for stone in "BW")
        legal = rules.legal_moves(black, white).tolist()
        for game, found in zip(boards, legal, strict=True):
            assert names(found, size) == set(game.moves_of("B"))
        for name, square in square_of.items():
            move = black * 0 + (-(1 << 63) if square == 63 else 1 << square)
            flipped = rules.flipped(move & rules.legal_moves(black, white), black, white).tolist()
            for game, found in zip(boards, flipped, strict=True):
                wanted = game.turned(name, "B")
                assert names(found, size) == {other for other, place in game.places.items() if place in wanted}


def test_one_of_the_set_bits_is_chosen_and_each_as_often() -> None:
    source = random.Random(1)
    words = [source.getrandbits(64) & source.getrandbits(64) for _ in range(300)]
    words += [1, 1 << 63, (1 << 64) - 2, 0xFF << 56, *(source.getrandbits(64) | 1 << 63 for _ in range(50))]
    cases = [(word, rank) for word in words for rank in range(min(word.bit_count(), 60))]
    expected = [[bit for bit in range(64) if word >> bit & 1][rank] for word, rank in cases]
    signed = [word - (word >> 63 << 64) for word, _ in cases]
    for edge in ("low", "high"):  # the least and the greatest integer that means this rank
        uniform = [
            -(-rank * UNIFORM // n) if edge == "low" else -(-(rank + 1) * UNIFORM // n) - 1
            for n, rank in ((word.bit_count(), rank) for word, rank in cases)
        ]
        assert chosen(np.array(signed), np.array(uniform)).tolist() == expected
        assert chosen(torch.tensor(signed), torch.tensor(uniform)).tolist() == expected
    assert count_of(torch.tensor(signed)).tolist() == [word.bit_count() for word, _ in cases]


@both_sizes
def test_numpy_makes_the_same_games_and_a_game_is_its_rows_alone(size: int) -> None:
    plies, rows = len(playable_of(size)), torch.tensor([5, 1, 2**40, 777])
    whole = tokens_of(size)
    twin = random_games(NumpyDraw(seed=3, split="test", rows_B=np.arange(GAMES[size])), size=size, plies=plies)
    assert (twin == whole.numpy()).all()
    some = random_games(Draw(seed=3, split="test", rows_B=rows), size=size, plies=plies)
    alone = random_games(Draw(seed=3, split="test", rows_B=rows[2:3]), size=size, plies=plies)
    assert torch.equal(some[[0, 1, 3]], whole[[5, 1, 777]]) and torch.equal(some[2:3], alone)
    fewer = random_games(Draw(seed=3, split="test", rows_B=rows), size=size, plies=9)
    assert torch.equal(fewer, some[:, :9])


@both_sizes
def test_what_is_no_legal_move_changes_nothing(size: int) -> None:
    tokens_BP = tokens_of(size)[:50]
    wanted = [torch.stack(parts, 1) for parts in zip(*replay(tokens_BP, size=size), strict=True)]
    source, padded, kept = random.Random(2), [], []
    legal_after = wanted[2].tolist()
    bits = bit_table(size, CPU).tolist()
    for row, tokens in enumerate(tokens_BP.tolist()):
        line, where = [], []
        for ply, token in enumerate(tokens):
            where.append(len(line))
            line.append(token)
            wrong = [other for other in range(len(bits)) if not bits[other] & legal_after[row][ply]]
            line += source.choices(wrong, k=2)
        padded.append(line)
        kept.append(where)
    positions = list(replay(torch.tensor(padded), size=size))
    for part, wanted_BP in enumerate(wanted):
        found_BP = torch.stack([position[part] for position in positions], 1)
        for offset in range(3):
            assert torch.equal(found_BP.gather(1, torch.tensor(kept) + offset), wanted_BP)


@both_sizes
def test_no_move_changes_nothing(size: int) -> None:
    for rules, zeros in ((rules_of(size), np.zeros(2, dtype=np.int64)), (rules_of(size, CPU), torch.zeros(2).long())):
        opening = rules.opening(zeros)
        for position in (opening, rules.after(opening, opening.legal & -opening.legal)):
            same = [(a == b).all() for a, b in zip(rules.after(position, zeros), position, strict=True)]
            assert all(same) and len(same) == 4


def test_a_ply_may_be_replaced() -> None:
    """Give `play` another ply, as `scripts/benchmarks/othello.py` gives it a compiled one."""
    rules, made = rules_of(6, CPU), []
    uniform_PB = Draw(seed=0, split="test", rows_B=torch.arange(4)).integers(UNIFORM, (3,)).T

    def ply(position: Position, uniform: torch.Tensor) -> tuple[Position, torch.Tensor]:
        made.append(uniform)
        return rules.random_ply(position, uniform)

    squares = play(rules, uniform_PB, ply=ply)
    assert len(made) == 3 and all(map(torch.equal, squares, play(rules, uniform_PB)))
