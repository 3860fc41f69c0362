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
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

import models
import tasks
from models.base import MODELS, ModelConfig
from tasks.base import TASKS, Task

_problems: list[str] = []

Plugin = TypeVar("Plugin", bound=type)


@lru_cache(maxsize=1)
def discover() -> None:
    """Import everything that registers itself, once."""
    for room in (tasks, models):
        for module in sorted(info.name for info in pkgutil.iter_modules(room.__path__)):
            if not module.startswith("_"):
                _try_import(f"{room.__name__}.{module}", f"{room.__name__}/{module}.py")
    for group in ("ladder.tasks", "ladder.models"):
        for entry in sorted(entry_points(group=group)):
            _try_import(entry.value.split(":")[0], f"plugin {entry.name!r} ({entry.value})")


def load_plugin(path_or_module: str) -> None:
    """Import a plugin the user names; unlike a discovered one, it must work."""
    discover()
    path = Path(path_or_module)
    try:
        if path.suffix == ".py" or path.is_file():
            if not path.is_file():
                raise ValueError(f"no such plugin file: {path}")
            name = "ladder_plugin_" + re.sub(r"\W", "_", str(path.resolve()))
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses look their module up while it is imported
            spec.loader.exec_module(module)
        else:
            importlib.import_module(path_or_module)
    except ValueError:
        raise
    except Exception as error:  # whatever the plugin's code raises is the plugin's mistake
        raise ValueError(f"plugin {path_or_module} does not import: {_one_line(error)}") from error


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
    return f"{len(classes)} {kind}s are called {name!r}: {' and '.join(map(inspect.getfile, classes))}"


def _by_name(classes: list[Plugin]) -> dict[str, list[Plugin]]:
    """Grouped by name; a class imported again from the same file replaces its older self."""
    found: dict[str, dict[tuple[str, str], Plugin]] = {}
    for cls in classes:
        found.setdefault(cls.name, {})[inspect.getfile(cls), cls.__qualname__] = cls
    return {name: list(entries.values()) for name, entries in found.items()}


def _try_import(module: str, shown_as: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken plugin must not take the others with it
        _problems.append(f"{shown_as} does not import: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
