"""Figures from the records and nothing else: PNG, SVG and, beside them, the numbers each shows as CSV.

What figures there are: harness/figures/kinds/. One folder a protocol: figures never mix two, but for one that says
which belong together. What has nothing to show is not written, and a line says so.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.figures.plot import ROOM, Plot, Scene, all_plots
from chomsky_ladder.harness.figures.style import KINDS, WIDTH, save, style
from chomsky_ladder.harness.stats.chosen import chosen
from chomsky_ladder.harness.stats.looks import looks
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.stats.view import cells_of


def say(line: str) -> None:
    print(line, file=sys.stderr)


def write(
    records: pd.DataFrame,
    folder: Path,
    *,
    protocol: str | None = None,
    curves: pd.DataFrame | None = None,
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
    names: Sequence[str] = (),
    bare: bool = False,
    width: float = WIDTH,
    kinds: Sequence[str] = KINDS,
    tell: Callable[[str], None] = say,
) -> list[Path]:
    """Write the figures of one protocol, or of every one of the records, to a folder each. Return the files.

    `models` and `tasks` leave those alone that are named, by label, name or pattern; `names` those figures.
    """
    for name in names:
        ROOM.find(name)  # before anything is drawn
    records = chosen(records, models=models, tasks=tasks) if models or tasks else records
    found = sorted(records["protocol"].unique())
    if protocol is not None and protocol not in found:
        raise ValueError(f"no records of the protocol {protocol!r}; there are {', '.join(found) or 'none at all'}")
    if not found:
        tell("no records, so no figures")
    paths = []
    for label, members, plots in _pictures(records):
        if protocol not in (None, *members):
            continue
        cells = cells_of(records[records["protocol"].isin(members)])
        scene = Scene(cells, curves, looks({cell.stats.model for cell in cells}), label, width)
        with style():
            for plot in [each for each in plots if each.when(scene) and (not names or each.name in names)]:
                data = plot.data(scene)
                is_few = len(cells) < plot.fewest and not (names or models or tasks)
                if data.empty or is_few:
                    why = f"{len(cells)} cells, fewer than {plot.fewest}" if is_few else _why_not(plot, scene)
                    tell(f"{label}: no figure {plot.name}: {why}")
                else:
                    paths += save(
                        plot.draw(data, scene), data, folder / folder_name(label) / plot.name, bare=bare, kinds=kinds
                    )
    if names and not paths:
        tell(f"these records have no figure {' or '.join(names)}")
    return paths


def _pictures(records: pd.DataFrame) -> Iterator[tuple[str, list[str], list[Plot]]]:
    """Yield each label with its protocols and figures: first single protocols, then families of them."""
    rows = as_rows(records.drop_duplicates("protocol").sort_values("protocol"))
    for row in rows:
        yield row["protocol"], [row["protocol"]], [plot for plot in all_plots() if plot.together is None]
    for plot in all_plots():
        families: dict[str, list[str]] = {}
        for row in rows if plot.together else []:
            assert plot.together is not None
            families.setdefault(plot.together(row), []).append(row["protocol"])
        for label, members in sorted(families.items()):
            yield label, members, [plot]


def _why_not(plot: Plot, scene: Scene) -> str:
    return plot.why_not if isinstance(plot.why_not, str) else plot.why_not(scene)
