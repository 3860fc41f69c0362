"""Commands about many runs."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.cli.engines import parse_with_engine
from chomsky_ladder.harness.cli.options import name_first
from chomsky_ladder.harness.cli.say import count_of
from chomsky_ladder.harness.cli.search import refuse_for_search, sweep_search
from chomsky_ladder.harness.cli.track import say_where
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.colours import in_colour
from chomsky_ladder.harness.store.places import default_results, refuse_published
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.sweep.engines.base import Engine, engine_of
from chomsky_ladder.harness.sweep.halving import Halving
from chomsky_ladder.harness.sweep.plan import Packing, Part, pack_size, packing, plan, save
from chomsky_ladder.harness.sweep.report_seeds import carry_out_and_report
from chomsky_ladder.harness.sweep.scripts import work_of
from chomsky_ladder.harness.sweep.sources import sources
from chomsky_ladder.harness.sweep.sweep import diverged, shard, up_to
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.train.machine import find_device

_WORTH_IT = 1.15  # times as fast, for a plan to speak of packs


@dataclass
class PlanOptions:
    """Estimate the hours of a sweep from a few measured steps of each shape, and list its packs."""

    exec: Exec = field(default_factory=Exec)
    engine: str = "serial"
    """The engine that will train it, with its options as for `ladder sweep`. It decides how many packs run at once."""
    shard: str = ""
    """i/n: the i-th of n parts of the sweep."""
    json: bool = False
    """Print JSON."""


def plan_sweep(words: list[str]) -> int:
    script = name_first(
        words,
        "ladder plan needs a SCRIPT: a Python file with a function runs() or search()",
        helped=lambda: parse_with_engine(PlanOptions, words, prog="ladder plan SCRIPT"),
    )
    options, engine = parse_with_engine(PlanOptions, words, prog=f"ladder plan {script}")
    refuse_published(options.exec.results)  # before anything is measured
    work = work_of(script)
    if isinstance(work, Halving):
        refuse_for_search(shard=options.shard)
        runs = work.foreseen(options.exec.results)
    else:
        runs = shard(work, options.shard, options.exec)
    chosen, own = engine_of(engine)
    parts = plan(runs, options.exec, size=chosen.pack_size(options.exec, own, pack_size(options.exec)))
    save(parts, options.exec.results)
    left = sum(len(part.runs) for part in parts)
    hours = sum(part.seconds + part.preparing for part in parts) / 3600
    tried = packing(parts, options.exec) if chosen.name == "serial" else []
    workers, where = _workers(options, chosen, own, len(parts))
    if options.json:
        tree = {"runs": len(runs), "done": len(runs) - left, "hours": hours, "workers": workers}
        tree |= {"search": work.plan} if isinstance(work, Halving) else {}
        tree |= {"parts": [_plain(part) for part in parts], "packing": [asdict(one) for one in tried]}
        print(json.dumps(tree, indent=1))
        return 0
    if isinstance(work, Halving):
        print(work.budget)
    of = f"{count_of(len(runs), 'run')} of {', '.join(dict.fromkeys(run.protocol for run in runs))}"
    print(f"{of}: {len(runs) - left} finished, {left} to do in {count_of(len(parts), 'pack')}")
    for line in _lines(parts):
        print(line)
    word = up_to([run for part in parts for run in part.runs])
    several = f"; {where} {word} {_duration(hours / workers)}" if workers > 1 else ""
    print(f"expected: {word} {_duration(hours)} one after the other{several}")
    for line in _of_packing(tried):
        print(line)
    if left and not chosen.is_here(own):
        print("steps were timed on this machine, those of the cluster may be others")
    return 0


def _workers(options: PlanOptions, engine: Engine, own: Any, packs: int) -> tuple[int, str]:
    """Return how many packs will train at once, and on what: those of the engine, or of this machine."""
    if engine.name == "serial":
        workers, of_what = _at_once(options.exec, packs)
        return workers, f"on {workers} {of_what} at once"
    if not packs:
        return 1, ""
    with engine.open(options.exec, own) as crew:
        return min(crew.workers, packs), f"by {engine.name} on {crew.workers} workers"


def _at_once(settings: Exec, packs: int) -> tuple[int, str]:
    """Return how many packs run at once here, and on what: a GPU takes one at a time, however many cores there are."""
    device = find_device(settings.device)
    if device.type == "cuda":
        return min(torch.cuda.device_count() if device.index is None else 1, max(1, packs)), "GPUs"
    return min(max(1, (os.cpu_count() or 1) // settings.threads), max(1, packs)), "cores"


@dataclass
class SweepOptions:
    """Train the runs that a script's runs() lists and that are not done yet. Half-done runs go on.

    A script with search() in place of runs() trains round by round, and ends with a winner.

    Exit code 0: every run has a result (a diverged run counts). 1: some have none.
    """

    exec: Exec = field(default_factory=Exec)
    engine: str = "serial"
    """serial, processes (several packs at once here), slurm or ray (a cluster), or a plugin's; `--engine slurm
    --help`."""
    shard: str = ""
    """i/n: the i-th of n parts of the sweep, for one machine of several."""
    report_seeds: int = 0
    """Then train this many fresh seeds of each cell at the learning rate that validation chose. Tables show these in
    their place."""
    recorded: bool = False
    """Count runs as done that have a line in records.csv and no folder, such as after `ladder merge`."""
    quiet: bool = False
    """Print only failures."""
    json: bool = False
    """Print JSON at the end."""


def sweep_script(words: list[str]) -> int:
    given = list(words)
    script = name_first(
        words,
        "ladder sweep needs a SCRIPT: a Python file with a function runs() or search()",
        helped=lambda: parse_with_engine(SweepOptions, words, prog="ladder sweep SCRIPT"),
    )
    options, engine = parse_with_engine(SweepOptions, words, prog=f"ladder sweep {script}")
    if options.report_seeds and options.shard:
        raise ValueError("--report-seeds needs the whole sweep's validation: give it once every shard is done")
    work = work_of(script)
    runs = list(work.candidates) if isinstance(work, Halving) else work
    settings = replace(options.exec, wandb_group=options.exec.wandb_group or Path(script).stem)
    again = shlex.join(["ladder", "sweep", *given, *_plugins(runs, script)])
    if isinstance(work, Halving):
        refuse_for_search(shard=options.shard, report_seeds=options.report_seeds, recorded=options.recorded)
        return sweep_search(work, settings, engine=engine, quiet=options.quiet, again=again, as_json=options.json)
    runs = shard(runs, options.shard, settings)
    report = carry_out_and_report(
        runs,
        settings,
        report_seeds=options.report_seeds,
        recorded=options.recorded,
        engine=engine,
        quiet=options.quiet,
        again=again,
    )
    if options.json:
        apart = diverged(runs, settings.results)
        tree = {
            "runs": report.runs,
            "done": report.done - len(apart),
            "complete": report.complete,
            "diverged": apart,
            **{status: report.of(status) for status in ("failed", "held")},
            "seconds": report.seconds,
        }
        print(json.dumps(tree, indent=1))
    elif not options.quiet and not options.shard:
        _shown(runs, settings.results)
    if not options.quiet:
        say_where(settings)
    return 0 if report.complete else 1


def _shown(runs: Sequence[Run], results: Path) -> None:
    """Print the table of what is done of a sweep, and the command that shows more."""
    records = collect(results)
    own = records[records["run_id"].isin([run.run_id for run in runs]) & (records["status"] == "done")]
    if own.empty:
        return
    try:
        print(tables.text(tables.table(own, "accuracy"), "text", colour=in_colour(sys.stdout)))
    except ValueError as refused:  # the runs are done all the same
        print(f"no table of them: {refused}", file=sys.stderr)
    elsewhere = [] if results == default_results() else ["--results", str(results)]
    for command in ("table", "figures", "page"):
        print(shlex.join(["ladder", command, *elsewhere]))


def _plugins(runs: Sequence[Run], script: str) -> list[str]:
    """Return the options that load what the runs need beside their script."""
    needed = [source for source in sources(runs) if source not in (Path(script).stem, str(Path(script).resolve()))]
    return [word for source in needed for word in ("--plugin", source)]


def _lines(parts: list[Part]) -> list[str]:
    """Return a line for each task and model, not for each pack."""
    rows: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        rows.setdefault((part.runs[0].task.name, part.runs[0].model.name), []).append(part)
    lines = []
    for (task, model), some in rows.items():
        count = sum(len(part.runs) for part in some)
        sizes = sorted({len(part.runs) for part in some}, reverse=True)
        hours = sum(part.seconds + part.preparing for part in some) / 3600
        packed = f" in packs of {', '.join(map(str, sizes))}" if sizes != [1] else ""
        steps = " ".join(f"{ms:.2f}" for ms in sorted({part.step_ms for part in some}))
        of = "run " if count == 1 else "runs"
        lines.append(f"  {task:22} {model:16} {count:4} {of}{packed}  {steps} ms a step  {_duration(hours)}")
    return lines


def _of_packing(tried: list[Packing]) -> list[str]:
    """Say whether packs are worth asking for, where none are made by default."""
    if not tried:
        return []
    told = ", ".join(
        f"{one.model} {one.gain:.1f} times as fast in packs of {one.size}"
        for one in sorted(tried, key=lambda one: -one.gain)
    )
    size = max(one.size for one in tried)
    if max(one.gain for one in tried) < _WORTH_IT:
        return [f"each run trains alone: packs gain too little on this CPU ({told})"]
    return [
        f"each run trains alone; --exec.pack {size} takes seeds and rates as one: {told}",
        "(a run rounds otherwise in a pack than alone, so that its last bits are not the same)",
    ]


def _plain(part: Part) -> dict[str, object]:
    return {
        "task": part.runs[0].task.name,
        "model": part.runs[0].model.name,
        "runs": [run.run_id for run in part.runs],
        "step_ms": part.step_ms,
        "seconds": part.seconds,
        "preparing": part.preparing,
    }


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{60 * hours:.1f} min" if hours * 60 >= 1 else f"{3600 * hours:.0f} s"
