"""`ladder table`: tables of the records, printed or written."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.store.files import default_results


@dataclass
class TableOptions:
    """Tables from records.csv, which is brought up to date with the runs beside it.

    Without options it writes tables/accuracy.csv and .md and prints the markdown; with --kind, --format or --against it
    prints that table and writes none; with --all it writes every kind in every format under tables/.
    """

    results: Path = field(default_factory=default_results)
    """The folder of runs/ and records.csv."""
    kind: Literal["accuracy", "hard", "lengths", "state_tracking", "learning", "cost", "bits", "text"] | None = None
    """What it shows; accuracy unless said otherwise."""
    format: Literal["markdown", "csv", "latex", "html"] | None = None
    """How it is written; markdown unless said otherwise."""
    against: Literal["xlstm"] | None = None
    """A paper whose values stand beside ours."""
    all: bool = False
    """Write every kind in every format; with --against those tables too."""


def table(words: list[str]) -> int:
    options = parse(TableOptions, words, prog="ladder table")
    if options.all and (options.kind or options.format):
        raise ValueError("--all is every --kind in every --format: leave those out")
    from chomsky_ladder.harness.tables import files as tables  # with pandas

    if not (options.all or options.kind or options.format or options.against):
        print(tables.write(options.results), end="")
        return 0
    from chomsky_ladder.harness.tables import kinds as table_kinds

    if not options.all:
        made = table_kinds.table(tables.collect(options.results), options.kind or "accuracy", against=options.against)
        print(made.text(options.format or "markdown"), end="")
        return 0
    paths, why_not = table_kinds.write_all(options.results, against=options.against)
    print("\n".join(map(str, paths)))
    for reason in why_not:
        print(f"ladder: {reason}", file=sys.stderr)
    return 0
