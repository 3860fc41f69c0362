"""`ladder wandb`: runs and tables copied to Weights & Biases from the records, and a Report about them."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.cli.help import print_help
from chomsky_ladder.harness.cli.options import name_first, parse
from chomsky_ladder.harness.cli.track import TrackOptions, copy_runs
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.tracking.card import line
from chomsky_ladder.harness.tracking.tracker import find_tracker
from chomsky_ladder.harness.tracking.trackers import wandb as tracking

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class SyncOptions(TrackOptions):
    """Copy runs to W&B. For a run that is there already, only what is new is sent."""

    tables: bool = False
    """Also copy records.csv and tables/*.csv, as tables and as an artifact."""


@dataclass
class ReportOptions:
    """Publish a W&B Report: each protocol's table and learning curves, and the provenance."""

    results: Path = field(default_factory=default_results)
    """The folder of runs/ and records.csv."""
    title: str = "Chomsky Ladder"
    """Title of the report."""
    entity: str = ""
    """Owner of the report; without it $WANDB_ENTITY, else the owner of the key."""
    draft: bool = False
    """Save it as a draft that only its author sees."""


def wandb(words: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {"sync": _sync, "report": _report}
    words = list(words)
    name = name_first(words, f"ladder wandb needs one of {', '.join(commands)}", helped=_help)
    if name not in commands:
        raise ValueError(f"no such command: wandb {name}; there are {', '.join(commands)}")
    os.environ.setdefault("WANDB_SILENT", "true")  # what there is to say is said here
    try:
        return commands[name](words)
    finally:
        tracking.finished()


def _help() -> None:
    for options, prog in ((SyncOptions, "ladder wandb sync"), (ReportOptions, "ladder wandb report")):
        print_help(options, prog)
    raise SystemExit(0)


def _sync(words: list[str]) -> int:
    options = parse(SyncOptions, words, prog="ladder wandb sync")

    def tables() -> str:
        return f"tables: {', '.join(tracking.sync_tables(options.results, mode=options.mode))}"

    return copy_runs(find_tracker("wandb"), options, more=tables if options.tables else None)


def _report(words: list[str]) -> int:
    options = parse(ReportOptions, words, prog="ladder wandb report")
    try:
        import wandb_workspaces.reports.v2 as reports
    except ImportError as error:
        raise ValueError(f"a W&B Report needs pip install 'chomsky-ladder[reports]' ({error})") from None
    from chomsky_ladder.harness.store.record import collect  # with pandas

    records = collect(options.results)
    try:
        project = os.environ.get("WANDB_PROJECT") or tracking.PROJECT
        entity = options.entity or os.environ.get("WANDB_ENTITY") or tracking.own_entity()
        report = reports.Report(
            entity=entity,
            project=project,
            title=options.title,
            description="How far up the Chomsky hierarchy each architecture climbs, and what it costs.",
            blocks=blocks(reports, records, entity=entity, project=project),
            width="fluid",
        )
        print(report.save(draft=options.draft).url)
    except Exception as error:  # wandb's, of any class
        print(f"ladder: no report: {line(error)}", file=sys.stderr)
        return 1
    return 0


def blocks(reports: Any, records: "pd.DataFrame", *, entity: str, project: str) -> list[Any]:
    """Contents, a section for each protocol as tables label them, and provenance."""
    made = [reports.TableOfContents()]
    for protocol, some in records.groupby("protocol", sort=True):
        made += _section(reports, str(protocol), some, entity=entity, project=project)
    return [*made, reports.H1(text="Provenance"), reports.MarkdownBlock(text=_provenance(records))]


def _section(reports: Any, protocol: str, records: "pd.DataFrame", *, entity: str, project: str) -> list[Any]:
    from chomsky_ladder.harness.stats.cells import cells
    from chomsky_ladder.harness.tables.write import markdown

    runset = reports.Runset(
        entity=entity,
        project=project,
        name=protocol,
        filters=f'Config("protocol_label") == "{_spelled_out(protocol)}"',
        groupby=["config.task_label", "config.model_label"],
    )
    x = "step"
    panels = [
        reports.LinePlot(title="Validation accuracy", x=x, y=["validation"], layout=reports.Layout(w=12, h=8)),
        reports.LinePlot(
            title="Training loss", x=x, y=["loss"], log_y=True, layout=reports.Layout(x=12, y=0, w=12, h=8)
        ),
    ]
    return [
        reports.H1(text=protocol),
        reports.MarkdownBlock(text=markdown(cells(records))),
        reports.H2(text="Learning curves"),
        reports.PanelGrid(runsets=[runset], panels=panels),
    ]


def _spelled_out(text: str) -> str:
    """Return a value for a filter: wandb-workspaces parses it as Python, but doubles every = in it first."""
    return "".join(letter if letter.isalnum() else f"\\U{ord(letter):08x}" for letter in text)


def _provenance(records: "pd.DataFrame") -> str:
    """Return what the records were made with, each with its number of runs."""
    lines = [f"{len(records)} runs: " + _counted(records["status"])]
    lines += [f"- {name}: {_counted(records[name])}" for name in ("commit", "device", "torch", "backends")]
    dirty = int(records["dirty"].eq(True).sum())
    lines += [f"- {dirty} of them ran code that differed from its commit"] if dirty else []
    return "\n".join(lines)


def _counted(column: "pd.Series") -> str:
    counts = column[column.ne("")].value_counts().sort_index()
    return ", ".join(f"{value} ({count})" for value, count in counts.items()) or "unknown"
