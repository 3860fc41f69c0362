"""Copy the results of a study that are small enough to be committed. Weights and checkpoints stay where they are."""

import json
from collections.abc import Sequence
from pathlib import Path

from chomsky_ladder.harness.inside import intervene, probe, worldmodel
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.finished import KEY, sealed
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.machine import without_folders

MEASURED = ("config.json", "result.json", "metrics.jsonl", probe.FILE, intervene.FILE, worldmodel.FILE)
"""The files of a run from which its line is made, and those that a result's digest covers."""


def keep(folders: Sequence[RunFolder], out: Path) -> None:
    """Copy the files from which the table is made, with their provenance."""
    for folder in folders:
        copies = out / folder.path.name
        copies.mkdir(parents=True, exist_ok=True)
        for name in MEASURED:
            write_atomically(copies / name, _copied(folder.path / name))


def _copied(file: Path) -> bytes:
    """Return a file's content, with folders of this machine removed from commands."""
    if file.suffix != ".json" or "provenance" not in (tree := json.loads(file.read_bytes())):
        return file.read_bytes()
    tree["provenance"]["command"] = without_folders(tree["provenance"]["command"])
    for edit in tree.get("edits", {}).values():
        edit["examples"] = []  # what a move of chess makes large; the pictures' own numbers have what is shown of them
    if file.name == "result.json":
        return sealed({name: value for name, value in tree.items() if name != KEY}, file.with_name("metrics.jsonl"))
    return f"{json.dumps(tree, indent=1)}\n".encode()
