"""`ladder figures`: the pictures of a results folder, from its records and curves alone."""

from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import say_warnings
from chomsky_ladder.harness.store.places import default_results, refuse_no_folder, refuse_published


@dataclass
class FiguresOptions:
    """Bring records.csv and curves.csv up to date, draw every figure as PNG and SVG, its numbers beside it as CSV."""

    names: Positional[tuple[str, ...]] = ()
    """Draw these figures alone: heat_map, ladder, lengths, loss, validation, cost, climb, .."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv and curves.csv; `published` for the committed one, with --out."""
    protocol: str = ""
    """The one protocol to draw; empty for all."""
    out: Path | None = None
    """The folder to write to; figures/ of the results."""
    models: tuple[str, ...] = ()
    """Draw these models alone, by label, name or pattern: lstm 'xlstm*'."""
    tasks: tuple[str, ...] = ()
    """Draw these tasks alone, by label, name or pattern."""
    bare: bool = False
    """For a paper: without the title and the caption, which a paper writes itself."""
    width: float = 7.2
    """Inches across, 3.2 or more, with letters of 7 points whatever it is: 5.5 is the text of many a conference, 3.25 a
    column of two."""
    pdf: bool = False
    """Also as PDF, its text as text."""


def figures(words: list[str]) -> int:
    options = parse(FiguresOptions, words, prog="ladder figures")
    folder = options.out or options.results / "figures"
    refuse_published(folder, otherwise="say where to draw with --out FOLDER")
    refuse_no_folder(folder)
    from chomsky_ladder.harness.figures import write as drawing  # with matplotlib
    from chomsky_ladder.harness.figures.style import NARROWEST
    from chomsky_ladder.harness.store import curves
    from chomsky_ladder.harness.store.record import collect

    if not NARROWEST <= options.width <= 40:
        raise ValueError(f"--width must lie in {NARROWEST:g}..40 inches, not {options.width:g}")
    records = collect(options.results)
    say_warnings(records, options.results)
    written = drawing.write(
        records,
        folder,
        protocol=options.protocol or None,
        curves=curves.collect(options.results),
        models=options.models,
        tasks=options.tasks,
        names=options.names,
        bare=options.bare,
        width=options.width,
        kinds=("png", "svg", "pdf") if options.pdf else ("png", "svg"),
    )
    print(f"{len(written)} files under {folder}")
    return 0
