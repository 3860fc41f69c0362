"""`ladder export-results` writes a data set for others, `ladder export-model` the weights of a run."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import print_json
from chomsky_ladder.harness.store.places import default_results, published_results


@dataclass
class ExportResultsOptions:
    """Write results as a data set that can be uploaded as it is: Parquet, a data card, a Croissant file, the page.

    The folder has the layout of the Hugging Face hub: it can be a data set or a static Space. A zip of it can go into
    an archive. It is also a results folder: ladder table --results FOLDER works with it.

    ladder export-results data --results published
    """

    to: Positional[Path]
    """The new folder."""
    results: str = ""
    """The folder of records.csv; `published` for the committed one. Without it your own."""
    suites: tuple[str, ...] = field(default=("all",))
    """Frozen suites whose test strings are written: all, none, or their names."""
    json: bool = False
    """Print JSON."""


def export_results(words: list[str]) -> int:
    if not words:
        raise ValueError("ladder export-results needs the FOLDER to write")
    options = parse(ExportResultsOptions, words, prog="ladder export-results")
    from chomsky_ladder.harness.config.presets import frozen_suites
    from chomsky_ladder.harness.config.rooms import did_you_mean
    from chomsky_ladder.harness.hub import export as exporting

    known = list(frozen_suites())
    named = known if options.suites == ("all",) else [] if options.suites == ("none",) else list(options.suites)
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"--suites: no frozen suite is called {name!r}{hint}")
    results = published_results() if options.results == "published" else Path(options.results or default_results())
    if results is None:
        raise ValueError("--results published: this installation has no published results")

    def tell(said: str) -> None:
        print(said, file=sys.stderr)

    parts = exporting.export_results(results, options.to, suites=named, tell=tell)
    size = sum(path.stat().st_size for path in options.to.rglob("*") if path.is_file())
    if options.json:
        return print_json({"folder": str(options.to), "bytes": size, "tables": [vars(part) for part in parts]})
    print(f"{options.to}: {len(parts)} tables, {sum(part.rows for part in parts):,} rows, {size / 2**20:.1f} MiB")
    print(f"upload: hf upload USER/chomsky-ladder {options.to} --repo-type dataset")
    return 0


@dataclass
class ExportModelOptions:
    """Write the weights of a trained run as safetensors, with its config and a loader of a few lines.

    ladder export-model parity-lstm-s0 weights
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    to: Positional[Path]
    """The new folder."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def export_model(words: list[str]) -> int:
    if not words:
        raise ValueError("ladder export-model needs a RUN_ID and the FOLDER to write")
    options = parse(ExportModelOptions, words, prog="ladder export-model")
    from chomsky_ladder.harness.hub.model import export_model as exported
    from chomsky_ladder.harness.store.folder import find_run

    made = exported(find_run(options.results, options.run_id), options.to)
    if options.json:
        return print_json({"folder": str(options.to), **made})
    size = f"{made['bytes'] / 2**20:.1f} MiB"
    print(f"{options.to}: {made['tensors']} tensors of {made['run_id']} at step {made['step']:,}, {size}")
    return 0
