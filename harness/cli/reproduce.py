"""`ladder reproduce`: a recorded run trained and scored again, and whether its numbers came out.

ladder reproduce parity-lstm-s0-a05b976add --plan     what the record says it took
ladder reproduce parity-lstm-s0-a05b976add            same bits | same within numerics | differs
"""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, duration, print_json
from chomsky_ladder.harness.store.places import default_results, published_results, refuse_published


@dataclass
class ReproduceOptions:
    """Train and score a recorded run again, on the kernels it used, and compare every number of its record.

    A line of records.csv is enough. Exit code 0: the same bits, or the same within what another device, torch, kernel
    or code explains. 1: numbers differ. 2: this code cannot make the run any more.
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    results: Path | None = None
    """The folder with its record; without it your own, then the published one."""
    keep: Path | None = None
    """Train in this results folder and keep the run there, to look into it or to go on after a stop."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    plan: bool = False
    """Print the time the recorded run took, and where. Train nothing."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """Print no progress."""


def reproduce(words: list[str]) -> int:
    if not words:
        raise ValueError("ladder reproduce needs a RUN_ID (`ladder status`, or the lines of records.csv, have them)")
    options = parse(ReproduceOptions, words, prog="ladder reproduce")
    from chomsky_ladder.harness.store.record import find_record  # with pandas

    usual = dict.fromkeys((default_results(), published_results() or default_results()))
    source, record = find_record([options.results] if options.results else list(usual), options.run_id)
    if record.status == "failed":
        raise ValueError(f"{record.run_id} failed, so there is nothing to reproduce: {record.error}")
    if options.plan:
        return _say_plan(source, record, as_json=options.json)
    if options.keep:
        refuse_published(options.keep, otherwise="--keep takes a folder of your own")
        if (options.keep / "runs" / record.run_id / "result.json").exists():
            raise ValueError(f"--keep: {options.keep} has the run already, so it would not be made again")
    return _carried_out(source, record, options)


def _carried_out(source: Path, record: Any, options: ReproduceOptions) -> int:
    from chomsky_ladder.harness.config.recorded import rebuilt  # with torch
    from chomsky_ladder.harness.store.files import read_json
    from chomsky_ladder.harness.store.folder import Busy
    from chomsky_ladder.harness.train import reproduce as reproducing
    from chomsky_ladder.harness.train.distributed import launched
    from chomsky_ladder.harness.train.loop import RunFailed
    from chomsky_ladder.harness.train.machine import find_device
    from chomsky_ladder.harness.train.progress import GOES_ON

    if launched() > 1:
        raise ValueError("torchrun is for `ladder run`: a run is reproduced by one process")
    run = rebuilt(record, read_json(source / "runs" / record.run_id / "config.json"))
    apart = reproducing.told_apart(record, find_device(options.device))
    if not options.quiet:
        lines = _about(source, record)
        lines += [f"another {name}: {then} then, {now} here" for name, (then, now) in apart.items()]
        lines += [f"pinned to {' '.join(reproducing.kernels_of(record)) or 'plain torch'}"]
        print("\n".join(lines), file=sys.stderr)
    with nullcontext(options.keep) if options.keep else TemporaryDirectory(prefix="ladder-reproduce-") as place:
        stopping = GOES_ON if options.keep else "what is stopped is lost, unless --keep FOLDER says where it is kept"
        settings = reproducing.settings_of(record, source, results=Path(place), device=options.device)
        try:
            found = reproducing.again(record, run, source, settings, quiet=options.quiet, stopping=stopping)
        except Busy as busy:
            raise ValueError(str(busy)) from None
        except RunFailed as failed:
            print(f"ladder: {failed}", file=sys.stderr)
            return 1
    if options.json:
        print_json({"run_id": record.run_id, "record": str(source), **found.plain()})
    else:
        _say(record.run_id, found)
    return 1 if found.verdict == "differs" else 0


def _about(source: Path, record: Any) -> list[str]:
    """Describe the recorded run and the time it took."""
    spent = [
        f"{duration(seconds)} of {what}"
        for seconds, what in ((record.train_seconds, "training"), (record.score_seconds, "scoring"))
        if seconds is not None
    ]
    code = f"commit {record.commit[:12]}{' and changes' if record.dirty else ''}"
    return [
        f"{record.run_id}: {record.steps:,} steps took {' and '.join(spent) or 'a time that is not recorded'}",
        f"recorded in {source} on {record.device or 'an unknown device'}, torch {record.torch or 'unknown'}, {code}, "
        f"kernels {record.backends or 'none: plain torch'}",
    ]


def _say_plan(source: Path, record: Any, *, as_json: bool) -> int:
    if as_json:
        names = ("run_id", "steps", "train_seconds", "score_seconds", "device", "torch", "backends", "commit", "dirty")
        return print_json({**{name: getattr(record, name) for name in names}, "record": str(source)})
    print("\n".join(_about(source, record)))
    return 0


def _say(run_id: str, found: Any) -> None:
    equal = found.numbers - len(found.unequal)
    print(f"{run_id}: {found.verdict}: {equal} of {found.numbers} numbers are equal to the last bit")
    if found.verdict == "same within numerics":
        limits = found.plain()["tolerance"]
        print(
            f"the others are within numerics: accuracies within {limits['accuracy']}, those of single lengths "
            f"within {limits['bin']}, the loss within "
            f"{limits['loss']} or {limits['loss_share']:.0%}"
        )
    named = found.beyond if found.verdict == "differs" else list(found.unequal)
    rows = [(name, *map(_number, found.unequal[name])) for name in named[:20]]
    columns([("", "then", "now"), *rows] if rows else [])
    if len(named) > 20:
        print(f"  .. and {len(named) - 20} more")
    columns([(name, *map(str, pair)) for name, pair in found.numerics.items()], title="made with (then, now)")
    if found.verdict == "differs" and not found.numerics:
        print("nothing that is recorded of device, torch, kernels and code explains it")


def _number(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
