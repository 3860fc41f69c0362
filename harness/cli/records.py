"""Commands about results folders. None of them needs torch to look at a folder."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, count_of, counts_of, duration, print_json, short, size
from chomsky_ladder.harness.store import clean as cleaning
from chomsky_ladder.harness.store import slurm_jobs
from chomsky_ladder.harness.store import status as statuses
from chomsky_ladder.harness.store.folder import find_run, flat
from chomsky_ladder.harness.store.places import default_results, hint, refuse_published
from chomsky_ladder.harness.store.status import STATES, WITH_RESULT, RunStatus

_FEW = 20  # runs that are listed one by one without being asked for
_TITLES = {"unfinished": "unfinished: killed, or with their machine"}


@dataclass
class StatusOptions:
    """Count the runs that are done, running, preempted, failed, diverged and unfinished, and list those that are not
    done."""

    script: Positional[str] = ""
    """Show one sweep only, by its SCRIPT or a study's name, with the number of its runs that have not begun."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    all: bool = False
    """List every run."""
    json: bool = False
    """Print JSON."""


def status(words: list[str]) -> int:
    options = parse(StatusOptions, words, prog="ladder status")
    runs, listed, elsewhere = statuses.survey(options.results), _listed(options.script, options.results), 0
    try:
        elsewhere = 0 if listed else statuses.only_recorded(options.results, runs)
    except ValueError as damage:
        if not runs:
            raise
        print(f"ladder: {damage}", file=sys.stderr)
    runs = [run for run in runs if not listed or run.run_id in listed]
    if not runs and not elsewhere and not listed and not slurm_jobs.job_of_run(options.results):
        raise ValueError(f"no runs under {options.results}{hint(options.results)}")
    jobs = slurm_jobs.unfinished_jobs(options.results, {run.run_id for run in runs if run.state in WITH_RESULT}, listed)
    shown = [run for run in runs if options.all or run.state != "done"]
    cells = statuses.by_cell(runs)
    if options.json:
        tree = {
            "results": str(options.results),
            "counts": statuses.counts(runs),
            **({"not_begun": len(listed) - len(runs)} if listed else {"only_in_records": elsewhere}),
            "cells": [{"task": task, "model": model, "counts": found} for (task, model), found in cells.items()],
            "runs": [statuses.plain(run) for run in shown],
            **({"jobs": [slurm_jobs.plain(job) for job in jobs]} if jobs else {}),
        }
        print(json.dumps(tree, indent=1))
        return 0
    print(
        f"{options.results}: {count_of(len(runs), 'run')}: {counts_of(statuses.counts(runs))}" if runs else "no folders"
    )
    if elsewhere:
        print(f"{count_of(elsewhere, 'more run')} in records.csv alone")
    if listed:
        print(f"{options.script}: {count_of(len(listed), 'run')}, {len(listed) - len(runs)} of them not begun")
    if len(runs) > _FEW:
        columns(
            [(task, model, counts_of(found)) for (task, model), found in cells.items()], title="\nby task and model"
        )
    columns(
        [(job.job, job.state, f"{job.done} of {count_of(job.runs, 'run')} done", job.log) for job in jobs],
        title="\njobs of Slurm",
    )
    for state in (*STATES[1:], STATES[0]):
        _list_state(state, [run for run in shown if run.state == state], most=len(runs) if options.all else _FEW)
    return 0


def _listed(script: str, results: Path) -> set[str]:
    """Return the ids of the runs that a sweep's script lists; none without a script.

    A search lists the rounds known so far.
    """
    if not script:
        return set()
    from chomsky_ladder.harness.sweep.scripts import runs_of  # with torch

    return {run.run_id for run in runs_of(script, results)}


def _list_state(state: str, runs: Sequence[RunStatus], *, most: int) -> None:
    rows = [
        (
            run.run_id,
            f"step {run.step:,}" + (f" of {run.steps:,}" if run.steps is not None else ""),
            duration(run.seconds),
            f"validation {run.validation:.3f}" if run.validation is not None else "",
            "  ".join(filter(None, (run.where, " ".join(run.error.split())))),
        )
        for run in runs[:most]
    ]
    columns(rows, title=f"\n{_TITLES.get(state, state)}")
    if len(runs) > most:
        print(f"  .. and {len(runs) - most:,} more (--all)")


