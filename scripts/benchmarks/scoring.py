"""Measure the share of scoring in a run: every validation and the last scores, relative to its seconds of training.

    python scripts/benchmark.py scoring [--protocol climb-v1] [--steps 24] [--models NAME ..]
                                        [--json] [--out FILE]      the same JSON, with its provenance, to a file

Some steps, one validation and the last scores are timed, on parity, one thread and process time, and scaled to the
protocol's number of steps and validations. The last scores reuse the validation. A run that stops early has a larger
share. The exit code is 1 if a model's share is above `LIMIT`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.climb.runs import CLIMB, climb_runs, climber
from chomsky_ladder.harness.config.protocols import find_protocol, preset_run
from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.machine import pinned, processor, publishable_provenance
from chomsky_ladder.harness.train.pack import Pack

LIMIT = 0.1
TASK = "parity"
WARM_UP = 3


def run_of(model: str, protocol: str) -> Run:
    if find_protocol(protocol).rungs:
        return next(run for run in climb_runs(climber(find_model(model), protocol=protocol)) if run.task.name == TASK)
    return preset_run(TASK, model, protocol=protocol)


def seconds(asked: Callable[[], Any]) -> float:
    start = time.process_time()
    asked()
    return time.process_time() - start


def share_of(run: Run, *, steps: int) -> dict[str, Any]:
    pack, longest = Pack([run], device=torch.device("cpu"), backend="auto"), run.train.longest(run.train.steps - 1)

    def step() -> None:
        pack.advance(longest)
        pack.seen()

    for _ in range(WARM_UP):
        step()
    step_s = seconds(lambda: [step() for _ in range(steps)]) / steps
    evaluator = Evaluator(run, pack.models[0], device=torch.device("cpu"), backend="auto")
    known = evaluator.validation()
    validation_s = seconds(evaluator.validation)
    last_s = seconds(lambda: evaluator.scores(known))
    validations = run.train.steps // run.eval.every if run.eval.every else 0
    share = (validations * validation_s + last_s) / (run.train.steps * step_s)
    found = {"step_ms": 1000 * step_s, "validation_ms": 1000 * validation_s, "last_ms": 1000 * last_s}
    return {**{name: round(value, 1) for name, value in found.items()}, "share": round(share, 3)}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmark.py scoring", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--protocol", default=CLIMB)
    parser.add_argument("--steps", type=int, default=24, help="steps that are timed")
    parser.add_argument("--models", nargs="+", default=[], help="default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write JSON")
    options = parser.parse_args(words)
    if options.out and not options.out.parent.is_dir():
        parser.error(f"--out names a file in a folder that is there, not {options.out}")
    if options.steps < 1:
        parser.error("--steps is at least 1")
    try:
        runs = {name: run_of(name, options.protocol) for name in options.models or sorted(all_models())}
    except ValueError as mistake:
        parser.error(str(mistake))
    rows = []
    with pinned(1):
        for name, run in runs.items():
            rows.append({"model": name, **share_of(run, steps=options.steps)})
            if not options.json:
                row = rows[-1]
                print(
                    f"{name:20} step {row['step_ms']:7.1f} ms  validation {row['validation_ms']:7.1f}"
                    f"  last {row['last_ms']:8.1f}  share {row['share']:.3f}"
                    f"{f'  above {LIMIT:g}' if row['share'] > LIMIT else ''}",
                    flush=True,
                )
    told = {"processor": processor(), "protocol": options.protocol, "task": TASK, "rows": rows}
    if options.out:
        kept = {**told, "provenance": publishable_provenance()}
        write_atomically(options.out, f"{json.dumps(kept, indent=1)}\n".encode())
    if options.json:
        print(json.dumps({**told, "torch": torch.__version__}))
    return 1 if any(row["share"] > LIMIT for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
