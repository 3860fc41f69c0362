"""`ladder figures`: the pictures of a results folder, from its records and curves alone."""

from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import say_warnings
from chomsky_ladder.harness.store.places import default_results, refuse_no_folder, refuse_published


@dataclass
class FiguresOptions:
    """Draw every figure as PNG and SVG, with its numbers as CSV. Bring records.csv and curves.csv up to date first."""

    names: Positional[tuple[str, ...]] = ()
    """Draw only these figures: heat_map, ladder, lengths, loss, validation, cost, climb, .."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv and curves.csv; `published` for the committed one, with --out."""
    protocol: str = ""
    """Draw only this protocol; empty for all."""
    out: Path | None = None
    """The folder to write to; without it figures/ of the results."""
    models: tuple[str, ...] = ()
    """Draw only these models, by label, name or pattern: lstm 'xlstm*'."""
    tasks: tuple[str, ...] = ()
    """Draw only these tasks, by label, name or pattern."""
    bare: bool = False
    """Leave out title and caption, which a paper writes itself."""
    width: float = 7.2
    """Width in inches, 3.2 or more. Letters keep 7 points. Many conferences have 5.5 for text and 3.25 for a column of
    two."""
    pdf: bool = False
    """Also write PDF, in which text stays text."""


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
