"""A sweep of the literature as a script: its cells at one of three budgets, trained, tabled and drawn by one command.

    smoke   a seed of a rate, 20 steps of 8 strings: that everything works, and nothing else; under results/smoke/
    cpu     the protocol `xlstm_cpu`, or the study's own cut: what two cores carry
    full    the published protocol

    python scripts/xlstm_table.py --budget cpu        also: ladder plan scripts/xlstm_table.py; ladder sweep ..

What is done is not run again, so a study that was stopped goes on, and studies share the runs they have in common.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from harness.config import Exec, Run
from harness.options import parse
from harness.parts import replaced
from harness.protocols import grid
from harness.report_seeds import carry_out_and_report

Budget = Literal["smoke", "cpu", "full"]
Model = tuple[str, Mapping[str, Any]]  # its name and what differs from the protocol's

_SMOKE_TRAIN = {"steps": 20, "batch": 8}
_SMOKE_EVAL = {"test": 32, "validation": 16, "every": 10, "extrapolate": [], "extrapolation": 8}


def study_runs(
    budget: Budget,
    *,
    tasks: Iterable[tuple[str, Mapping[str, Any]] | str],
    models: Iterable[Model | str],
    full: str = "xlstm",
    train: Mapping[str, Any] | None = None,
    score: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Every rate and seed of every cell, the first seed of all cells first.

    `full` is the published protocol; `train` and `score` change settings of training and evaluation in all cells.
    """
    protocol = {"smoke": "quick", "cpu": "xlstm_cpu", "full": full}[budget]
    train, score = dict(train or {}), dict(score or {})
    if budget == "smoke":
        train, score = train | _SMOKE_TRAIN, score | _SMOKE_EVAL
    runs = []
    for model, of_model in map(_named, models):
        for task, of_task in map(_named, tasks):
            cell = grid(task, model, protocol=protocol)
            runs += [
                _changed(run, of_task, of_model, train, score) for run in (cell[:1] if budget == "smoke" else cell)
            ]
    return sorted(runs, key=lambda run: run.seed)


def _named(part: Model | str) -> Model:
    return (part, {}) if isinstance(part, str) else part


def _changed(
    run: Run, task: Mapping[str, Any], model: Mapping[str, Any], train: Mapping[str, Any], score: Mapping[str, Any]
) -> Run:
    return replace(
        run,
        task=replaced(run.task, dict(task), where="task"),
        model=replaced(run.model, dict(model), where="model"),
        train=replaced(run.train, dict(train), where="train"),
        eval=replaced(run.eval, dict(score), where="eval"),
    )


@dataclass
class StudyOptions:
    """Train what is missing of a study, write every table and figure of its results, and print the study's own."""

    budget: Budget = "cpu"
    """smoke: seconds a run; cpu: hours of two cores; full: the published protocol, for a GPU."""
    engine: Literal["serial", "ray"] = "serial"
    """ray: as many runs at once as this machine's cores or GPUs carry."""
    report_seeds: int = 0
    """When all is done: so many fresh seeds of each cell at its chosen rate, for the tables to show."""
    quiet: bool = False
    """Say only what fails."""
    json: bool = False
    """Print what became of the runs as JSON, in place of the table."""
    exec: Exec = field(default_factory=Exec)


def main(
    script: str,
    runs: Callable[[Budget], list[Run]],
    table: Callable[[Sequence[Run], Path], str],
    words: Sequence[str] | None = None,
) -> int:
    """What a study's script does when it is started; 2 says that the words were wrong, 1 that a run has no result."""
    prog = Path(script).name
    try:
        options = parse(StudyOptions, list(sys.argv[1:] if words is None else words), prog=prog)
        settings = replace(options.exec, wandb_group=options.exec.wandb_group or Path(script).stem)
        if options.budget == "smoke" and settings.results == Exec().results:
            settings = replace(settings, results=settings.results / "smoke")
        listed = runs(options.budget)
        report = carry_out_and_report(
            listed,
            settings,
            report_seeds=options.report_seeds,
            engine=options.engine,
            quiet=options.quiet,
            again="start the same script again",
        )
    except ValueError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if options.json:
        fates = {status: report.of(status) for status in ("diverged", "failed", "held")}
        print(json.dumps({"runs": report.runs, "done": report.done, **fates, "seconds": report.seconds}, indent=1))
    else:
        print(table(listed, settings.results), end="")
    return 0 if report.complete else 1


def published_tables(kind: str, *, against: str | None = None) -> Callable[[Sequence[Run], Path], str]:
    """Every table and figure of the results folder written anew, and the text of one kind of the study's own cells."""

    def write(runs: Sequence[Run], results: Path) -> str:
        from harness import curves, figures, table_kinds
        from harness.collect import collect
        from harness.outcome import labels

        records = collect(results)
        table_kinds.write_all(results, against=against)
        figures.write(records, results / "figures", curves=curves.collect(results), tell=lambda line: None)
        named = {tuple(labels(run)[name] for name in ("protocol", "task", "model")) for run in runs}
        own = [tuple(row) in named for row in records[["protocol", "task", "model"]].itertuples(index=False)]
        return table_kinds.table(records[own], kind, against=against).text("markdown")

    return write
