"""`ladder study`: a sweep of the literature by its name; what its script does, too: train, table, draw."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chomsky_ladder.harness.cli.engines import parse_with_engine
from chomsky_ladder.harness.cli.options import asks_for_help
from chomsky_ladder.harness.cli.say import columns
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.report_seeds import carry_out_and_report
from chomsky_ladder.harness.sweep.studies import find_study, studies
from chomsky_ladder.harness.sweep.study import Budget
from chomsky_ladder.harness.sweep.sweep import diverged


@dataclass
class StudyOptions:
    """Train the missing runs of a study, write all tables and figures of its results, and print the study's table.

    `ladder study` without a NAME lists the studies.
    """

    budget: Budget = "cpu"
    """smoke: seconds for each run. cpu: hours of two cores. gpu: 20,000 steps, hours of a GPU. full: as published."""
    engine: str = "serial"
    """ray runs as many at once as this machine's cores or GPUs can carry."""
    report_seeds: int = 0
    """Then train this many fresh seeds of each cell at its chosen learning rate. Tables show these in their place."""
    recorded: bool = False
    """Count runs as done that have a line in records.csv and no folder, such as after `ladder merge`."""
    quiet: bool = False
    """Print only failures."""
    json: bool = False
    """Print the state of the runs as JSON, in place of the table."""
    exec: Exec = field(default_factory=Exec)


def study(words: list[str]) -> int:
    if asks_for_help(words[:1]):
        parse_with_engine(StudyOptions, words, prog="ladder study NAME")
    if not words or words[0].startswith("-"):
        print("ladder study NAME [--budget smoke|cpu|gpu|full] [--help for every option]")
        columns(list(studies().items()))
        return 2 if words else 0
    name = words.pop(0)
    found = find_study(name)
    return main(f"{name}.py", found.runs, found.table, words, command=f"ladder study {name}")


def main(
    script: str,
    runs: Callable[[Budget], list[Run]],
    table: Callable[[Sequence[Run], Path], str],
    words: Sequence[str] | None = None,
    *,
    command: str = "",
) -> int:
    """Run a study's script; 2 means that the words were wrong, 1 that a run has no result."""
    prog, given = command or Path(script).name, list(sys.argv[1:] if words is None else words)
    try:
        options, engine = parse_with_engine(StudyOptions, given, prog=prog)
        settings = replace(options.exec, wandb_group=options.exec.wandb_group or Path(script).stem)
        if options.budget == "smoke" and settings.results == Exec().results:
            settings = replace(settings, results=settings.results / "smoke")
        listed = runs(options.budget)
        report = carry_out_and_report(
            listed,
            settings,
            report_seeds=options.report_seeds,
            recorded=options.recorded,
            engine=engine,
            quiet=options.quiet,
            again=shlex.join([*(command.split() or ["python", script]), *given]),
        )
    except ValueError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if options.json:
        apart = diverged(listed, settings.results)
        fates = {"diverged": apart, **{status: report.of(status) for status in ("failed", "held")}}
        print(
            json.dumps(
                {"runs": report.runs, "done": report.done - len(apart), **fates, "seconds": report.seconds}, indent=1
            )
        )
    else:
        print(table(listed, settings.results), end="")
    return 0 if report.complete else 1
