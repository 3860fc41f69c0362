"""Many runs: what is done is skipped, what is half done goes on, what breaks stops no other.

Runs that may train as one are put into packs where that pays (harness/plan.py). Any number of processes may sweep the
same list at once: a run that another one holds is left to it and looked at again at the end, so two processes share
the work of two cores.
"""

import sys
from collections.abc import Sequence
from typing import Any

from harness.config import Exec, Run
from harness.plan import pack_size, packs
from harness.records import Busy, RunFolder
from harness.train import RunFailed, execute_together


def sweep(runs: Sequence[Run], settings: Exec | None = None, *, quiet: bool = False) -> list[dict[str, Any] | None]:
    """Every run's result in the order given; None for one that failed (its folder says why) or is held elsewhere."""
    settings = settings or Exec()
    results = finished(runs, settings)
    todo = [run for run in runs if results[run.run_id] is None]
    groups = packs(todo, size=pack_size(settings))
    if not quiet:
        together = f", in {len(groups)} packs" if len(groups) < len(todo) else ""
        print(f"{len(runs)} runs: {len(runs) - len(todo)} done, {len(todo)} to do{together}", file=sys.stderr)
    for number, group in enumerate(groups, start=1):
        left = [run for run in group if RunFolder(settings.results, run.run_id).result() is None]
        name = left[0].run_id if len(left) == 1 else f"{len(left)} of {group[0].task.name} {group[0].model.name}"
        if not left:  # another process has done it
            continue
        for outcome in execute_together(left, settings, quiet=quiet, label=f"[{number}/{len(groups)}] {name}"):
            if isinstance(outcome, RunFailed):  # recorded in the run's folder; the others go on
                print(outcome, file=sys.stderr)
            assert isinstance(outcome, dict | RunFailed | Busy)
    return [RunFolder(settings.results, run.run_id).result() for run in runs]


def finished(runs: Sequence[Run], settings: Exec) -> dict[str, dict[str, Any] | None]:
    """The results there are, by id; a list that names a run twice is refused."""
    ids = [run.run_id for run in runs]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a sweep names a run twice: {next(i for i in ids if ids.count(i) > 1)}")
    return {run_id: RunFolder(settings.results, run_id).result() for run_id in ids}
