"""Rooms: registries that fill themselves. A new file in a room's folder is a new thing of its kind.

    ROOM = open_room("table kind", "chomsky_ladder.harness.tables.kinds", "ladder.tables", KINDS)
    ROOM.find("accuracy")

When a module is imported, it registers its things in a list: classes with a `name`, or objects with a `name` and the
`module` that registers them. Modules are the files of the room's package, those that installed packages announce by the
room's group of entry points, and plugins named by the user. If a file does not import, what it registered is removed. A
broken file, or a name given twice, is a problem that `ladder list` shows. It only stops those who ask for that name. A
room is explored on first use, since some need torch and others do not.
"""

import difflib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from chomsky_ladder.harness.config.origin import ADDED, is_ours, origin

VARIABLE = "LADDER_PLUGINS"
_FEW = 20  # names that fit in a line
_problems: list[str] = []
NAMED: list[str] = []  # plugins that were loaded because a user named them


@dataclass(frozen=True, eq=False)
class Room:
    what: str  # the kind of things in it, such as "task"
    package: str  # its files register themselves, except those that begin with an underscore
    group: str  # of entry points
    entries: list[Any]  # in the order of registration

    def explore(self) -> None:
        """Import everything that registers itself here, once."""
        if self.group in _explored:
            return
        _explored.add(self.group)
        folder = self.package.partition(".")[2].replace(".", "/")
        path = importlib.import_module(self.package).__path__
        for module in sorted(info.name for info in pkgutil.iter_modules(path) if not info.ispkg):
            if not module.startswith("_"):
                _discover(f"{self.package}.{module}", f"{folder}/{module}.py")
        for entry in sorted(entry_points(group=self.group)):
            _discover(entry.value.split(":")[0], f"plugin {entry.name!r} ({entry.value})")

    def at_hand(self, name: str) -> Any:
        """Return our entry from the file of its name, importing no other file. None if that does not settle it."""
        module = f"{self.package}.{name}"
        if self.group in _explored or from_environment() or installed(self.group):
            return None
        if name.startswith("_") or not name.isidentifier() or importlib.util.find_spec(module) is None:
            return None
        if module not in sys.modules and _import(lambda: importlib.import_module(module)):
            sys.modules.pop(module, None)  # exploring the room will report the error
            return None
        return _settled([entry for entry in self.entries if entry.name == name and _module(entry) == module])

    def names(self) -> list[str]:
        """Return all names here, sorted."""
        return sorted(self.by_name())

    def all(self) -> list[Any]:
        """Return the entries by name: those without a conflict, and ours where there is one."""
        settled = (_settled(claims) for _, claims in sorted(self.by_name().items()))
        return [entry for entry in settled if entry is not None]

    def by_name(self) -> dict[str, list[Any]]:
        """Return the entries by name. More than one is a conflict. An entry imported again replaces itself."""
        self.explore()
        found: dict[str, dict[tuple[str, str], Any]] = {}
        for entry in self.entries:
            found.setdefault(entry.name, {})[_file(entry), getattr(entry, "__qualname__", entry.name)] = entry
        return {name: list(claims.values()) for name, claims in found.items()}

    def find(self, name: str, *, or_else: tuple[str, ...] = ()) -> Any:
        """Return the entry of that name. `or_else` lists other things that the user might have meant."""
        registry = self.by_name()
        if name not in registry:
            hint = hint_of(name, [*or_else, *registry], what=self.what)
            raise ValueError(f"unknown {self.what} {name!r}{hint}{broken(name)}")
        entry = _settled(registry[name])
        if entry is None:
            raise ValueError(self._conflict(name, registry[name]))
        return entry

    def conflicts(self) -> list[str]:
        return [self._conflict(name, claims) for name, claims in self.by_name().items() if len(claims) > 1]

    def _conflict(self, name: str, claims: list[Any]) -> str:
        said = f"{len(claims)} {self.what}s are called {name!r}: {' and '.join(map(_file, claims))}"
        return said if _settled(claims) is None else f"{said}; ours is taken, call the other otherwise"


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a room's group. They are cached, since reading them opens some hundred files."""
    return tuple(entry_points(group=group))


def _settled(claims: list[Any]) -> Any:
    """Return the entry that a name stands for: the only one, or the only one of ours; None if that is unclear."""
    if not claims:
        return None
    ours = [entry for entry in claims if is_ours(_module(entry))]
    return claims[0] if len(claims) == 1 else ours[0] if len(ours) == 1 else None


