"""Round trained bilinear RNNs to exact representations, and read how far they hold before and after.

    python scripts/rounding.py RUN_ID .. [--results FOLDER] [--length 9999] [--strings 16] [--csv FILE] [--picture FILE]

For runs on a task whose symbols are a group: the cycle, parity, word problems. The first block's matrices must depend
on one symbol alone, so no short convolution may stand in front of it (harness/inside/rounding.py). Nothing is trained.

    2 2 3! moved 0.08      two planes were rounded, and a subspace of three that is near no representation was not
    deeper 2 2             later bilinear layers keep two planes, which are not rounded
    characters 1           each is an irreducible representation over C; 2: of a plane, over the reals alone

Maintainers keep the published numbers with `--csv results/rounding/climb-v1.csv`. Other runs in the file stay.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from chomsky_ladder.harness.cli.say import aligned
from chomsky_ladder.harness.inside.draw_rounding import COLUMNS as ORBIT
from chomsky_ladder.harness.inside.draw_rounding import draw
from chomsky_ladder.harness.inside.horizon import horizon
from chomsky_ladder.harness.inside.rounding import Kept, kept_deeper, orbit, rounded
from chomsky_ladder.harness.inside.run_rows import keep, there
from chomsky_ladder.harness.inside.settings import HorizonSettings
from chomsky_ladder.harness.inside.streams import Trained, load_trained
from chomsky_ladder.harness.store.folder import RunFolder, find_run
from chomsky_ladder.harness.store.places import default_results, publishing, refuse_unwritable_file

OF_THE_RUN = ("run_id", "subspaces", "moved", "characters", "deeper", "commit", "torch", "device")
DOTS = 600
COLUMNS = (*OF_THE_RUN, "from", "to", "answers", "trained", "rounded")


def rows_of(folder: RunFolder, settings: HorizonSettings) -> list[dict[str, Any]]:
    """Return a line for each range of positions: a run's accuracy as it was trained, and rounded."""
    trained = load_trained(folder)
    model, kept = rounded(trained)
    before, after = horizon(trained, settings), horizon(model, settings)
    numerics = after["numerics"]
    of_the_run = (trained.run.run_id, named(kept), moved(kept), characters(kept), deeper(trained))
    made = (after["provenance"]["commit"], numerics["torch"], numerics["device"])
    run = dict(zip(OF_THE_RUN, (*of_the_run, *made), strict=True))
    return [
        run
        | {name: old[name] for name in ("from", "to", "answers")}
        | {"trained": old["accuracy"], "rounded": new["accuracy"]}
        for old, new in zip(before["bins"], after["bins"], strict=True)
    ]


def named(kept: Sequence[Kept]) -> str:
    """Return the sizes of the subspaces, those rounded first, and the others with a mark."""
    sizes = sorted((not each.rounded, each.size) for each in kept)
    return " ".join(f"{size}{'!' * left}" for left, size in sizes)


def moved(kept: Sequence[Kept]) -> float:
    """Return the largest move of the subspaces that were rounded; NaN if none was."""
    return max((each.moved for each in kept if each.rounded), default=math.nan)


def characters(kept: Sequence[Kept]) -> str:
    """Return the mean squares of the characters of the subspaces that were rounded, each once."""
    return " ".join(sorted({f"{each.character:.3g}" for each in kept if each.rounded}))


def deeper(trained: Trained) -> str:
    """Return the sizes of the subspaces that later bilinear layers keep."""
    return " ".join(map(str, sorted(kept_deeper(trained))))


def said(rows: Sequence[dict[str, Any]]) -> str:
    """Return a run's lines for a person."""
    first = rows[0]
    lines = [
        [f"{row['from']:,}..{row['to']:,}", *(f"{row[name]:.3f}" for name in ("trained", "rounded"))] for row in rows
    ]
    title = f"{first['run_id']}: {first['subspaces'] or 'no subspace of two directions or more'}"
    title += f" moved {first['moved']:.2f}, characters {first['characters']}"
    title += f", deeper {first['deeper']}" if first["deeper"] else ""
    return "\n".join([title, *aligned(["positions", "trained", "rounded"], lines)])


def orbit_of(folder: RunFolder) -> pd.DataFrame:
    """Return where the states of the first block go in which a plane or a space was rounded, a line for each symbol."""
    trained = load_trained(folder)
    kept = next((each for each in rounded(trained)[1] if each.rounded and each.size <= 3), None)
    if kept is None:
        raise ValueError(
            f"--picture: {folder.path.name} has no plane and no space of three dimensions that was rounded"
        )
    found = orbit(trained, kept, length=DOTS)
    task: Any = trained.run.task
    asks = f"cycle of {task.cycle}" if hasattr(task, "cycle") else getattr(task, "group", task.name)
    lines = zip(found.element_L.tolist(), _three(found.trained_LR), _three(found.rounded_LR), strict=True)
    rows = [(trained.run.run_id, asks, place, element, *a, *b) for place, (element, a, b) in enumerate(lines, 1)]
    return pd.DataFrame(rows, columns=list(ORBIT))


def _three(x_LR: Tensor) -> list[list[float]]:
    """Return coordinates with three digits behind the point, and none for the third of a plane."""
    return [[round(value, 3) for value in x_R] + [math.nan] * (3 - len(x_R)) for x_R in x_LR.tolist()]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("run_ids", nargs="+", metavar="RUN_ID", help="a run, by its id or a unique part of it")
    parser.add_argument("--results", type=Path, default=default_results(), help="the folder of runs/")
    parser.add_argument("--length", type=int, default=9999, help="the length of the strings")
    parser.add_argument("--strings", type=int, default=16, help="how many strings")
    parser.add_argument("--csv", type=Path, help="write the numbers into this file, too")
    parser.add_argument(
        "--picture", type=Path, help="draw where the states of a block of each run go: .png, .svg, .pdf"
    )
    options = parser.parse_args()
    settings = HorizonSettings(length=options.length, strings=options.strings)
    if options.csv:
        refuse_unwritable_file(options.csv, "--csv")
        there(options.csv, COLUMNS)
    if options.picture:
        if options.picture.suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"--picture {options.picture}: name a .png, .svg or .pdf file")
        refuse_unwritable_file(options.picture, "--picture")
    folders = [find_run(options.results, run_id) for run_id in options.run_ids]
    if options.picture:
        draw(pd.concat(map(orbit_of, folders)), options.picture)
    for folder in folders:
        rows = rows_of(folder, settings)
        print(said(rows), flush=True)
        if options.csv:
            keep(options.csv, rows, COLUMNS)
    return 0


if __name__ == "__main__":
    try:
        with publishing():
            sys.exit(main())
    except ValueError as mistake:
        print(f"rounding.py: {mistake}", file=sys.stderr)
        sys.exit(2)