@dataclass
class CleanOptions:
    """Remove runs, or with --checkpoints only their checkpoints: those named by id and those in the states named.

    It lists them with their sizes and asks. A run that is being trained is never touched. Lines of records.csv stay,
    but for those that --records names.
    """

    run_ids: Positional[tuple[str, ...]] = ()
    """Runs, by their whole ids."""
    failed: bool = False
    """All that broke."""
    preempted: bool = False
    """All that a signal stopped; they would go on from their checkpoints."""
    unfinished: bool = False
    """All that were killed; they would go on from their checkpoints."""
    checkpoints: bool = False
    """Checkpoints only; without an id or a state, those of runs that are done or diverged."""
    records: tuple[str, ...] = ()
    """Lines of records.csv, by their runs' whole ids; one whose run is here comes back with the next table."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    yes: bool = False
    """Do not ask."""


def clean(words: list[str]) -> int:
    options = parse(CleanOptions, words, prog="ladder clean")
    states: list[cleaning.State] = [state for state in STATES if getattr(options, state, False)]
    if not states and not options.run_ids and not options.checkpoints and not options.records:
        raise ValueError(
            "say what to remove: a RUN_ID, --failed, --preempted, --unfinished, --checkpoints or --records"
        )
    refuse_published(options.results)
    if options.records:
        if states or options.run_ids or options.checkpoints:
            raise ValueError("--records removes lines of records.csv alone: remove runs with a second command")
        return _clean_lines(options)
    what: cleaning.What = "checkpoints" if options.checkpoints else "runs"
    targets = cleaning.targets(options.results, states=states, run_ids=options.run_ids, what=what)
    if not targets:
        print("nothing to remove")
        return 0
    columns([(target.run.run_id, target.run.state, size(target.bytes)) for target in targets])
    of_what = "the checkpoints of " if what == "checkpoints" else ""
    total = f"{of_what}{count_of(len(targets), 'run')}, {size(sum(target.bytes for target in targets))}"
    if not options.yes and not _agreed(total):
        return 1
    kept = {target.run.run_id: why for target in targets if (why := cleaning.remove(target))}
    for run_id, why in kept.items():
        print(f"ladder: {run_id} was kept: {why}", file=sys.stderr)
    freed = sum(target.bytes for target in targets if target.run.run_id not in kept)
    print(f"removed {of_what}{count_of(len(targets) - len(kept), 'run')}, {size(freed)}")
    return 1 if kept else 0


def _agreed(total: str) -> bool:
    """Ask a person, and return True for yes."""
    if not sys.stdin.isatty():
        raise ValueError(f"would remove {total}: nobody can be asked here, so confirm with --yes")
    print(f"remove {total}? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("nothing was removed")
        return False
    return True


def _clean_lines(options: CleanOptions) -> int:
    missing = cleaning.missing_lines(options.results, options.records)
    if missing:
        raise ValueError(f"{options.results / 'records.csv'} has no line of {missing[0]!r}")
    total = count_of(len(set(options.records)), "line") + " of records.csv"
    if not options.yes and not _agreed(total):
        return 1
    print(f"removed {count_of(cleaning.remove_lines(options.results, options.records), 'line')} of records.csv")
    return 0


@dataclass
class MergeOptions:
    """Take finished runs, and lines of records.csv, from other machines' results folders.

    Each run is verified first: its config hashes to its id, and result and checkpoints belong to it. Nothing here is
    overwritten. A run with other numbers there is reported, and the exit code is 1.
    """

    folders: Positional[tuple[Path, ...]] = ()
    """Results folders to take runs from."""
    results: Path = field(default_factory=default_results)
    """The folder to take runs into."""
    dry_run: bool = False
    """Verify and report. Write nothing."""


def merge(words: list[str]) -> int:
    options = parse(MergeOptions, words, prog="ladder merge")
    if not options.folders:
        raise ValueError("ladder merge needs the FOLDER to take runs from")
    from chomsky_ladder.harness.sweep import merge as merging  # with pandas

    merged = merging.merge(options.folders, options.results, dry_run=options.dry_run)
    would = "would take" if options.dry_run else "took"
    print(f"{would} {count_of(len(merged.taken), 'run')} and {count_of(len(merged.lines), 'line')} of records.csv")
    print(f"{len(merged.same):,} were here with the same numbers, {len(merged.unfinished):,} are unfinished there")
    for conflict in merged.conflicts:
        print(f"\n{conflict.run_id} has other numbers in {conflict.folder}; kept as it is here")
        rows = [(key, short(a), short(b)) for key, (a, b) in conflict.fields.items()]
        columns([("", "here", "there"), *rows[:_FEW]])
        if len(rows) > _FEW:
            print(f"  .. and {len(rows) - _FEW:,} more fields")
        columns([(key, short(conflict.here[key]), short(conflict.there[key])) for key in conflict.here], title="by")
    for run_id, why in merged.refused.items():
        print(f"ladder: {run_id} was not taken: {why}", file=sys.stderr)
    return 1 if merged.conflicts or merged.refused else 0


@dataclass
class DiffOptions:
    """Print the settings in which two runs differ."""

    a: Positional[str]
    """The first run, by its id or a unique part of it."""
    b: Positional[str]
    """The second run."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def diff(words: list[str]) -> int:
    options = parse(DiffOptions, words, prog="ladder diff")
    one, other = (flat(find_run(options.results, run_id).config()) for run_id in (options.a, options.b))
    changed = {key: [one.get(key), other.get(key)] for key in {**one, **other} if one.get(key) != other.get(key)}
    if options.json:
        return print_json(changed)
    columns([(key, json.dumps(a), json.dumps(b)) for key, (a, b) in changed.items()])
    if not changed:
        print("the same run")
    return 0
