"""The page: what `ladder page` does."""

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.store.places import default_results, hint, refuse_no_folder, refuse_published


@dataclass
class PageOptions:
    """Write one interactive HTML file with every result, after bringing records.csv and curves.csv up to date."""

    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv and curves.csv, with throughput/, othello/ and chess/ if they exist; `published`
    for the committed one, with --out or --serve."""
    out: Path | None = None
    """An .html file, or a folder that any web host can serve: index.html with the records beside it. Without it:
    page.html in the results folder."""
    url: str = ""
    """With --out FOLDER: the address where it will lie, https://... A link to it is then shown with a picture of the
    climb."""
    serve: bool = False
    """Serve it on a port of this machine until Ctrl-C. Without --out no file is left behind."""
    port: int = 8000
    """With --serve: the port; 0 for any free one."""


def page(words: list[str]) -> int:
    options = parse(PageOptions, words, prog="ladder page")
    if not options.results.is_dir():
        raise ValueError(f"no such folder of results: {options.results}{hint(options.results)}")
    if not 0 <= options.port < 65536:
        raise ValueError(f"--port must lie in 0..65535, not {options.port}")
    if options.serve and options.out is None:
        with tempfile.TemporaryDirectory() as folder:
            return _written(options, Path(folder))
    out = options.out or options.results / "page.html"
    if options.url and (_is_file(out) or not re.fullmatch(r"https?://[^\s/][^\s]*", options.url)):
        raise ValueError(
            f"--url {options.url!r}: name the https://.. address of the folder that --out makes, here {out}"
        )
    refuse_published(out, otherwise="say where to write with --out FILE")
    if _is_file(out) and (out.is_dir() or not out.parent.is_dir()):
        raise ValueError(f"--out {out}: name an .html file in a folder that exists")
    if not _is_file(out) and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder, or a file that ends in .html")
    refuse_no_folder(out.parent)
    return _written(options, out)


def _is_file(out: Path) -> bool:
    return out.suffix in (".html", ".htm")


def _written(options: PageOptions, out: Path) -> int:
    from chomsky_ladder.harness.cli.listing import of_these_sources
    from chomsky_ladder.harness.page import site  # with pandas

    listing = of_these_sources()
    if _is_file(out):
        size = site.write(options.results, out, listing=listing)
    else:
        size = site.write_site(options.results, out, listing=listing, url=options.url)
    if not options.serve or options.out is not None:
        print(f"{out if _is_file(out) else out / 'index.html'}: {size / 1e6:.2f} MB")
    if options.serve:
        folder = out.parent if _is_file(out) else out
        name = out.name if _is_file(out) else ""
        site.serve(folder, name, port=options.port, tell=lambda line: print(line, flush=True))
    return 0
