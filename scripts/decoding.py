"""Compare ways of decoding: whole strings that models write greedily, by beam search and by sampling.

    python scripts/decoding.py [--budget smoke|cpu] [--results FOLDER]

Three models learn to copy, to reverse and to run a stack, and read their own answers (decode=teacher). A fourth task is
the Markov chain of `text`, whose strings cannot be known. Each model then writes test strings of two lengths, one as
long as the longest in training and one longer. cpu takes some ten minutes of a core. Finished runs are not run again.
Maintainers make the published table with `--results results/decoding`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import identity_of, overridden, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside.settings import WrittenSettings
from chomsky_ladder.harness.inside.written import written
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.places import default_results, publishing
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.tables.formats import markdown
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet
from chomsky_ladder.harness.train.build import restored

FED = {"task.decode": "teacher", "task.num_symbols": 2}
TASKS: dict[str, dict[str, Any]] = {"repetition": FED, "reverse_string": FED, "stack_manipulation": FED, "text": {}}
MODELS = ("lstm", "transformer", "mamba")
LENGTHS = (40, 64)  # the longest of training, and a longer one
WAYS: tuple[dict[str, Any], ...] = ({}, {"beam": 4}, {"temperature": 0.5}, {"temperature": 1.0})
BATCH = 32
NAMES = [WrittenSettings(**way).way for way in WAYS]


class Budget(NamedTuple):
    steps: int
    strings: int


BUDGETS = {"smoke": Budget(4, 4), "cpu": Budget(2000, 256)}
LEAD = (
    "Each cell: whole strings right, symbols right, and the log probability a symbol that the model gives to what it "
    "wrote. A beam is judged by its best string. A text has no right continuation: its symbols are compared with those "
    "that followed.",
    "Models that answer in blank slots (decode=parallel, the default) are not here. Their answers do not depend on one "
    "another, so the greedy string is the most probable one, and a beam finds the same.",
)


def runs_of(budget: Budget) -> list[Run]:
    train = {
        "steps": budget.steps,
        "batch": BATCH,
        "lr": 3e-3,
        "lengths": [3, LENGTHS[0]],
        "curriculum": [10, 20, 40, 40],
    }
    score = {"lengths": list(LENGTHS), "bins": list(LENGTHS), "every": 0, "test": budget.strings, "extrapolate": []}
    changes = {f"train.{name}": value for name, value in (train | {"stop_after": 0}).items()}
    changes |= {f"eval.{name}": value for name, value in score.items()}
    usual = {(task, model): preset_run(task, model, protocol="xlstm_cpu") for task in TASKS for model in MODELS}
    return [overridden(run, changes | TASKS[task]) for (task, _), run in usual.items()]


def rows_of(run: Run, results: Path, strings: int) -> list[dict[str, Any]]:
    """Return what each way of decoding gets right, at each length."""
    run, model, _ = restored(find_run(results, run.run_id))
    rows = []
    for longest in LENGTHS:
        length = run.task.legal_lengths(1, longest)[-1]
        for way, name in zip(WAYS, NAMES, strict=True):
            found = written(run, model, WrittenSettings(count=strings, length=length, **way))
            log_p = sum(string["said"][0]["log_p"] for string in found["written"]) / found["symbols"]
            exact, symbols = found["right"] / found["strings"], found["right_symbols"] / found["symbols"]
            place = {"task": run.task.name, "model": title_of(identity_of(run)), "length": length, "way": name}
            rows.append({**place, "exact": exact, "symbols": symbols, "log_p": log_p, "run_id": run.run_id})
    return rows


def sheet_of(data: pd.DataFrame, records: pd.DataFrame) -> Sheet:
    """Return the table, with the scope that the records of its runs have."""
    lines = []
    for (task, model, length), own in data.groupby(["task", "model", "length"], sort=False):
        by_way = {row.way: f"{row.exact:.2f}, {row.symbols:.2f}, {row.log_p:.2f}" for row in own.itertuples()}
        lines.append(Line(f"{task} {length}, {model}", tuple(Entry((by_way[name],)) for name in NAMES)))
    columns = tuple(map(Column, NAMES))
    return Sheet("What decoding changes", (*LEAD, _scope(records)), "task and length, model", columns, tuple(lines))


def _scope(records: pd.DataFrame) -> str:
    low, high = (f"{size:,}" for size in (records["parameters"].min(), records["parameters"].max()))
    steps, rates, seeds = (", ".join(map(str, sorted(set(records[name])))) for name in ("steps", "lr", "seed"))
    trained = f"{steps} steps of {BATCH} strings of length 3 to {LENGTHS[0]}"
    return (
        f"Scope: {low} to {high} parameters; {trained}; learning rate {rates}; seed {seeds}. records.csv has the runs."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--budget", choices=BUDGETS, default="cpu")
    parser.add_argument("--results", type=Path, default=default_results() / "decoding", help="where everything goes")
    options = parser.parse_args()
    budget = BUDGETS[options.budget]
    runs = runs_of(budget)
    sweep(runs, Exec(results=options.results, device="cpu"))
    data = pd.DataFrame([row for run in runs for row in rows_of(run, options.results, budget.strings)])
    table = markdown([sheet_of(data, collect(options.results))])
    write_atomically(options.results / f"{options.budget}.csv", csv_of(data, float_format="%.6g").encode())
    write_atomically(options.results / f"{options.budget}.md", table.encode())
    print(table, end="")
    return 0


if __name__ == "__main__":
    try:
        with publishing():
            sys.exit(main())
    except ValueError as mistake:
        print(f"decoding.py: {mistake}", file=sys.stderr)
        sys.exit(2)
