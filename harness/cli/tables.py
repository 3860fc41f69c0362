"""`ladder table`: tables of the records, printed or written."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns
from chomsky_ladder.harness.store.places import default_results, is_read_only, refuse_published


@dataclass
class TableOptions:
    """Tables from records.csv, which is brought up to date with the runs beside it.

    Without options it writes tables/accuracy.csv and .md and prints the markdown; with --kind, --format or --against it
    prints that table and writes none; with --all it writes every kind in every format under tables/. Of the published
    folder (--results published) it prints and writes nothing.
    """

    results: Path = field(default_factory=default_results)
    """The folder of runs/ and records.csv; `published` for the committed one."""
    kind: str = ""
    """What it shows: one of those that --kinds lists; accuracy unless said otherwise."""
    format: Literal["markdown", "csv", "latex", "html"] | None = None
    """How it is written; markdown unless said otherwise."""
    against: Literal["xlstm"] | None = None
    """A paper whose values stand beside ours."""
    kinds: bool = False
    """List the kinds of table there are, and do nothing else."""
    all: bool = False
    """Write every kind in every format; with --against those tables too."""


def table(words: list[str]) -> int:
    options = parse(TableOptions, words, prog="ladder table")
    if options.all and (options.kind or options.format):
        raise ValueError("--all is every --kind in every --format: leave those out")
    from chomsky_ladder.harness.store.record import collect  # with pandas
    from chomsky_ladder.harness.tables import write as tables
    from chomsky_ladder.harness.tables.kind import ROOM, all_kinds

    if options.kinds:
        columns([(kind.name, kind.about) for kind in all_kinds()])
        return 0
    if options.kind:
        ROOM.find(options.kind)  # before anything is read
    if options.all:
        refuse_published(options.results, otherwise="leave out --all to print a table, or name another folder")
    if not (options.all or options.kind or options.format or options.against):
        is_shown = is_read_only(options.results)
        print(_shown(options.results) if is_shown else tables.write(options.results), end="")
        return 0
    if not options.all:
        made = tables.table(collect(options.results), options.kind or "accuracy", against=options.against)
        print(tables.text(made, options.format or "markdown"), end="")
        return 0
    paths, why_not = tables.write_all(options.results, against=options.against)
    print("\n".join(map(str, paths)))
    for reason in why_not:
        print(f"ladder: {reason}", file=sys.stderr)
    return 0


def _shown(results: Path) -> str:
    """What `tables.write` returns, of a folder that is only read."""
    from chomsky_ladder.harness.stats.cells import cells  # with pandas
    from chomsky_ladder.harness.store.record import collect
    from chomsky_ladder.harness.tables.write import markdown

    return markdown(cells(collect(results)))
