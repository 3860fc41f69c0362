"""Make the folder of a submission from the finished runs of a climb."""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path

import pandas as pd
import torch

from chomsky_ladder.harness.climb.card import Card, card
from chomsky_ladder.harness.climb.runs import climb_protocol, climb_runs
from chomsky_ladder.harness.climb.text import markdown
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.store import curves
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, keep, stored
from chomsky_ladder.harness.submit.manifest import SOURCE, Manifest, hashes
from chomsky_ladder.harness.sweep.report_seeds import fresh_runs
from chomsky_ladder.harness.sweep.sources import sources
from chomsky_ladder.harness.tables.write import csv, table
from chomsky_ladder.harness.train.machine import plugins_of
from chomsky_ladder.models.base import ModelConfig

COPIED = ("config.json", "metrics.jsonl", "timing.jsonl", "result.json")
TABLE, CARD, ENVIRONMENT, README = "climb.csv", "card.md", "environment.txt", "README.md"


def bundle(model: ModelConfig, protocol: str, results: Path, *, name: str, cite: str, out: Path) -> Manifest:
    """Write the submission of a whole climb to a new folder."""
    runs = runs_of(model, protocol, results)
    missing = [run.run_id for run in runs if Record.of(RunFolder(results, run.run_id)) is None]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(runs)} runs are not finished in {results}, such as {missing[0]}: "
            f"`ladder climb {model.name} --protocol {protocol} --exec.results {results} --again` trains them"
        )
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out: {out} is there already and not empty")
    for run in runs:
        _copy(RunFolder(results, run.run_id).path, RunFolder(out, run.run_id).path)
    found = {run.run_id: Record.of(RunFolder(out, run.run_id)) for run in runs}
    keep(out, {run_id: record for run_id, record in found.items() if record is not None})
    curves.take(results, out, [run.run_id for run in runs])
    label = identity_of(runs[0]).model
    write_products(out, label, protocol)
    write_atomically(out / ENVIRONMENT, _environment().encode())
    write_atomically(out / README, _readme(name, label, protocol).encode())
    plugins = _copy_source(runs[0], out / SOURCE)
    manifest = Manifest(name, label, protocol, cite, plugins, _made_with(), hashes(out))
    manifest.write(out)
    return manifest


def runs_of(model: ModelConfig, protocol: str, results: Path) -> list[Run]:
    """Return all runs of a climb: those that choose the learning rates, and the fresh seeds at those rates."""
    runs, count = climb_runs(model, protocol=protocol), climb_protocol(protocol).report
    fresh, _ = fresh_runs(runs, results, count) if count else ([], [])
    return [*runs, *fresh]


def write_products(folder: Path, label: str, protocol: str) -> None:
    """Write the table and the card that the records of a folder make."""
    records = stored(folder / "records.csv")
    write_atomically(folder / TABLE, csv(table(records, "climb").data).encode())
    write_atomically(folder / CARD, markdown(_card(records, label, protocol)).encode())


def _card(records: pd.DataFrame, label: str, protocol: str) -> Card:
    """Return the card of the records alone: without neighbours, or a speed that another machine would not have."""
    found = next((climb for climb in climbs_of(records, protocol) if climb.model == label), None)
    if found is None:
        raise ValueError(f"records.csv has no climb of {label} under {protocol}")
    hours = float(records[["train_seconds", "score_seconds"]].sum().sum()) / 3600
    return card(found, [], protocol=protocol, hours=hours)


def _copy(source: Path, place: Path) -> None:
    place.mkdir(parents=True)
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, place / name)


def _copy_source(run: Run, place: Path) -> list[str]:
    """Copy the code that plugins brought, and return the words that load it from there."""
    files = sorted({file for made in plugins_of(run.task, run.model).values() for file in made.files})
    if not files:
        return []
    root = Path(os.path.commonpath([file.parent for file in files]))
    while (root / "__init__.py").is_file():  # a package is found by its name
        root = root.parent
    for file in files:
        target = place / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return [_relative(word, root) for word in sources([run])]


def _relative(word: str, root: Path) -> str:
    """Return a word for --plugin as it is relative to the copied code; the name of a module stays."""
    file, colon, name = word.rpartition(":") if not Path(word).exists() and ":" in word else (word, "", "")
    path = Path(file).resolve()
    return f"{path.relative_to(root)}{colon}{name}" if path.exists() and path.is_relative_to(root) else word


def _made_with() -> dict[str, str]:
    return {
        "chomsky-ladder": importlib.metadata.version("chomsky-ladder"),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _environment() -> str:
    packages = {f"{each.metadata['Name']}=={each.version}" for each in importlib.metadata.distributions()}
    return "\n".join(sorted(packages, key=str.lower)) + "\n"


def _readme(name: str, label: str, protocol: str) -> str:
    lines = (
        f"# {name}",
        "",
        f"A climb of `{label}` under `{protocol}`, submitted to Chomsky Ladder. Its card is [card.md](card.md).",
        "",
        "```sh",
        "ladder verify .              # checks every file and number, then trains some cells again",
        "```",
        "",
        "The numbers are self-reported until somebody else has verified them.",
        "",
    )
    return "\n".join(lines)
