"""Games on file: WTHOR and lists of moves are read as written, and what is wrong with one is said in one line."""

import struct
from pathlib import Path

import pytest
import torch

from chomsky_ladder.tasks._othello_files import load_games
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.othello import Othello
from support.oracles_othello import Game

torch.set_num_threads(1)


def games_of(size: int, rows: int = 40) -> tuple[torch.Tensor, list[list[str]]]:
    """Random games as tokens, and as names of squares."""
    task = Othello(size=size)
    draw = Draw(seed=9, split="test", rows_B=torch.arange(rows))
    batch = task.sample(draw, torch.full((rows,), 60), task.positions(60))
    games_GP = torch.cat([batch.tokens_BL[:, :1], batch.targets_BL], 1)
    return games_GP, [[task.vocab[token] for token in row if token] for row in games_GP.tolist()]


def wthor(games: list[list[str]], *, board: int = 0, count: int | None = None) -> bytes:
    """Write games in the WTHOR format, from its description: units are columns, tens are rows."""
    header = struct.pack("<4BiHH4B", 20, 26, 7, 1, len(games) if count is None else count, 0, 2026, board, 0, 0, 0)
    records = [header]
    for game in games:
        moves = [10 * int(move[1]) + "abcdefgh".index(move[0]) + 1 for move in game]
        records.append(struct.pack("<HHHBB60B", 1, 2, 3, 32, 32, *moves, *[0] * (60 - len(moves))))
    return b"".join(records)


@pytest.mark.parametrize("size", [8, 6])
def test_lists_of_moves(size: int, tmp_path: Path) -> None:
    games_GP, games = games_of(size)
    path = tmp_path / "games.txt"
    lines = ["".join(games[0]), "", " ".join(games[1]).upper(), "  ", *("".join(game) for game in games[2:])]
    for end in ("\n", "\r\n"):
        path.write_bytes(end.join(lines).encode())
        assert torch.equal(load_games(path, size=size), games_GP)


def test_wthor(tmp_path: Path) -> None:
    games_GP, games = games_of(8, rows=400)
    assert min(map(len, games)) < 60
    for name, board in (("WTH_2026.wtb", 0), ("other.WTB", 8)):
        path = tmp_path / name
        path.write_bytes(wthor(games, board=board))
        assert torch.equal(load_games(str(path)), games_GP)


def test_a_known_opening(tmp_path: Path) -> None:
    """f5 d6 c3 are 56, 64 and 33 in WTHOR."""
    path = tmp_path / "a.wtb"
    content = wthor([["f5", "d6", "c3"]])
    assert content[24:28] == bytes([56, 64, 33, 0])
    path.write_bytes(content)
    tokens = load_games(path)[0]
    assert [Othello().vocab[token] for token in tokens[:4].tolist()] == ["f5", "d6", "c3", "PAD"]


def test_games_that_were_given_up_stay_short(tmp_path: Path) -> None:
    path = tmp_path / "games.txt"
    path.write_text("f5d6c3\nd3\n")
    games_GP = load_games(path)
    assert games_GP.shape == (2, 60) and (games_GP != 0).sum(1).tolist() == [3, 1]


def refused(path: Path, content: bytes, message: str, *, size: int = 8) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_games(path, size=size)
    assert "\n" not in str(caught.value) and path.name in str(caught.value)


def test_what_is_wrong_with_a_list_is_said(tmp_path: Path) -> None:
    path = tmp_path / "games.txt"
    refused(path, b"f5d6c3\n\nf5f5\n", r"line 3, ply 2: f5 is not a legal move")
    refused(path, b"f5d6c3\nf5d6c3d3c4f4a1\n", r"line 2, ply 7: a1 is not a legal move")
    refused(path, b"a1\nf5d6xx", r"line 2, ply 3: 'xx' is no square")
    refused(path, b"f5d", r"line 1, ply 2: 'd' is no square")
    refused(path, b"f5d4", r"line 1, ply 2: 'd4' is no square")
    refused(path, b"f5--d6", r"line 1, ply 2: '--' is no square")
    refused(path, b"d7", r"line 1, ply 1: 'd7' is no square", size=6)
    refused(path, b"f5" * 61, r"line 1: 61 moves, and a game has at most 60")
    refused(path, b"\n\n", "no games")
    refused(path, b"\xff\xfe\x00", "neither text nor named .wtb")
    with pytest.raises(ValueError, match="no such file"):
        load_games(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="6 or 8 squares a side, not 7"):
        load_games(path, size=7)


@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_the_first_mistake_of_a_file_is_named(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is the earliest game, then the earliest ply, for chunks of any size."""
    monkeypatch.setattr("chomsky_ladder.tasks._othello_files.CHUNK", chunk)
    _, games = games_of(8, rows=6)
    game = Game(8)
    for move in games[3][:20]:
        game.play(move)
    taken = next(move for move in games[3] if move not in game.moves)
    games[3][20], games[4][1] = taken, games[4][0]
    refused(tmp_path / "games.txt", "\n".join(map("".join, games)).encode(), f"line 4, ply 21: {taken} is not")
    refused(tmp_path / "games.wtb", wthor(games), f"game 4, ply 21: {taken} is not")


def test_what_is_wrong_with_a_data_base_is_said(tmp_path: Path) -> None:
    path, good = tmp_path / "games.wtb", wthor([["f5", "d6"]])
    refused(path, good[:10], "a header of 16 bytes; this one ends after 10")
    refused(path, good[:-1], "1 games fill 84 bytes, and it has 83")
    refused(path, good + b"\0", "1 games fill 84 bytes, and it has 85")
    refused(path, wthor([["f5"]], count=-1), "-1 games fill")
    refused(path, wthor([], count=0), "no games")
    refused(path, wthor([["f5"]], board=10), "its board has 10 squares a side, not 8")
    refused(path, good, "its board has 8 squares a side, not 6", size=6)
    refused(path, good[:25] + bytes([0, 64]) + good[27:], "game 1, ply 2: '0' is no square")
    refused(path, good[:25] + bytes([69]) + good[26:], "game 1, ply 2: 'i6' is no square")
