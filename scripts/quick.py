"""The first sweep: three models on four tasks, three seeds, in about five minutes of two CPU cores.

It is a smoke run, not a result: a tiny budget under the `quick` protocol. Still, it shows one finding: an LSTM trained
on strings up to length 40 holds parity at 40..256 on every seed, and a Transformer does not.

    scripts/quick [--results FOLDER] [--processes N]

Finished runs are not run again. One process for each core trains them.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import PROTOCOLS, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.sweep.engines.processes import ProcessesOptions
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.tables import write as tables

MODELS = ("lstm", "lstm_block", "transformer")
TASKS = ("parity", "even_pairs", "cycle_nav", "bucket_sort")
RATES = {"transformer": 1e-3}  # the attention model does not train at the recurrent ones' learning rate


def runs() -> list[Run]:
    seeds = range(PROTOCOLS["quick"].seeds)
    cells = [preset_run(task, model, protocol="quick") for task in TASKS for model in MODELS]
    cells = [replace(run, train=replace(run.train, lr=RATES.get(run.model.name, run.train.lr))) for run in cells]
    return [replace(run, seed=seed) for seed in seeds for run in cells]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--results", type=Path, default=default_results() / "quick", help="where everything goes")
    parser.add_argument("--processes", type=int, default=0, help="default: one a core")
    options = parser.parse_args()
    start = time.monotonic()
    settings = Exec(results=options.results, log_every=20)
    results = sweep(runs(), settings, engine=ProcessesOptions(processes=options.processes))
    print(tables.write(options.results))
    for model in ("lstm", "transformer"):
        mine = [
            r for r, run in zip(results, runs(), strict=True) if (run.task.name, run.model.name) == ("parity", model)
        ]
        held = sum(bool(r) and r["status"] == "done" and r["test"]["scaled"] >= 0.99 for r in mine)
        print(f"{model} holds parity at 40..256 (scaled >= .99) on {held} of {len(mine)} seeds")
    print(f"{time.monotonic() - start:.0f} s; written under {options.results}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
