"""`ladder figures`: the pictures of a results folder, from its records and curves alone."""

from dataclasses import dataclass, field
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.store.files import default_results


@dataclass
class FiguresOptions:
    """Bring records.csv and curves.csv up to date, draw every figure as PNG and SVG, its numbers beside it as CSV."""

    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv and curves.csv."""
    protocol: str = ""
    """The one protocol to draw; empty for all."""
    out: Path | None = None
    """The folder to write to; figures/ of the results."""


def figures(words: list[str]) -> int:
    options = parse(FiguresOptions, words, prog="ladder figures")
    from chomsky_ladder.harness.figures import write as drawing  # with matplotlib
    from chomsky_ladder.harness.store import curves
    from chomsky_ladder.harness.store.record import collect

    records = collect(options.results)
    folder = options.out or options.results / "figures"
    written = drawing.write(records, folder, protocol=options.protocol or None, curves=curves.collect(options.results))
    print(f"{len(written)} files under {folder}")
    return 0
