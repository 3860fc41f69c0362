"""Which tasks and models there are: the files of the two rooms, installed plugins, and plugins named on the spot.

An installed package announces its modules by the entry points `ladder.models` and `ladder.tasks`; `load_plugin` takes
a module's name or a file's path. A file that does not import, or a name given twice, is a problem that `ladder list`
shows and that stops only those who ask for that name.
"""

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from chomsky_ladder import models, tasks
from chomsky_ladder.models.base import MODELS, ModelConfig
from chomsky_ladder.tasks.base import TASKS, Task

_problems: list[str] = []

Plugin = TypeVar("Plugin", bound=type)


@lru_cache(maxsize=1)
def discover() -> None:
    """Import everything that registers itself, once."""
    for room in (tasks, models):
        for module in sorted(info.name for info in pkgutil.iter_modules(room.__path__) if not info.ispkg):
            if not module.startswith("_"):
                _discover(f"{room.__name__}.{module}", f"{room.__name__.rpartition('.')[2]}/{module}.py")
    for group in ("ladder.tasks", "ladder.models"):
        for entry in sorted(entry_points(group=group)):
            _discover(entry.value.split(":")[0], f"plugin {entry.name!r} ({entry.value})")


def _discover(module: str, shown_as: str) -> None:
    error = _import(lambda: importlib.import_module(module))
    if error:
        _problems.append(f"{shown_as} does not import: {error}")


def load_plugin(path_or_module: str) -> None:
    """Import a plugin the user names; unlike a discovered one, it must work."""
    discover()
    path = Path(path_or_module)
    is_file = path.suffix == ".py" or path.is_file()
    if is_file and not path.is_file():
        raise ValueError(f"no such plugin file: {path}")
    error = _import(lambda: _import_file(path) if is_file else importlib.import_module(path_or_module))
    if error:
        raise ValueError(f"plugin {path_or_module} does not import: {error}")


def _import_file(path: Path) -> None:
    name = "ladder_plugin_" + re.sub(r"\W", "_", str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is imported
    spec.loader.exec_module(module)


def _import(run: Callable[[], object]) -> str:
    """Import something; if it raises, whatever it registered is taken back, and the error is one line."""
    registered = [(registry, list(registry)) for registry in (TASKS, MODELS)]
    try:
        run()
        for registry, before in registered:
            for cls in registry[len(before) :]:
                _usable(cls)
    except (Exception, SystemExit) as error:  # a plugin may break in any way, and must not take the others with it
        for registry, before in registered:
            registry[:] = before
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _usable(cls: type) -> None:
    """Refuse what no command could list: a class without a name, or whose defaults make no instance."""
    if not isinstance(getattr(cls, "name", None), str):
        raise TypeError(f"{cls.__name__} registers itself without a name")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", cls.name):  # it is a part of a folder's name
        raise TypeError(
            f"{cls.__name__} registers itself as {cls.name!r}: a name has letters, digits, _, - and . alone"
        )
    cls()


def find_task(name: str) -> type[Task]:
    return _find(name, all_tasks(), "task")


def find_model(name: str) -> type[ModelConfig]:
    return _find(name, all_models(), "model")


def find_part(name: str) -> tuple[str, type[Task] | type[ModelConfig]]:
    """The task or model of a name, and which of the two it is."""
    if name in all_tasks():
        return "task", find_task(name)
    if name in all_models():
        return "model", find_model(name)
    known = [*all_tasks(), *all_models()]
    hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}"
    raise ValueError(f"unknown task or model {name!r}{hint}")


def all_tasks() -> dict[str, list[type[Task]]]:
    """name -> the classes that claim it; one, unless there is a conflict."""
    discover()
    return _by_name(TASKS)


def all_models() -> dict[str, list[type[ModelConfig]]]:
    discover()
    return _by_name(MODELS)


def problems() -> list[str]:
    """What is wrong with the plugins here, a line each."""
    conflicts = [
        _conflict(name, kind, classes)
        for kind, registry in (("task", all_tasks()), ("model", all_models()))
        for name, classes in registry.items()
        if len(classes) > 1
    ]
    return [*_problems, *conflicts]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.5)
    likeness = [difflib.SequenceMatcher(None, other, name).ratio() for other in close]
    close = [other for other, ratio in zip(close, likeness, strict=True) if ratio > likeness[0] - 0.1]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _find(name: str, registry: dict[str, list[Plugin]], kind: str) -> Plugin:
    if name not in registry:
        hint = did_you_mean(name, registry) or f"; there are {', '.join(sorted(registry))}"
        broken = "".join(f" ({problem})" for problem in _problems if re.search(rf"\b{re.escape(name)}\b", problem))
        raise ValueError(f"unknown {kind} {name!r}{hint}{broken}")
    if len(registry[name]) > 1:
        raise ValueError(_conflict(name, kind, registry[name]))
    return registry[name][0]


def _conflict(name: str, kind: str, classes: list[type]) -> str:
    return f"{len(classes)} {kind}s are called {name!r}: {' and '.join(map(_file, classes))}"


def _file(cls: type) -> str:
    try:
        return inspect.getfile(cls)
    except (OSError, TypeError):  # typed into a session
        return cls.__module__


def _by_name(classes: list[Plugin]) -> dict[str, list[Plugin]]:
    """Grouped by name; a class imported again from the same file replaces its older self."""
    found: dict[str, dict[tuple[str, str], Plugin]] = {}
    for cls in classes:
        found.setdefault(cls.name, {})[_file(cls), cls.__qualname__] = cls
    return {name: list(entries.values()) for name, entries in found.items()}
