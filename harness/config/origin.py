"""The origin of a task's, model's or kernel's code: ours, or a plugin's with a digest (harness/config/code.py).

    rm.py, which imports layers.py beside it     rm.py e6ea1c0d2f84            hashed: rm.py and layers.py
    ladder_example.running_mean, of a package    ladder_example.running_mean 77aa0b19c2de
    chomsky_ladder.models.bridges.huggingface    transformers 1d0e5f2a7b33  hashed: the package's release, the bridge
    chomsky_ladder.models.lstm                   None: ours has versions and golden values

The hash detects edits that leave a plugin's version unchanged. Results are reused, resumed and put into one cell only
if hashes agree. A moved file keeps its hash, so a plugin that becomes a file of a room keeps its results.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Literal

from chomsky_ladder.harness.config.code import OURS, digest, files_of
from chomsky_ladder.harness.store.checkout import commit_of, installed_commit

BRIDGES = f"{OURS}.models.bridges"
ADDED: set[str] = set()  # folders this process searches because a plugin was named


@dataclass(frozen=True)
class Origin:
    """The code of a plugin's task, model or kernel."""

    called: str
    """The name of its file, or of its module in a package."""
    digest: str
    """The digest of the code in all its files."""
    files: tuple[Path, ...]

    @property
    def short(self) -> str:
        return f"{self.called} {self.digest}"

    def plain(self) -> dict[str, Any]:
        """Return the origin as a record's provenance holds it, with distribution and commit if there are any."""
        found = _distribution(self.called.split(maxsplit=1)[0].removesuffix(".py").partition(".")[0])
        about = {} if found is None else {"distribution": found.metadata["Name"], "version": found.version}
        return {"from": self.called, "sha256": self.digest, **about, **_commit(self.files, found)}


def origin(cls: type) -> Origin | None:
    """Return the origin of a class; None if it is ours, or was typed into a session."""
    if is_asked_for(cls.__module__):
        return _bridged(cls)
    return None if is_ours(cls.__module__) else _origin(cls.__module__, cls)


@cache
def _bridged(cls: Any) -> Origin:
    """Return the origin of a bridge: the other packages' releases, and the digest of its own file."""
    file = Path(inspect.getfile(cls)).resolve()
    made = hashlib.sha256(digest({"": file}).encode() + "".join(map(_release, cls.packages)).encode())
    return Origin(" ".join(cls.packages), made.hexdigest()[:12], (file,))


def _release(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}\n"
    except metadata.PackageNotFoundError:
        return f"{package} is missing\n"


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == OURS


def is_asked_for(module: str) -> bool:
    """Return True for modules of ours that are only loaded when a user names them as a plugin."""
    return module.startswith(f"{BRIDGES}.")


@cache  # keeps the code as imported, not as edited since; a class imported again is another key
def _origin(module: str, cls: type | None) -> Origin | None:
    try:
        file = Path(inspect.getfile(sys.modules[module] if cls is None else cls)).resolve()
        root = _package_root(module, file)
        files = files_of(file, root)
        return Origin(file.name if root is None else module, digest(files), tuple(files.values()))
    except (OSError, TypeError, KeyError, SyntaxError):
        return None


def origin_of_module(module: str) -> Origin | None:
    """Return the origin of a module that registers something else than a class, such as a kernel."""
    return None if is_ours(module) else _origin(module, None)


def found_now(word: str) -> dict[tuple[str, str], Path]:
    """Return the file of each (name, digest) that a `--plugin` word may have now, without importing anything.

    A file may have been imported alone or as part of the package around it: both are listed.
    """
    named = Path(word)
    path = named if named.exists() or ":" not in named.name else Path(word.rpartition(":")[0])
    if not path.exists() and not path.is_absolute():
        found = PathFinder.find_spec(path.name.partition(":")[0].partition(".")[0])
        path = Path(found.origin) if found is not None and found.origin else path
    files = [path.resolve()] if path.is_file() else sorted(path.resolve().glob("*.py"))
    candidates: dict[tuple[str, str], Path] = {}
    for file in files:
        with suppress(OSError, SyntaxError):
            candidates[file.name, digest(files_of(file))] = file
    around = path.resolve().parent if path.is_file() else path.resolve()
    while (around / "__init__.py").is_file():
        for file in sorted(around.rglob("*.py")):
            with suppress(OSError, SyntaxError):
                module = file.relative_to(around.parent).with_suffix("").parts
                candidates[".".join(module).removesuffix(".__init__"), digest(files_of(file, around))] = file
        around = around.parent
    return candidates


def digest_of_file(cls: type) -> str:
    """Return the digest that a class's file would have as a plugin; "" if it has no file."""
    try:
        return digest(files_of(Path(inspect.getfile(cls)).resolve()))
    except (OSError, TypeError, SyntaxError):
        return ""


def _package_root(module: str, file: Path) -> Path | None:
    """Return the folder of a module's top-level package; None for a module that stands alone."""
    top, *inner = module.split(".")
    if not inner and file.name != "__init__.py":
        return None
    found = getattr(sys.modules.get(top), "__file__", None)
    up = file.parents[len(inner) - 1 if file.name != "__init__.py" else len(inner)]
    return Path(found).resolve().parent if found else up


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the installed top-level packages, each with the distributions that contain it."""
    return metadata.packages_distributions()


@cache
def _distribution(package: str) -> metadata.Distribution | None:
    """Return the installed distribution that contains a top-level package, or None."""
    for name in _distributions().get(package.removesuffix(".py"), ()):
        return metadata.distribution(name)
    return None


@cache
def _commit(files: tuple[Path, ...], found: metadata.Distribution | None) -> dict[str, Any]:
    """Return the commit a distribution was installed from, else that of the repository which tracks the files."""
    installed = "" if found is None else installed_commit(found)
    return {"commit": installed, "dirty": None} if installed else commit_of(files)


def load_words(
    modules: Iterable[tuple[str, str, str]], *, typed: Literal["refuse", "pass"] = "refuse"
) -> Iterator[str]:
    """Yield the `--plugin` words that load things again in another process; nothing for our own.

    Each thing is given by its name, its module and its class ("" unless it was named as MODULE:CLASS). Things typed
    into a session are refused, or skipped.
    """
    for name, module, of_class in modules:
        if is_asked_for(module):  # a bridge of ours, which exists wherever we are installed
            yield module
        if is_ours(module):
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None and typed == "pass":
            continue
        if file is None:
            raise ValueError(f"{name} was typed into a session: put it in a file, where others find it")
        root = _package_root(module, Path(file).resolve())
        found = _importable(module, file)
        if not of_class:
            yield found or str(root or Path(file).resolve())
        elif found:
            yield f"{found}:{of_class}"
        else:  # a module of a package is named from the folder that holds the package
            yield f"{root.parent / module if root else Path(file).resolve()}:{of_class}"


def _importable(module: str, file: str) -> str:
    """Return the module's name if importing it in a new process finds that file, else "".

    A module may be in `sys.modules` although a new process would not find it.
    """
    top = module.partition(".")[0]
    found = filter(None, (finder.find_spec(top, None) for finder in sys.meta_path))
    here = next((spec.origin for spec in found), None)
    loaded = getattr(sys.modules.get(top), "__file__", None) or file  # a folder without __init__ has no file
    beside = Path(loaded).parent if Path(loaded).name != "__init__.py" else Path(loaded).parents[1]
    if str(beside.resolve()) in ADDED and sys.path.count(str(beside.resolve())) < 2:  # once: only we added it
        return ""
    return module if here is not None and here == loaded else ""
