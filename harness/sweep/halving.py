"""Successive halving: train all candidates briefly, the best of them longer, and so on to the last few.

    halving(candidates, steps=(250, 1000, 4000), keep=1/3)   9 runs of 250 steps, 3 of 1,000, 1 of 4,000

A round is a plain list of runs, so any engine trains it, and it resumes like any other sweep. Which candidates go on
follows from the results of the round alone. So a search that was stopped anywhere ends like one that never was. A run
of other steps is another run, since the schedule of its learning rate depends on them: each round trains from scratch.

Jamieson and Talwalkar, arXiv:1502.07943.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.report_seeds import refuse
from chomsky_ladder.harness.sweep.sweep import Report, carry_out

_LUCK = 0.1  # scaled accuracy that the best of several runs at chance seldom reaches


@dataclass(frozen=True)
class Halving:
    """A search whose rounds have fewer runs and more steps each."""

    candidates: tuple[Run, ...]
    steps: tuple[int, ...]
    """Steps of a run in each round."""
    keep: float
    """Share of a round that goes on."""

    @property
    def plan(self) -> list[tuple[int, int]]:
        """Return the runs and the steps of each round. There are fewer runs if not enough of a round finish."""
        size, pairs = len(self.candidates), []
        for steps in self.steps:
            pairs.append((size, steps))
            size = max(1, round(self.keep * size))
        return pairs

    @property
    def budget(self) -> str:
        """Return the runs and steps of the search, and the steps of training every candidate to the end."""
        (size, steps), *later = self.plan
        rounds = ", ".join([f"{size} runs of {steps:,} steps", *(f"{runs} of {steps:,}" for runs, steps in later)])
        runs, total = sum(runs for runs, _ in self.plan), sum(runs * steps for runs, steps in self.plan)
        most = "at most " if any(run.train.stop_after for run in self.candidates) else ""
        full = f"all {size} at {self.steps[-1]:,} steps would take {size * self.steps[-1]:,}"
        return f"{len(self.plan)} rounds: {rounds}\n{runs} runs and {most}{total:,} steps in all; {full}"

    def rounds(self, results: Path) -> list[list[Run]]:
        """Return the rounds that are known so far: the first, and each whose preceding round has all its results."""
        found = [_at(self.candidates, self.steps[0])]
        for size, steps in self.plan[1:]:
            if not (going_on := ranked(found[-1], results)[:size]):
                break
            found.append(_at([run for run, _ in going_on], steps))
        return found

    def foreseen(self, results: Path) -> list[Run]:
        """Return the known rounds and a guess at the others, for a plan: the first runs of the last round go on."""
        rounds = self.rounds(results)
        for size, steps in self.plan[len(rounds) :]:
            rounds.append(_at(rounds[-1][:size], steps))
        return [run for runs in rounds for run in runs]


def halving(candidates: Sequence[Run], *, steps: Sequence[int], keep: float = 1 / 3) -> Halving:
    """Return a search for the best of some runs, whose own number of steps does not count.

    Each round trains its runs for the next number of `steps` and keeps this share of them, at least one. Validation
    accuracy decides, and among equals the order of the run ids. A run that diverges does not go on.
    """
    require(len(candidates) > 1, f"halving takes several candidates, not {len(candidates)}")
    require(all(isinstance(run, Run) for run in candidates), "halving takes a list of runs, such as random_search's")
    rises = len(steps) > 1 and all(low < high for low, high in pairwise(steps))
    require(rises, f"steps of halving are two numbers or more that rise, not {tuple(steps)}")
    require(0 < keep < 1, f"keep is the share of a round that goes on, between 0 and 1, not {keep}")
    refuse(candidates, 1)  # seeds that choose nothing
    alike = {(without_training_targets(run.task), run.eval) for run in candidates}
    require(len(alike) == 1, "halving compares accuracies: its candidates need one task and equal settings of eval")
    for number in steps:
        ids = [run.run_id for run in _at(candidates, number)]
        twice = next((name for name in ids if ids.count(name) > 1), None)
        require(twice is None, f"two candidates of halving differ in nothing but train.steps: {twice}")
    return Halving(tuple(candidates), tuple(steps), keep)


def ranked(runs: Sequence[Run], results: Path) -> list[tuple[Run, dict[str, Any]]]:
    """Return the finished runs of a round with their validation scores, best first; none before all have a result."""
    found = [RunFolder(results, run.run_id).result() for run in runs]
    if not all(found):
        return []
    done = [(run, tree["validation"]) for run, tree in zip(runs, found, strict=True) if tree and "validation" in tree]
    return sorted(done, key=lambda pair: (-pair[1]["accuracy"], pair[0].run_id))


def carry_out_search(search: Halving, settings: Exec, *, engine: Any, quiet: bool, again: str) -> Report:
    """Train the rounds one after the other, until one has no run that can go on."""
    report = Report(0, 0)
    for place, (_, steps) in enumerate(search.plan):
        if not quiet:
            print(f"round {place + 1} of {len(search.plan)}: {steps:,} steps", file=sys.stderr)
        runs = search.rounds(settings.results)[place]
        report = report.and_then(carry_out(runs, settings, engine=engine, quiet=quiet, again=again))
        best = ranked(runs, settings.results)
        if not best:
            why = "all its runs diverged" if report.complete else "it has runs without a result"
            print(f"the search ends with round {place + 1}: {why}", file=sys.stderr)
            return report.and_then(Report(sum(size for size, _ in search.plan[place + 1 :]), 0))
        if best[0][1]["scaled"] < _LUCK and not quiet:
            luck = "is above chance, so its order is luck: give it more steps"
            print(f"no run of round {place + 1} {luck}", file=sys.stderr)
    return report


def _at(runs: Sequence[Run], steps: int) -> list[Run]:
    return [replace(run, train=replace(run.train, steps=steps)) for run in runs]
