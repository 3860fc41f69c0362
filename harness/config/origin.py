"""Whose code a task, model or kernel is: ours, or a plugin's, with a digest of its code (harness/config/code.py).

    rm.py, which imports layers.py beside it     rm.py e6ea1c0d2f84            hashed: rm.py and layers.py
    ladder_example.running_mean, of a package    ladder_example.running_mean 77aa0b19c2de
    chomsky_ladder.models.bridges.huggingface    transformers 1d0e5f2a7b33  hashed: the package's release, the bridge
    chomsky_ladder.models.lstm                   None: ours has versions and golden values

What a plugin's version does not say, the hash does: results are used again, gone on with and put into one cell only if
it is the same. A file that is moved keeps its hash, so a plugin that becomes a file of a room keeps its results.
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
ADDED: set[str] = set()  # folders that are searched because a plugin was named; no other process does


@dataclass(frozen=True)
class Origin:
    """The code of a plugin's task, model or kernel."""

    called: str
    """The name of its file, or of its module in a package."""
    digest: str
    """The digest of what all its files say."""
    files: tuple[Path, ...]

    @property
    def short(self) -> str:
        return f"{self.called} {self.digest}"

    def plain(self) -> dict[str, Any]:
        """As a record's provenance holds it, with its distribution and commit where there are such."""
        found = _distribution(self.called.split(maxsplit=1)[0].removesuffix(".py").partition(".")[0])
        about = {} if found is None else {"distribution": found.metadata["Name"], "version": found.version}
        return {"from": self.called, "sha256": self.digest, **about, **_commit(self.files, found)}


def origin(cls: type) -> Origin | None:
    """Whose code a class is; None for ours, and for what was typed into a session, of which nothing is known."""
    if is_asked_for(cls.__module__):
        return _bridged(cls)
    return None if is_ours(cls.__module__) else _origin(cls.__module__, cls)


@cache
def _bridged(cls: Any) -> Origin:
    """Of a bridge to other packages: their releases, and its own file."""
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
    """Whether it is one of ours that is found only when somebody names it as a plugin."""
    return module.startswith(f"{BRIDGES}.")


@cache  # what was imported, not what its file holds by now; a class imported anew is another one
def _origin(module: str, cls: type | None) -> Origin | None:
    try:
        file = Path(inspect.getfile(sys.modules[module] if cls is None else cls)).resolve()
        root = _package_root(module, file)
        files = files_of(file, root)
        return Origin(file.name if root is None else module, digest(files), tuple(files.values()))
    except (OSError, TypeError, KeyError, SyntaxError):
        return None


def origin_of_module(module: str) -> Origin | None:
    """Of what a module registers that is no class, such as a kernel."""
    return None if is_ours(module) else _origin(module, None)


def found_now(word: str) -> dict[tuple[str, str], Path]:
    """The file of each name and digest by which the code that a `--plugin` names might go now, imported by nobody.

    A file may have been imported alone or as part of the package around it: both are given.
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
    """What the file of a class would be called by if it were a plugin's; "" if it has none."""
    try:
        return digest(files_of(Path(inspect.getfile(cls)).resolve()))
    except (OSError, TypeError, SyntaxError):
        return ""


def _package_root(module: str, file: Path) -> Path | None:
    """The folder of the top-level package a module is in; None for a module that stands alone."""
    top, *inner = module.split(".")
    if not inner and file.name != "__init__.py":
        return None
    found = getattr(sys.modules.get(top), "__file__", None)
    up = file.parents[len(inner) - 1 if file.name != "__init__.py" else len(inner)]
    return Path(found).resolve().parent if found else up


@cache
def _distributions() -> Mapping[str, list[str]]:
    """The top-level packages that are installed, with the distributions that have them."""
    return metadata.packages_distributions()


@cache
def _distribution(package: str) -> metadata.Distribution | None:
    """The installed distribution that has a top-level package, if one has."""
    for name in _distributions().get(package.removesuffix(".py"), ()):
        return metadata.distribution(name)
    return None


@cache
def _commit(files: tuple[Path, ...], found: metadata.Distribution | None) -> dict[str, Any]:
    """The commit it was installed from, or that of the repository its files are tracked in."""
    installed = "" if found is None else installed_commit(found)
    return {"commit": installed, "dirty": None} if installed else commit_of(files)


def load_words(
    modules: Iterable[tuple[str, str, str]], *, typed: Literal["refuse", "pass"] = "refuse"
) -> Iterator[str]:
    """What `--plugin` takes to load things again, each given by its name, its module and, if it was named as a class of
    that module, the class; nothing for what is ours.

    What was typed into a session is refused, or passed by.
    """
    for name, module, of_class in modules:
        if is_asked_for(module):  # ours, so it is wherever this is
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
    """The module's name if importing it in another process gives that file; one in `sys.modules` proves nothing."""
    top = module.partition(".")[0]
    found = filter(None, (finder.find_spec(top, None) for finder in sys.meta_path))
    here = next((spec.origin for spec in found), None)
    loaded = getattr(sys.modules.get(top), "__file__", None) or file  # a folder without __init__ has none
    beside = Path(loaded).parent if Path(loaded).name != "__init__.py" else Path(loaded).parents[1]
    if str(beside.resolve()) in ADDED and sys.path.count(str(beside.resolve())) < 2:  # twice: not by us alone
        return ""
    return module if here is not None and here == loaded else ""
