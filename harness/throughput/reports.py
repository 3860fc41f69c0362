"""Throughput reports as files: measured model by model, turned into tables and figures, read and compared."""

import json
import sys
from pathlib import Path

import torch

from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.store import record as collect
from chomsky_ladder.harness.store.files import read_json, write_atomically
from chomsky_ladder.harness.throughput.bench import FORMAT, Row, report_of
from chomsky_ladder.harness.throughput.fit import agreement
from chomsky_ladder.harness.throughput.grid import Grid
from chomsky_ladder.harness.throughput.table import write
from chomsky_ladder.harness.train.machine import pinned


def measured(names: tuple[str, ...], grid: Grid, device: torch.device, out: Path) -> Row:
    """Measure the models. The report is saved after every model."""
    names = names or tuple(sorted(all_models()))
    for name in names:
        find_model(name)
    out.mkdir(parents=True, exist_ok=True)
    with pinned(grid.threads):
        return report_of(names, grid, device, tell=_say, keep=lambda report: save(report, out))


def finish(report: Row, out: Path, results: Path) -> None:
    """Write the report, its tables and its figures."""
    from chomsky_ladder.harness.throughput import (
        figures as figure_throughput,  # matplotlib takes a second to import, which a mistake should not cost
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
