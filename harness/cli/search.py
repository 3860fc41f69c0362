"""Train a script's search (harness/sweep/halving.py), and show its rounds and its winner."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.cli.say import columns
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import flat
from chomsky_ladder.harness.store.labels import reproduce
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.sweep.halving import Halving, carry_out_search, ranked
from chomsky_ladder.harness.sweep.sources import sources


def refuse_for_search(*, shard: str, report_seeds: int = 0, recorded: bool = False) -> None:
    """Refuse options of a sweep that a search cannot have."""
    if shard:
        raise ValueError("a search needs all results of a round in one folder: leave out --shard")
    if report_seeds:
        raise ValueError("a search ends with one winner: train it with fresh seeds by its command, not --report-seeds")
    if recorded:
        raise ValueError("a search ranks the runs of its folder: leave out --recorded")


def sweep_search(search: Halving, settings: Exec, *, engine: Any, quiet: bool, again: str, as_json: bool) -> int:
    """Say the budget, train the rounds and print who went on. Return the exit code of `ladder sweep`."""
    if not quiet:
        print(search.budget, file=sys.stderr)
    report = carry_out_search(search, settings, engine=engine, quiet=quiet, again=again)
    rounds = search.rounds(settings.results)
    winner = next((run for run, _ in ranked(rounds[-1], settings.results)), None) if report.complete else None
    if as_json:
        tree = {"runs": report.runs, "done": report.done, "complete": report.complete}
        tree |= {"rounds": [[run.run_id for run in runs] for runs in rounds]}
        tree |= {status: report.of(status) for status in ("failed", "held")} | {"seconds": report.seconds}
        print(json.dumps(tree | {"winner": winner.run_id if winner else None}, indent=1))
    elif not quiet:
        _show(search, rounds, settings.results)
        if winner:
            print(f"\nthe winner: {winner.run_id}\n{_command(winner, settings.results)}")
    return 0 if winner else 1


def _show(search: Halving, rounds: list[list[Run]], results: Path) -> None:
    """Print a table of each round that has all its results."""
    trees = [flat(run.plain()) for run in search.candidates]
    vary = [name for name in trees[0] if len({str(tree.get(name)) for tree in trees}) > 1 and name != "train.steps"]
    for number, (runs, (_, steps)) in enumerate(zip(rounds, search.plan, strict=False), start=1):
        best = ranked(runs, results)
        scores = [(run, f"{validation['accuracy']:.4f}") for run, validation in best]
        scores += [(run, "diverged") for run in runs if best and run not in dict(best)]
        rows = []
        for place, (run, score) in enumerate(scores):
            tree, goes_on = flat(run.plain()), number < len(rounds) and place < len(rounds[number])
            rows.append((score, run.run_id, *(f"{name} {tree.get(name)}" for name in vary), "goes on" * goes_on))
        columns(rows, title=f"\nround {number}: {steps:,} steps, validation accuracy")


def _command(run: Run, results: Path) -> str:
    """Return the command that makes this run, or shows it if it is there."""
    command, _ = reproduce(identity_of(run), lr=run.train.lr)
    words = ["--seed", str(run.seed), *(word for source in sources([run]) for word in ("--plugin", source))]
    words += [] if results == default_results() else ["--exec.results", str(results)]
    return f"{command} {shlex.join(words)}"
