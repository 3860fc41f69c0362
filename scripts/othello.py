"""The study of several architectures on Othello or chess: train, probe, edit, tell states apart, draw, table.

    scripts/othello.py [--budget smoke|cpu|full] [--models NAME ..] [--seeds N] [--results FOLDER] [--processes N]
    scripts/othello.py --game chess [--budget smoke|cpu] ..

smoke takes a minute and shows that everything runs. cpu takes some two hours of two cores, on 6x6, for three seeds of
models of one size; for chess some five. full has the published size, on a GPU. Finished parts are not done again, so a
stopped study can be resumed. Maintainers make the published one with `--results results/othello`, or results/chess.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.inside import figures as board_figures
from chomsky_ladder.harness.inside import table as othello_table
from chomsky_ladder.harness.inside.kept import keep
from chomsky_ladder.harness.inside.study import BUDGETS, GAMES, is_done, runs_of, work
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.places import default_results, publishing
from chomsky_ladder.harness.train.machine import find_device, pinned


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--game", choices=GAMES, default="othello")
    parser.add_argument("--budget", choices=BUDGETS, default="cpu")
    parser.add_argument("--models", nargs="+", default=[], help="any of the registry; default: those of the budget")
    parser.add_argument("--results", type=Path, help="where everything goes; default: a folder of the game's name")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=0, help="of weights and training games; default: the budget's")
    parser.add_argument("--processes", type=int, default=0, help="default: one on a GPU, else one a core")
    parser.add_argument("--helper", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    start, results = time.monotonic(), options.results or default_results() / options.game
    runs = runs_of(options.budget, options.models, seeds=options.seeds, game=options.game)
    settings = Exec(results=results, device=options.device, log_every=50)
    budget, on_cpu = GAMES[options.game][options.budget], find_device(options.device).type == "cpu"
    with pinned(1):
        if options.helper:
            work(runs[options.helper :] + runs[: options.helper], budget, settings, quiet=True)
            return 0
        processes = options.processes or (min(os.cpu_count() or 1, len(runs)) if on_cpu else 1)
        command = [sys.executable, __file__, *sys.argv[1:], "--helper"]
        helpers = [subprocess.Popen([*command, str(number)]) for number in range(1, processes)]
        try:
            work(runs, budget, settings)
            for helper in helpers:
                helper.wait()
        finally:
            for helper in helpers:
                helper.kill()
        work(runs, budget, settings)  # what a helper dropped
        folders = [RunFolder(results, run.run_id) for run in runs]
        if busy := [folder.path.name for folder in folders if not is_done(folder, budget)]:
            raise ValueError(f"another process still works on {', '.join(busy)}; its parts are kept, so run this again")
        rows = [othello_table.row_of(folder) for folder in folders]
        keep(folders, results / "measured" / options.budget)
        pictures = board_figures.write(folders, results / "figures" / options.budget)
    print(othello_table.write(rows, results / "tables" / options.budget))
    print(f"{len(pictures)} pictures; {time.monotonic() - start:.0f} s; written under {results}")
    return 0 if options.budget == "smoke" or all(map(othello_table.beats, rows)) else 1


if __name__ == "__main__":
    try:
        with publishing():
            sys.exit(main())
    except ValueError as mistake:
        print(f"othello.py: {mistake}", file=sys.stderr)
        sys.exit(2)