_rooms: list[Room] = []
_explored: set[str] = set()


def registered(thing: Any, room: Room) -> Any:
    """Put a thing into its room, with the name of the module that called the room's `register`."""
    thing = replace(thing, module=sys._getframe(2).f_globals["__name__"])
    room.entries.append(thing)
    return thing


def open_room(what: str, package: str, group: str, entries: list[Any]) -> Room:
    """Open a room whose plugins are loaded, and removed if they fail, together with those of all other rooms."""
    room = Room(what, package, group, entries)
    _rooms.append(room)
    return room


def _discover(module: str, shown_as: str) -> None:
    error = _import(lambda: importlib.import_module(module))
    if error:
        _problems.append(f"{shown_as} does not import: {error}")


def broken(name: str) -> str:
    """Return the problems that name a thing, in brackets, or ""."""
    return "".join(f" ({problem})" for problem in _problems if re.search(rf"\b{re.escape(name)}\b", problem))


def load(plugin: str) -> list[str]:
    """Import a plugin that the user names: a file, a module or a folder of files. Return warnings.

    A file or module must import. In a folder, one broken file does not stop the others. A folder's models/ and tasks/
    belong to it, as in a repository laid out like ours.
    """
    before, broken = _count(), []
    is_new = not {plugin, Path(plugin).resolve().name} & sys.modules.keys()
    if not plugin:  # an unset shell variable; as a path it would mean the current folder
        raise ValueError("--plugin needs a folder, a file or a module, not an empty name")
    path = Path(plugin)
    if path.is_dir() and not (path / "__init__.py").exists():
        parts = _parts(path)
        if not parts:
            raise ValueError(f"plugin {plugin}: there is no Python file in that folder, nor in its models/ and tasks/")
        for part in parts:
            try:
                _load(str(part))
            except ValueError as error:
                broken.append(str(error))
        if len(broken) == len(parts):
            raise ValueError(broken[0])
        _problems.extend(broken)
    else:
        _load(plugin)
    nothing = f"plugin {plugin} registers nothing: put @register on a class, or call register(wrap(..))"
    return broken or ([nothing] if is_new and _count() == before else [])


def _parts(folder: Path) -> list[Path]:
    """Return the files of a plugin's folder, and those of its models/ and tasks/, which may be packages."""
    found: list[Path] = []
    for place in (folder, folder / "models", folder / "tasks"):
        is_package = place != folder and (place / "__init__.py").exists()
        found += [place] if is_package else sorted(file for file in place.glob("*.py") if file.name[0] != "_")
    return found


def _count() -> int:
    return sum(len(room.entries) for room in _rooms)


def from_environment() -> list[str]:
    """Return the plugins that $LADDER_PLUGINS names, separated like the folders of $PATH."""
    return [word for word in os.environ.get(VARIABLE, "").split(os.pathsep) if word]


def _load(path_or_module: str) -> None:
    """Import a file, a module, or a package by its folder."""
    path = Path(path_or_module)
    if path.is_dir():
        search_too(path.resolve().parent)
        return taken(path_or_module, lambda: _import_package(path.resolve()), path)
    is_file = path.suffix == ".py" or path.is_file()
    if is_file and not path.is_file():
        raise ValueError(f"no such plugin file: {path}")
    if is_file:
        look_in(path.resolve().parent)
        return taken(path_or_module, lambda: import_file(path), path)
    search_too(Path.cwd())
    return taken(path_or_module, lambda: importlib.import_module(path_or_module), path)


def _import_package(folder: Path) -> None:
    """Import a package by its folder, and the modules in it."""
    package = importlib.import_module(folder.name)
    if Path(package.__path__[0]).resolve() != folder:
        raise ImportError(f"another package is called {folder.name}, in {package.__path__[0]}")
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            importlib.import_module(f"{folder.name}.{info.name}")


