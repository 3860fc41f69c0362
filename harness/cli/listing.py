"""Every task and model, with what is slow to find out kept for as long as the code stays as it is.

Floors and sizes of all of them take ten seconds and torch. Those of this code are in listing.json beside this file,
which scripts/golden.py writes; of code that was changed, or with other plugins, they are kept with the user's caches.
Both are found by a hash of the sources they were made of, and are never taken for those of another.
"""

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import write_atomically

SHIPPED = Path(__file__).with_name("listing.json")
GROUPS = ("ladder.tasks", "ladder.models")
_ROOMS = ("tasks", "models", "harness/config")
_OTHERS = ("harness/cli/describe.py", "harness/train/build.py")


def listed() -> dict[str, Any]:
    """The listing of this code and these plugins; what a plugin named on the line brought is never kept."""
    return _made() if "chomsky_ladder.harness.config.registry" in sys.modules else of_these_sources()


def of_these_sources() -> dict[str, Any]:
    """The listing without what a plugin named on the line brought."""
    key = key_of_sources()
    for path in (SHIPPED, _kept_at(key)):
        tree = _opened(path)
        if tree is not None and tree["key"] == key:
            return tree["listing"]
    print("weighing every task and model once for this code ..", file=sys.stderr)
    tree = _made()
    path = _kept_at(key)
    if path is not None and not tree["problems"]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content_of(key, tree))
        except OSError:  # no home, or one that is not ours
            pass
    return tree


def _made() -> dict[str, Any]:
    from chomsky_ladder.harness.cli import describe  # with torch

    return describe.listing()


def content_of(key: str, tree: dict[str, Any]) -> bytes:
    return (json.dumps({"key": key, "listing": tree}, indent=1) + "\n").encode()


def key_of_sources() -> str:
    """A hash of all that a listing is made of: the sources of the rooms, and those of installed plugins."""
    digest = hashlib.sha256()
    for name, content in _sources():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    root = Path(__file__).resolve().parents[2]
    for room in _ROOMS:
        files = (path for path in (root / room).rglob("*") if path.suffix in (".py", ".json"))
        for path in sorted(files):
            yield str(path.relative_to(root)), path.read_bytes()
    for name in _OTHERS:
        yield name, (root / name).read_bytes()
    for group in GROUPS:
        for entry in sorted(entry_points(group=group)):
            yield f"{group} {entry.name}", entry.value.encode()
            found = importlib.util.find_spec(entry.value.split(":")[0].partition(".")[0])
            origin = Path(found.origin) if found is not None and found.origin else None
            if origin is not None and origin.is_file():
                own = origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]
                for path in sorted(own):
                    yield str(path.relative_to(origin.parent)), path.read_bytes()


def _kept_at(key: str) -> Path | None:
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return None
    return home / "chomsky-ladder" / f"listing-{key[:16]}.json"


def _opened(path: Path | None) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_bytes()) if path is not None else None
    except (OSError, ValueError):
        return None
