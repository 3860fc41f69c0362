"""`ladder table`: tables of the records, printed or written."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, say_warnings
from chomsky_ladder.harness.store.colours import in_colour
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.places import default_results, is_read_only, refuse_published

if TYPE_CHECKING:
    import pandas as pd

    from chomsky_ladder.harness.tables.published import Published
    from chomsky_ladder.harness.tables.write import Format

_FORMATS: dict[str, "Format"] = {".txt": "text", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".html": "html"}


@dataclass
class TableOptions:
    """Print tables from records.csv, after adding the finished runs beside it.

    Without options it writes tables/accuracy.csv and .md, and prints the table. Options that choose what is shown print
    that table and write nothing. --all writes every kind in every format under tables/. Nothing is written to the
    published folder (--results published).
    """

    results: Path = field(default_factory=default_results)
    """The folder of runs/ and records.csv; `published` for the committed one."""
    kind: str = ""
    """The kind of table; --kinds lists them. Without it: accuracy."""
    protocol: tuple[str, ...] = ()
    """Only these protocols, by name, label or pattern (xlstm*)."""
    models: tuple[str, ...] = ()
    """Only these models, by name, label or pattern."""
    tasks: tuple[str, ...] = ()
    """Only these tasks, by name, label or pattern."""
    beside: tuple[str, ...] = ()
    """Settings to compare side by side, otherwise protocols of their own: task.supervision, train.steps, .."""
    format: Literal["text", "markdown", "csv", "latex", "html"] | None = None
    """The format. Without it, the file's name decides, else text on a terminal and Markdown elsewhere."""
    out: Path | None = None
    """Write to this file: .txt, .md, .csv, .tex or .html."""
    against: str = ""
    """A paper whose values stand beside ours, or a CSV of your own; --papers lists the papers."""
    kinds: bool = False
    """List the kinds of table."""
    papers: bool = False
    """List the papers."""
    all: bool = False
    """Write every kind in every format, with --against also beside the paper."""


def table(words: list[str]) -> int:
    options = parse(TableOptions, words, prog="ladder table")
    if options.all and (options.kind or options.format or options.out):
        raise ValueError("--all writes every kind in every format: leave out --kind, --format and --out")
    if options.all and (options.protocol or options.models or options.tasks or options.beside):
        raise ValueError("--all takes all records: leave out --protocol, --models, --tasks and --beside")
    if options.out is not None and options.out.suffix not in _FORMATS and not options.format:
        raise ValueError(f"--out {options.out}: its ending names no format. Use {', '.join(_FORMATS)}, or add --format")
    from chomsky_ladder.harness.store.record import collect  # with pandas
    from chomsky_ladder.harness.tables import write as tables
    from chomsky_ladder.harness.tables.kind import ROOM, all_kinds
    from chomsky_ladder.harness.tables.published import sources

    if options.kinds:
        columns([(kind.name, kind.about) for kind in all_kinds()])
        return 0
    if options.papers:
        columns([(name, entry["source"]) for name, entry in sources().items()])
        return 0
    if options.kind:
        ROOM.find(options.kind)  # before anything is read
    paper = _paper(options)
    if options.all:
        refuse_published(options.results, otherwise="leave out --all to print a table, or name another folder")
    if options.out is not None:
        refuse_published(options.out)
    records = collect(options.results)
    say_warnings(records, options.results)
    if not options.all:
        asks = options.kind or options.format or options.out or options.against
        asks = asks or options.protocol or options.models or options.tasks or options.beside
        written = "" if asks or is_read_only(options.results) else tables.write(options.results, records)
        if written and not sys.stdout.isatty():
            print(written, end="")
            return 0
        return _shown(options, records, paper)
    paths, why_not = tables.write_all(options.results, records, against=[options.against] if options.against else [])
    print("\n".join(map(str, paths)))
    for reason in why_not:
        print(f"ladder: {reason}", file=sys.stderr)
    return 0


def _paper(options: TableOptions) -> "Published | None":
    """Found before anything is read; a file of one's own may leave it to --protocol what it is of."""
    from chomsky_ladder.harness.tables.published import of_file, published, sources

    if not options.against:
        return None
    if options.against in sources() or not options.protocol or not options.against.endswith(".csv"):
        return published(options.against)
    return of_file(Path(options.against), protocols=options.protocol)


def _shown(options: TableOptions, records: "pd.DataFrame", paper: "Published | None") -> int:
    """Print the table that is asked for, or write it to the file that is."""
    from chomsky_ladder.harness.stats.chosen import beside, chosen
    from chomsky_ladder.harness.tables import write as tables

    if options.beside:
        records = beside(records, options.beside)
    records = chosen(records, protocols=options.protocol, models=options.models, tasks=options.tasks)
    made = tables.table(records, options.kind or "accuracy", against=paper)
    if options.out is not None:
        form = options.format or _FORMATS[options.out.suffix]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out, tables.text(made, form).encode())
        print(options.out)
        return 0
    form = options.format or ("text" if sys.stdout.isatty() else "markdown")
    print(tables.text(made, form, colour=in_colour(sys.stdout)), end="")
    titles = [sheet.title for sheet in made.sheets]
    if sys.stdout.isatty() and len(titles) > 3:
        print(f"ladder: {len(titles)} tables; --protocol picks one, --beside SETTING puts such in one", file=sys.stderr)
    return 0
