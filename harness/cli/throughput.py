"""`ladder throughput`: what architectures cost on this machine, as tables and figures, or made anew from a report."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.cli.options import parse, take
from chomsky_ladder.harness.store.places import default_results, refuse_no_folder, refuse_published
from chomsky_ladder.harness.throughput.grid import Grid

if TYPE_CHECKING:
    from chomsky_ladder.harness.throughput.bench import Row
    from chomsky_ladder.harness.throughput.measure import Meter

    Peers = Callable[[Meter], Iterable[Row]]


@dataclass
class ThroughputOptions:
    """Time training, prefill and decoding of models. Write the report, and tables and figures from it."""

    models: tuple[str, ...] = ()
    """Names of models; all without it."""
    device: str = "auto"
    """cpu, cuda or cuda:N."""
    out: Path | None = None
    """The folder to write to; without it throughput/cpu or throughput/cuda of the results."""
    results: Path = field(default_factory=default_results)
    """The folder of records.csv, for accuracy against throughput."""
    report: tuple[Path, ...] = ()
    """Measure nothing, and make tables and figures from these report.json files of one machine and grid. Reports of
    other models are joined. Reports of the same models are pooled, and percentiles span them all."""
    against: Path | None = None
    """Compare with this report.json of the same grid: count the points whose percentiles overlap."""
    json: bool = False
    """Print the report as JSON."""


def throughput(words: list[str], peers: "Peers | None" = None) -> int:
    if {"--help", "-h"} & set(words):
        _parsed(words, "cuda" if device_of(words).startswith("cuda") else "cpu")  # prints, and ends the process
    from chomsky_ladder.harness.tables.formats import markdown
    from chomsky_ladder.harness.throughput import reports  # with torch
    from chomsky_ladder.harness.throughput.join import joined
    from chomsky_ladder.harness.throughput.measure import Meter
    from chomsky_ladder.harness.throughput.table import sheets
    from chomsky_ladder.harness.train.machine import find_device, pinned

    device = find_device(device_of(words))
    options: Any = _parsed(words, device.type)  # with the grid of this kind of device
    out = options.out or options.results / "throughput" / device.type
    refuse_published(out, otherwise="say where to write with --out FOLDER")
    refuse_no_folder(out)
    other = reports.read_report(options.against) if options.against else None
    if options.report:
        report = joined([reports.read_report(path) for path in options.report])
    else:
        report = reports.measured(options.models, options.grid, device, out)
        if peers is not None:
            with pinned(options.grid.threads):
                meter = Meter(device, repeats=options.grid.repeats, threads=options.grid.threads)
                report["peers"] = list(peers(meter))
    reports.finish(report, out, options.results)
    if other is not None:
        print(reports.compared(report, other), file=sys.stderr)
    print(json.dumps(report, indent=1) if options.json else markdown(sheets(report)))
    faults = [row for row in report["rows"] if str(row.get("not_run", "")).startswith(("refused", "failed"))]
    for row in faults:
        print(f"ladder: {row['model']}: {row['not_run']}", file=sys.stderr)
    return 1 if faults else 0


def _parsed(words: list[str], kind: str) -> Any:
    """Return the options, with the default grid for the device."""
    tree = make_dataclass("Options", [("grid", Grid, Grid.of(kind))], bases=(ThroughputOptions,))
    tree.__doc__ = ThroughputOptions.__doc__
    return parse(tree, words, prog="ladder throughput")


def device_of(words: list[str]) -> str:
    """Return the device that a line names, because the default sizes depend on it."""
    return (["auto", *take(list(words), "--device")])[-1]
