"""The listing of every task and model, kept in the user's cache until the code changes.

Floors and sizes of all of them take ten seconds and torch. The cache has one file for each place that the package is
used from. It holds a hash of the sources that the listing was made of, so a listing of other code is never shown.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.models.kernels.native_library import cache_folder

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("ladder.tasks", "ladder.models")
_ROOMS = ("tasks", "models", "harness/config")
_OTHERS = ("harness/cli/describe.py", "harness/train/build.py")


def listed() -> dict[str, Any]:
    """Return the listing of this code and these plugins. What a plugin on the line brought is never cached."""
    tree = of_these_sources()
    if "chomsky_ladder.harness.config.registry" not in sys.modules:
        return tree
    from chomsky_ladder.harness.cli import describe  # with torch

    return describe.listing(tree)


def of_these_sources() -> dict[str, Any]:
    """Return the listing without what a plugin named on the line brought."""
    key, path = key_of_sources(), _cache_file()
    cached = _opened(path)
    if cached is not None and cached.get("key") == key and "listing" in cached:
        return cached["listing"]
    print("weighing every task and model once for this code ..", file=sys.stderr)
    tree = _made()
    if path is not None and not tree["problems"]:
        with suppress(OSError):  # a folder that is not ours, or a full disk: it is made again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps({"key": key, "listing": tree}, indent=1) + "\n").encode())
    return tree


def _made() -> dict[str, Any]:
    """Weigh everything; in a process of its own where a plugin was named in this one."""
    from chomsky_ladder.harness.cli import describe  # with torch
    from chomsky_ladder.harness.config import rooms

    if not rooms.NAMED:
        return describe.listing()
    command = [sys.executable, "-c", "from chomsky_ladder.harness.cli.main import script; script()", "list", "--json"]
    alone = {name: value for name, value in os.environ.items() if name != rooms.VARIABLE}
    return json.loads(subprocess.run(command, env=alone, capture_output=True, check=True).stdout)


def key_of_sources() -> str:
    """Return a hash of all sources of a listing: those of the rooms and of installed plugins."""
    digest = hashlib.sha256()
    for name, content in _sources():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    for room in _ROOMS:
        files = (path for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".json"))
        for path in sorted(files):
            yield str(path.relative_to(ROOT)), path.read_bytes()
    for name in _OTHERS:
        yield name, (ROOT / name).read_bytes()
    for group in GROUPS:
        for entry in sorted(entry_points(group=group)):
            yield f"{group} {entry.name}", entry.value.encode()
            found = importlib.util.find_spec(entry.value.split(":")[0].partition(".")[0])
            origin = Path(found.origin) if found is not None and found.origin else None
            if origin is not None and origin.is_file():
                own = origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]
                for path in sorted(own):
                    yield str(path.relative_to(origin.parent)), path.read_bytes()


def _cache_file() -> Path | None:
    """Return the file for this place of the package, so that two clones do not overwrite each other's."""
    folder = cache_folder()
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
    return None if folder is None else folder / f"listing-{place}.json"


def _opened(path: Path | None) -> dict[str, Any] | None:
    try:
        tree = json.loads(path.read_bytes()) if path is not None else None
    except (OSError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None
