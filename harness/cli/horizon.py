"""`ladder horizon`: how far trained models hold on strings that go on and on."""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import aligned, number
from chomsky_ladder.harness.inside.settings import HorizonSettings
from chomsky_ladder.harness.store.folder import Busy, find_run
from chomsky_ladder.harness.store.places import default_results, refuse_unwritable_file


@dataclass
class HorizonOptions:
    """Measure accuracy by position on strings of 10,000 symbols and more, for models with a state of constant size.

    Writes horizon.json into each run's folder.
    """

    run_ids: Positional[tuple[str, ...]]
    """The runs, each by its id or a unique part of it."""
    horizon: HorizonSettings = field(default_factory=HorizonSettings)
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    picture: Path | None = None
    """Draw all runs by position into this .png, .svg or .pdf file."""
    csv: Path | None = None
    """Write a line for every range of every run to this .csv file. Other runs in the file stay."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    json: bool = False
    """Print JSON."""


def horizon(words: list[str]) -> int:
    options = parse(HorizonOptions, words, prog="ladder horizon")
    picture, table = options.picture, options.csv
    if not options.run_ids:
        raise ValueError("ladder horizon needs a RUN_ID, or several; `ladder status --all` lists them")
    if picture and (picture.suffix not in (".png", ".svg", ".pdf") or not picture.parent.is_dir()):
        raise ValueError(f"--picture {picture}: name a .png, .svg or .pdf file in a folder that exists")
    if table and (table.suffix != ".csv" or not table.parent.is_dir()):
        raise ValueError(f"--csv {table}: name a .csv file in a folder that exists")
    for option, path in (("--picture", picture), ("--csv", table)):
        if path:
            refuse_unwritable_file(path, option)
    if table and picture and table == picture.with_suffix(".csv"):
        raise ValueError(f"--picture writes its numbers to {table}, too: choose another name for --csv")
    from chomsky_ladder.harness.inside.horizon import horizon_run  # with torch
    from chomsky_ladder.harness.inside.horizon_rows import COLUMNS, LATER, rows_of
    from chomsky_ladder.harness.inside.run_rows import keep, there

    if table:
        there(table, COLUMNS, later=LATER)

    found = []
    for folder in [find_run(options.results, run_id) for run_id in options.run_ids]:
        try:
            found.append(horizon_run(folder, options.horizon, device=options.device))
        except Busy as busy:
            raise ValueError(str(busy)) from None
        if table:
            keep(table, rows_of(found[-1]), COLUMNS, later=LATER)
        if not options.json:
            print("\n".join(horizon_text(found[-1])), flush=True)
    if options.json:
        print(json.dumps(found if len(found) > 1 else found[0], indent=1))
    if picture:
        from chomsky_ladder.harness.inside.draw_horizon import draw  # with matplotlib

        draw(found, picture)
    return 0


def horizon_text(result: dict[str, Any]) -> Iterator[str]:
    """Yield the table for a person."""
    strings = result["settings"]["strings"]
    yield f"{result['run_id']} at step {result['step']:,}: {strings} strings of {result['length']:,}"
    yield f"trained to {result['trained_to']}, {result['state_bytes']:,} bytes of state at the end of a string"
    names = [name for name in ("accuracy", "scaled", "commonest", "drift") if name in result["bins"][0]]
    rows = [[f"{each['from']:,}..{each['to']:,}", *(number(each[name]) for name in names)] for each in result["bins"]]
    yield from aligned(["positions", *names], rows)
    held = f"{result['holds_to']:,}" if result["holds_to"] else "no position"
    mistakes = result["first_mistakes"]
    first = f"; first mistakes at {statistics.median(mistakes):,.0f} in the median" if mistakes else ""
    if result["finite_to"] < result["length"]:
        yield f"its numbers are finite up to position {result['finite_to']:,} alone: an overflow"
    yield f"holds to {held} (scaled .9 and above); {result['without_mistake']} of {strings} without a mistake{first}"