def look_in(folder: Path) -> None:
    """Let a plugin import its neighbours, and modules of the working folder. Installed modules take precedence."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        ADDED.add(str(folder.resolve()))


def search_too(folder: Path) -> None:
    """Search a folder in this process alone, even if it is already in sys.path: other processes work elsewhere."""
    look_in(folder)
    ADDED.add(str(folder))


def taken(path_or_module: str, run: Callable[[], object], path: Path) -> None:
    """Import a plugin. Refuse it if it does not import, or uses a name of ours."""
    NAMED.append(path_or_module)
    before = [(room, list(room.entries)) for room in _rooms]
    error = _import(run)
    if error:
        sys.modules.pop(_module_name(path), None)
        raise ValueError(f"plugin {path_or_module} does not import: {error}")
    for room, entries in before:
        for entry in room.entries[len(entries) :] if room.group in _explored else ():
            found = _settled(room.by_name()[entry.name])
            if found is not None and is_ours(_module(found)) and not is_ours(_module(entry)):
                for each, were in before:
                    each.entries[:] = were
                sys.modules.pop(_module_name(path), None)
                raise ValueError(
                    f"plugin {path_or_module}: there is a {room.what} {entry.name!r} here already, which is taken: "
                    "call yours otherwise"
                )


def problems() -> list[str]:
    """Return the problems with plugins on this machine, a line each."""
    conflicts = [conflict for room in _rooms for conflict in room.conflicts()]  # first, because it explores
    return [*_problems, *conflicts]


def there_are(known: Collection[str], *, what: str = "") -> str:
    """List all names, or the command that lists them if they are too many for a line."""
    command = "ladder doctor" if what == "kernel" else "ladder list"
    few = f"there are {', '.join(sorted(known))}"
    return few if len(known) <= _FEW else f"`{command}` has all {len(known)}"


def hint_of(name: str, known: Collection[str], *, what: str = "") -> str:
    """Suggest what an unknown name might be: misspelt, or of a plugin that was not named."""
    yours = "" if NAMED else "ne of yours: --plugin FILE"
    if meant := did_you_mean(name, known):
        return f"{meant} O{yours}" if yours else meant
    return f"; {there_are(known, what=what)}" + (f"; o{yours}" if yours else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.5)
    likeness = [difflib.SequenceMatcher(None, other, name).ratio() for other in close]
    close = [other for other, ratio in zip(close, likeness, strict=True) if ratio > likeness[0] - 0.1]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _module_name(path: Path) -> str:
    """Return a module name for a plugin's file that no file of the same stem shares."""
    return "ladder_plugin_" + re.sub(r"\W", "_", str(path.resolve()))


class _Source(SourceFileLoader):
    """A loader that ignores cached bytecode, which is out of date after two edits within one second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(path: Path) -> ModuleType:
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is imported
    spec.loader.exec_module(module)
    return module


def _import(run: Callable[[], object]) -> str:
    """Import something. If it raises, remove what it registered and return the error in one line."""
    registered = [(room.entries, list(room.entries)) for room in _rooms]
    try:
        run()
        for entries, before in registered:
            for entry in entries[len(before) :]:
                _usable(entry)
                if isinstance(entry, type):
                    origin(entry)  # hash it now: its file may be edited while this process runs
    except (Exception, SystemExit) as error:  # a plugin may break in any way, and must not stop the others
        for entries, before in registered:
            entries[:] = before
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _usable(entry: Any) -> None:
    """Refuse what no command could list: something without a name, or a class whose defaults make no instance."""
    called = getattr(entry, "__name__", type(entry).__name__)
    if not isinstance(getattr(entry, "name", None), str):
        raise TypeError(f"{called} registers itself without a name")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", entry.name):  # the name becomes part of a folder's name
        raise TypeError(f"{called} registers itself as {entry.name!r}: a name has letters, digits, _, - and . alone")
    if isinstance(entry, type):
        _refuse_hidden_methods(entry)
        entry()


def _refuse_hidden_methods(cls: type) -> None:
    """Refuse a field with the name of a method, because it would be called in the method's place."""
    for name in getattr(cls, "__dataclass_fields__", ()):
        for base in reversed(cls.__mro__):
            if inspect.isroutine(vars(base).get(name)):
                raise TypeError(f"{cls.__name__}'s field {name!r} hides {base.__name__}.{name}: call it otherwise")


def _module(entry: Any) -> str:
    return entry.__module__ if isinstance(entry, type) else entry.module


def _file(entry: Any) -> str:
    return _class_file(entry) if isinstance(entry, type) else _file_of(entry.module, None)


@cache
def _class_file(cls: type) -> str:
    """Return the file a class comes from. It is cached, since every look for a name asks for that of all classes."""
    return _file_of(cls.__module__, cls)


def _file_of(module: str, cls: type | None) -> str:
    try:
        return inspect.getfile(cls or sys.modules[module])
    except (OSError, TypeError, KeyError):  # typed into a session
        return module
