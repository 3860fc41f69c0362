"""`ladder throughput`: what architectures cost on this machine, as tables and figures, or made anew from a report."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path

import torch

from chomsky_ladder.harness.cli.options import parse, take
from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.store import record as collect
from chomsky_ladder.harness.store.files import default_results, read_json, write_atomically
from chomsky_ladder.harness.tables.formats import markdown
from chomsky_ladder.harness.throughput.bench import FORMAT, Row, report_of
from chomsky_ladder.harness.throughput.fit import agreement
from chomsky_ladder.harness.throughput.join import joined
from chomsky_ladder.harness.throughput.measure import Meter
from chomsky_ladder.harness.throughput.sizes import Grid
from chomsky_ladder.harness.throughput.table import sheets, write
from chomsky_ladder.harness.train.machine import find_device, pinned

Peers = Callable[[Meter], Iterable[Row]]


@dataclass
class ThroughputOptions:
    """Time training, prefill and decoding of models, and write tables, figures and the report they are made from."""

    models: tuple[str, ...] = ()
    """Names of models; none for all."""
    device: str = "auto"
    """cpu, cuda or cuda:N."""
    out: Path | None = None
    """The folder to write to; throughput/cpu or throughput/cuda of the results."""
    results: Path = field(default_factory=default_results)
    """The folder of records.csv, for accuracy against throughput."""
    report: tuple[Path, ...] = ()
    """Measure nothing: make tables and figures from these report.json of one machine and grid. Those of other models
    follow each other, further sittings of the same models are pooled: percentiles then span them all."""
    against: Path | None = None
    """A report.json of the same grid, to be compared with: how many points' percentiles overlap."""
    json: bool = False
    """Print the report as JSON."""


def throughput(words: list[str], peers: Peers | None = None) -> int:
    device = find_device(device_of(words))
    own = [("grid", Grid, Grid.of(device))]
    tree = make_dataclass("Options", own, bases=(ThroughputOptions,))
    tree.__doc__ = ThroughputOptions.__doc__
    options = parse(tree, words, prog="ladder throughput")
    out = options.out or options.results / "throughput" / device.type
    other = read_report(options.against) if options.against else None
    if options.report:
        report = joined([read_report(path) for path in options.report])
    else:
        report = measured(options.models, options.grid, device, out)
        if peers is not None:
            with pinned(options.grid.threads):
                meter = Meter(device, repeats=options.grid.repeats, threads=options.grid.threads)
                report["peers"] = list(peers(meter))
    finish(report, out, options.results)
    if other is not None:
        print(compared(report, other), file=sys.stderr)
    print(json.dumps(report, indent=1) if options.json else markdown(sheets(report)))
    return 1 if any(str(row.get("not_run", "")).startswith("refused") for row in report["rows"]) else 0


def device_of(words: list[str]) -> str:
    """The device a line names: the sizes' defaults hang on it."""
    return (["auto", *take(list(words), "--device")])[-1]


def measured(names: tuple[str, ...], grid: Grid, device: torch.device, out: Path) -> Row:
    """Measure, and keep the report after every model."""
    names = names or tuple(sorted(all_models()))
    for name in names:
        find_model(name)
    out.mkdir(parents=True, exist_ok=True)
    with pinned(grid.threads):
        return report_of(names, grid, device, tell=_say, keep=lambda report: save(report, out))


def finish(report: Row, out: Path, results: Path) -> None:
    """The report, its tables and its figures."""
    from chomsky_ladder.harness.throughput import (
        figures as figure_throughput,  # matplotlib takes a second that a mistake should not pay
    )

    out.mkdir(parents=True, exist_ok=True)
    save(report, out)
    write(report, out)
    file = results / "records.csv"
    records = collect.stored(file) if file.exists() else None
    figure_throughput.write(report, out / "figures", records=records, tell=_say)


def save(report: Row, out: Path) -> None:
    write_atomically(out / "report.json", (json.dumps(report, indent=1) + "\n").encode())


def read_report(path: Path) -> Row:
    if not path.is_file():
        raise ValueError(f"no such report: {path}")
    report = read_json(path)
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ValueError(f"{path} is no report of `ladder throughput`")
    return report


def compared(report: Row, other: Row) -> str:
    found = agreement(report["rows"], other["rows"])
    if not found.points:
        raise ValueError("the two reports have no point in common")
    apart = "".join(f"\n  {line}" for line in found.apart[:10])
    return f"{found.agree} of {found.points} points agree within their 20th and 80th percentiles{apart}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
