"""`ladder ablate`: which layers of trained models the answers need."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import aligned, number
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.store.places import default_results, refuse_unwritable_file


@dataclass
class AblateOptions:
    """Put the mean of each layer in place of what it adds to the stream, one after the other, and score again.

    Shows accuracy at training lengths and in the bins of the test. Nothing is trained or written.
    """

    run_ids: Positional[tuple[str, ...]]
    """The runs, each by its id or a unique part of it."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    csv: Path | None = None
    """Write a line for each layer and bin of every run to this .csv file. Other runs in the file stay."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    json: bool = False
    """Print JSON."""


def ablate(words: list[str]) -> int:
    options = parse(AblateOptions, words, prog="ladder ablate")
    if not options.run_ids:
        raise ValueError("ladder ablate needs a RUN_ID, or several; `ladder status --all` lists them")
    if options.csv and (options.csv.suffix != ".csv" or not options.csv.parent.is_dir()):
        raise ValueError(f"--csv {options.csv}: name a .csv file in a folder that exists")
    if options.csv:
        refuse_unwritable_file(options.csv, "--csv")
    from chomsky_ladder.harness.inside.ablate import COLUMNS, ablated, rows_of  # with torch
    from chomsky_ladder.harness.inside.run_rows import keep, there
    from chomsky_ladder.harness.inside.streams import load_trained
    from chomsky_ladder.harness.train.machine import find_device

    if options.csv:
        there(options.csv, COLUMNS)
    found = []
    for folder in [find_run(options.results, run_id) for run_id in options.run_ids]:
        found.append(ablated(load_trained(folder, device=find_device(options.device))))
        if options.csv:
            keep(options.csv, rows_of(found[-1]), COLUMNS)
        if not options.json:
            print("\n".join(ablate_text(found[-1])), flush=True)
    if options.json:
        print(json.dumps(found if len(found) > 1 else found[0], indent=1))
    return 0


def ablate_text(result: dict[str, Any]) -> Iterator[str]:
    """Yield the table for a person: training lengths and the longest bin."""
    accuracy = {(row["without"], row["lengths"]): row["accuracy"] for row in result["rows"]}
    lengths = list(dict.fromkeys(row["lengths"] for row in result["rows"]))
    shown = [lengths[0], lengths[-1]]
    yield f"{result['run_id']} at step {result['step']:,}: accuracy without"
    rows = [[part, *(number(accuracy[part, each]) for each in shown)] for part in result["parts"]]
    yield from aligned(["", *shown], rows)
