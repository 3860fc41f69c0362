"""Many runs, one after the other: what is done is skipped, what is half done goes on, what breaks stops no other.

Any number of processes may sweep the same list at once: a run that another one holds is left to it and looked at again
at the end, so two processes share the work of two cores.
"""

import sys
from collections.abc import Sequence
from typing import Any

from harness.config import Exec, Run
from harness.machine import find_device
from harness.records import Busy, RunFolder
from harness.train import RunFailed, execute


def sweep(runs: Sequence[Run], settings: Exec | None = None, *, quiet: bool = False) -> list[dict[str, Any] | None]:
    """Every run's result in the order given; None for one that failed (its folder says why) or is held elsewhere."""
    settings = settings or Exec()
    find_device(settings.device)
    ids = [run.run_id for run in runs]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a sweep names a run twice: {next(i for i in ids if ids.count(i) > 1)}")
    results = {run.run_id: RunFolder(settings.results, run.run_id).result() for run in runs}
    todo = [run for run in runs if results[run.run_id] is None]
    if not quiet:
        print(f"{len(runs)} runs: {len(runs) - len(todo)} done, {len(todo)} to do", file=sys.stderr)
    held: list[Run] = []
    for number, run in enumerate(todo, start=1):
        results[run.run_id] = RunFolder(settings.results, run.run_id).result()  # another process may have done it
        if results[run.run_id] is not None:
            continue
        try:
            results[run.run_id] = execute(run, settings, quiet=quiet, label=f"[{number}/{len(todo)}] {run.run_id}")
        except Busy:
            held.append(run)
        except RunFailed as failed:  # recorded in the run's folder; the others go on
            print(failed, file=sys.stderr)
    for run in held:
        results[run.run_id] = RunFolder(settings.results, run.run_id).result()
    return [results[run_id] for run_id in ids]
