"""Measure what an engine adds to a run, and what Ray's workers gain, in seconds on this machine.

Overhead is the wall time of every worker in a sweep of single-step runs, minus the seconds of training and scoring in
the runs' records. Speed-up is the wall time of the serial engine divided by that of Ray with one worker for each core.
Starting Ray and its workers is paid once, and reported separately. The two engines alternate, so that a drift of the
machine's speed slows both alike. The results are medians of the rounds.

    python scripts/benchmark.py engine [--runs N] [--steps N] [--rounds N] [--json]
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from chomsky_ladder import Eval, Exec, Run, Train, sweep
from chomsky_ladder.harness.sweep.engines.ray_cluster import connected
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.parity import Parity

CORES = len(os.sched_getaffinity(0))
WORKERS = {"serial": 1, "ray": CORES}
SCORE = Eval(lengths=(8, 16), test=64, validation=64, every=0, bins=(8, 16), extrapolate=())


def runs(count: int, seeds: Iterator[int], *, steps: int) -> list[Run]:
    train = Train(steps=steps, batch=64, lengths=(3, 40))
    run = Run(task=Parity(), model=LSTMConfig(d_model=64), train=train, eval=SCORE)
    return [replace(run, seed=next(seeds)) for _ in range(count)]


def timed(some: Sequence[Run], folder: Path, engine: str) -> tuple[float, float]:
    """Return the seconds of a sweep, and of its runs' training and scoring."""
    start = time.monotonic()
    results = sweep(some, Exec(results=folder, device="cpu"), engine=engine, quiet=True)
    wall = time.monotonic() - start
    return wall, sum(result["seconds"]["train"] + result["seconds"]["score"] for result in results)  # pyright: ignore[reportOptionalSubscript]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmark.py engine", description=str(__doc__).split("\n")[0])
    parser.add_argument("--runs", type=int, default=6, help="of a sweep")
    parser.add_argument("--steps", type=int, default=100, help="of a run whose speed-up is measured")
    parser.add_argument("--rounds", type=int, default=3, help="sweeps of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    seeds = itertools.count()
    overheads: dict[str, list[float]] = {engine: [] for engine in WORKERS}
    walls: dict[str, list[float]] = {engine: [] for engine in WORKERS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timed(runs(1, seeds, steps=1), folder, "serial")  # the first sweep pays for loading
        start = time.monotonic()
        with connected(None):
            timed(runs(2 * CORES, seeds, steps=1), folder, "ray")
            starting = time.monotonic() - start
            for _ in range(options.rounds):
                for engine, workers in WORKERS.items():
                    wall, inside = timed(runs(options.runs, seeds, steps=1), folder, engine)
                    overheads[engine].append(1e3 * (wall * workers - inside) / options.runs)
                    walls[engine].append(timed(runs(options.runs, seeds, steps=options.steps), folder, engine)[0])
    measured = {"cores": CORES, "ray_start_s": starting}
    for engine in WORKERS:
        measured[f"{engine}_overhead_ms_per_run"] = median(overheads[engine])
        measured[f"{engine}_wall_s_per_run"] = median(walls[engine]) / options.runs
    measured["ray_speed_up"] = median(one / many for one, many in zip(walls["serial"], walls["ray"], strict=True))
    if options.json:
        print(json.dumps(measured, indent=1))
    else:
        for key, value in measured.items():
            print(f"{key:28} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
