"""Read games of Othello from a file: a WTHOR database (.wtb), or a list of moves, one game in each line.

    f5d6c3d3c4f4c5b3c2
    F5 D6 C5 F4 ...                 any case, with spaces or without; empty lines are skipped, a pass is not written

    task = Othello()
    games_GP = load_games("WTH_2004.wtb")
    batch = task.batch_of(games_GP, torch.full((len(games_GP),), 60), 59)

A WTHOR file has a header of 16 bytes: the number of games in bytes 4..7, the size of the board in byte 12 (0 means 8).
Each game has 68 bytes: 8 on players and score, then 60 moves, 10 * row + column from 1, and 0 after the end.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._othello import SIZES, bit_table, replay, rules_of, vocab_of

HEADER, RECORD, ABOUT = 16, 68, 8  # bytes of the header, of a game, and of a game before its moves
CHUNK = 4096  # games replayed at a time


def load_games(path: str | Path, *, size: int = 8) -> Tensor:
    """Return the games of a file as tokens [G, P], PAD after a game's end; P is the number of squares to play on."""
    path = Path(path)
    if size not in SIZES:
        raise ValueError(f"a board has {' or '.join(map(str, SIZES))} squares a side, not {size}")
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    content = path.read_bytes()
    if path.suffix.lower() == ".wtb":
        unit, found = "game", list(_of_wthor(content, path, size))
    else:
        unit, found = "line", list(_of_lines(content, path))
    if not found:
        raise ValueError(f"{path}: no games")
    token_of = {name: token for token, name in enumerate(vocab_of(size)) if token}
    games_GP = np.zeros((len(found), len(token_of)), dtype=np.int64)
    for row, (number, moves) in enumerate(found):
        for ply, move in enumerate(moves, start=1):
            if move not in token_of:
                raise ValueError(f"{path}, {unit} {number}, ply {ply}: {move!r} is no square to play on")
        if len(moves) > games_GP.shape[1]:
            raise ValueError(f"{path}, {unit} {number}: {len(moves)} moves, and a game has at most {games_GP.shape[1]}")
        games_GP[row, : len(moves)] = [token_of[move] for move in moves]
    games_GP = torch.from_numpy(games_GP)
    for start in range(0, len(found), CHUNK):
        illegal = _first_illegal(games_GP[start : start + CHUNK], size)
        if illegal is not None:
            (number, moves), ply = found[start + illegal[0]], illegal[1]
            raise ValueError(f"{path}, {unit} {number}, ply {ply + 1}: {moves[ply]} is not a legal move")
    return games_GP


def _of_lines(content: bytes, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is not empty, and its moves."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither text nor named .wtb") from None
    for number, line in enumerate(lines, start=1):
        moves = "".join(line.split()).lower()
        if moves:
            yield number, re.findall("..?", moves)


def _of_wthor(content: bytes, path: Path, size: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each game and its moves."""
    if len(content) < HEADER:
        raise ValueError(f"{path}: a WTHOR file has a header of {HEADER} bytes; this one ends after {len(content)}")
    (count,), board = struct.unpack_from("<i", content, 4), content[12] or 8
    if board != size:
        raise ValueError(f"{path}: its board has {board} squares a side, not {size}")
    if len(content) != HEADER + count * RECORD:
        raise ValueError(f"{path}: {count} games fill {HEADER + count * RECORD} bytes, and it has {len(content)}")
    for game in range(count):
        end = HEADER + (game + 1) * RECORD
        moves = content[end - RECORD + ABOUT : end].rstrip(b"\0")
        yield game + 1, [f"{chr(96 + move % 10)}{move // 10}" if move % 10 else str(move) for move in moves]


def _first_illegal(games_GP: Tensor, size: int) -> tuple[int, int] | None:
    """Return row and column of the first illegal move, in the first game that has one."""
    moves_GP = bit_table(size, games_GP.device).take(games_GP)
    opening = rules_of(size, games_GP.device).opening(games_GP[:, 0])
    before = [opening.legal, *(position.legal for position in replay(games_GP[:, :-1], size=size))]
    illegal_GP = (moves_GP != 0) & ((moves_GP & torch.stack(before, 1)) == 0)
    found = illegal_GP.nonzero().tolist()
    return (found[0][0], found[0][1]) if found else None
