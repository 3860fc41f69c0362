"""Count the random games of Othello per second, on one CPU thread, by each of four players: process time, interleaved.

    python scripts/benchmark.py othello [--size 8] [--batch 16384] [--seconds 4] [--json]

`list` is the slow board of the tests, square by square. `numpy` and `torch` are `tasks._othello.random_games`, the
latter as `sample` uses it. `compiled` passes its ply through `torch.compile`, whose own time is reported separately.
All but the first make the same games, which is checked. The result is the best of their turns.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chomsky_ladder.tasks._bits import UNIFORM
from chomsky_ladder.tasks._othello import play, playable_of, random_games, rules_of, token_table
from chomsky_ladder.tasks.draw import Draw, NumpyDraw

LIST_GAMES = 20


def by_list(size: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.oracles_othello import Game

    chooser = random.Random(0)
    for _ in range(LIST_GAMES):
        game = Game(size)
        while game.moves:
            game.play(chooser.choice(game.moves))


def by_numpy(size: int, batch: int) -> np.ndarray:
    draw = NumpyDraw(seed=0, split="train", rows_B=np.arange(batch))
    return random_games(draw, size=size, plies=len(playable_of(size)))


def by_torch(size: int, batch: int) -> np.ndarray:
    draw = Draw(seed=0, split="train", rows_B=torch.arange(batch))
    return random_games(draw, size=size, plies=len(playable_of(size))).numpy()


def by_compiled(size: int, batch: int, ply: Callable[..., Any]) -> np.ndarray:
    draw, device = Draw(seed=0, split="train", rows_B=torch.arange(batch)), torch.device("cpu")
    uniform_PB = draw.integers(UNIFORM, (len(playable_of(size)),)).T.contiguous()
    squares_PB = torch.stack(play(rules_of(size, device), uniform_PB, ply=ply))
    return token_table(size, device).take(squares_PB).T.numpy()


def spent(player: Callable[[], Any]) -> float:
    start = time.process_time()
    player()
    return time.process_time() - start


def main(words: Sequence[str] | None = None) -> int:
    about, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="benchmark.py othello",
        description=about,
        epilog=usage,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--size", type=int, choices=(6, 8), default=8)
    parser.add_argument("--batch", type=int, default=16384, help="games at once, but for the list board")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each player, beside what is compiled")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    size, batch = options.size, options.batch
    ply = torch.compile(rules_of(size, torch.device("cpu")).random_ply, dynamic=False)
    start = time.perf_counter()
    wanted = by_compiled(size, batch, ply)
    compiling = time.perf_counter() - start
    equal = all((player(size, batch) == wanted).all() for player in (by_numpy, by_torch))
    assert equal, "the players make different games"
    players: dict[str, tuple[int, Callable[[], Any]]] = {
        "list": (LIST_GAMES, lambda: by_list(size)),
        "numpy": (batch, lambda: by_numpy(size, batch)),
        "torch": (batch, lambda: by_torch(size, batch)),
        "compiled": (batch, lambda: by_compiled(size, batch, ply)),
    }
    best = dict.fromkeys(players, float("inf"))
    total = dict.fromkeys(players, 0.0)
    while min(total.values()) < options.seconds:
        for name, (_, player) in players.items():
            if total[name] < options.seconds:
                seconds = spent(player)
                best[name], total[name] = min(best[name], seconds), total[name] + seconds
    rates = {name: round(games / best[name]) for name, (games, _) in players.items()}
    if options.json:
        print(json.dumps({"size": size, "batch": batch, "games_per_second": rates, "compiling_s": round(compiling, 1)}))
        return 0
    for name, rate in rates.items():
        print(f"{name:9} {rate:9,} games/s" + (f"  (compiled in {compiling:.0f} s)" if name == "compiled" else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
