"""The manifest of a submission: whose climb it is, what it was made with, and the hash of every file.

    submission.json     this manifest
    records.csv         a line a run; runs/ has the config, counts and result of each
    climb.csv, card.md  the table and the card that these records make
    environment.txt     the packages that were installed
    source/             the code of the model, if it is not one of ours

The folder is a results folder, too: `ladder table --results FOLDER` works with it.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from chomsky_ladder.harness.store.files import read_object, write_atomically

FILE = "submission.json"
SCHEMA = 1
SOURCE = "source"


@dataclass(frozen=True)
class Manifest:
    name: str
    """The name that the table shows."""
    model: str
    """The label of the model in the records."""
    protocol: str
    cite: str
    plugins: list[str]
    """The words for --plugin that load the model's code, relative to source/."""
    made_with: dict[str, str]
    files: dict[str, str]
    """The SHA-256 of every other file."""
    schema: int = SCHEMA

    def write(self, folder: Path) -> None:
        write_atomically(folder / FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Return the manifest of a folder; refused where it is none of this schema."""
        tree = read_object(folder / FILE)
        if tree is None:
            raise ValueError(f"{folder} is no submission: it has no {FILE} (`ladder submit` writes one)")
        if tree.get("schema") != SCHEMA:
            raise ValueError(f"{folder / FILE} has schema {tree.get('schema')!r}; this version reads {SCHEMA}")
        usual: dict[str, type] = {"plugins": list, "made_with": dict, "files": dict, "schema": int}
        for field in fields(cls):
            if not isinstance(tree.get(field.name), usual.get(field.name, str)):
                raise ValueError(f"{folder / FILE}: {field.name!r} is missing, or has another type than it should")
        return cls(**{field.name: tree[field.name] for field in fields(cls)})


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a folder but the manifest; a link is refused."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(_files(folder))}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise ValueError(f"{path} is a link or no plain file, which no submission holds")
        folders[:] = [name for name in folders if name != "__pycache__"]  # made by whoever loads the plugin
        for name in names:
            relative = Path(place, name).relative_to(folder).as_posix()
            if relative != FILE:
                yield relative, Path(place, name)
