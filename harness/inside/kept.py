"""Copies of what a study measured, small enough to be committed: weights and checkpoints stay where they are."""

import json
from collections.abc import Sequence
from pathlib import Path

from chomsky_ladder.harness.inside import intervene, probe, worldmodel
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.finished import KEY, sealed
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.machine import without_folders

MEASURED = ("config.json", "result.json", "metrics.jsonl", probe.FILE, intervene.FILE, worldmodel.FILE)
"""Files of a run from which its line is made, and those that a result's digest is of."""


def keep(folders: Sequence[RunFolder], out: Path) -> None:
    """Copies of what the table is made from, with its provenance, which are small enough to be committed."""
    for folder in folders:
        copies = out / folder.path.name
        copies.mkdir(parents=True, exist_ok=True)
        for name in MEASURED:
            write_atomically(copies / name, _copied(folder.path / name))


def _copied(file: Path) -> bytes:
    """A file as it is, but that a command names no folder of this machine."""
    if file.suffix != ".json" or "provenance" not in (tree := json.loads(file.read_bytes())):
        return file.read_bytes()
    tree["provenance"]["command"] = without_folders(tree["provenance"]["command"])
    if file.name == "result.json":
        return sealed({name: value for name, value in tree.items() if name != KEY}, file.with_name("metrics.jsonl"))
    return f"{json.dumps(tree, indent=1)}\n".encode()
