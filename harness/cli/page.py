"""Command lines and the page: what `ladder page` does, and the line with which a reader reproduces a run."""

from dataclasses import dataclass, field
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.store.places import default_results, hint, refuse_published


@dataclass
class PageOptions:
    """Bring records.csv and curves.csv up to date and write one HTML file of tables, cells and figures."""

    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv, curves.csv and figures/; `published` for the committed one, with --out."""
    out: Path | None = None
    """The file to write; page.html in the results folder if not given."""


def page(words: list[str]) -> int:
    options = parse(PageOptions, words, prog="ladder page")
    if not options.results.is_dir():
        raise ValueError(f"no such folder of results: {options.results}{hint(options.results)}")
    out = options.out or options.results / "page.html"
    refuse_published(out, otherwise="say where to write with --out FILE")
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out names a file in a folder that is there, not {out}")
    from chomsky_ladder.harness.page import html as pages  # with pandas

    size = pages.write(options.results, out)
    print(f"{out}: {size / 1e6:.2f} MB")
    return 0
