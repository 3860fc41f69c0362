"""The registered tasks, models and kernels: from files of their rooms, installed plugins, and plugins named by the
user.

An installed package announces its modules by the entry points `ladder.tasks`, `ladder.models` and `ladder.kernels`.
`load_plugin` and $LADDER_PLUGINS take the name of a module, a file or a folder, which may bring things of every kind.
`load_plugin` also takes MODULE:CLASS (harness/config/classes.py), which may stand wherever a model's name is expected.
"""

import shlex
import sys
from collections.abc import Collection, Iterable, Iterator

from chomsky_ladder.harness.config import classes, rooms
from chomsky_ladder.harness.config.rooms import hint_of, open_room
from chomsky_ladder.models.base import MODELS, ModelConfig
from chomsky_ladder.models.kernels.kernel import KERNELS, RESERVED
from chomsky_ladder.tasks.base import TASKS, Task

_KERNELS = open_room("kernel", "chomsky_ladder.models.kernels", "ladder.kernels", KERNELS)
_TASKS = open_room("task", "chomsky_ladder.tasks", "ladder.tasks", TASKS)
_MODELS = open_room("model", "chomsky_ladder.models", "ladder.models", MODELS)


def discover() -> None:
    """Import everything that registers itself, once. A model needs its kernels, so all rooms are explored together."""
    for room in (_KERNELS, _TASKS, _MODELS):  # kernels first: models import them too
        room.explore()
    for plugin in rooms.from_environment():
        if plugin not in _loaded:
            _loaded.add(plugin)  # before loading it: a module that it imports may call this, too
            rooms.load(plugin)


_loaded: set[str] = set()  # of $LADDER_PLUGINS


def _task_at_hand(name: str) -> type[Task] | None:
    """Return our task if its own file settles it. Importing all the others would take half a second."""
    return _TASKS.at_hand(name)


def _model_at_hand(name: str) -> type[ModelConfig] | None:
    """Return our model if its own file settles it and it contains no other models.

    No installed package may add kernels.
    """
    if rooms.installed(_KERNELS.group):
        return None
    _KERNELS.explore()
    found = _MODELS.at_hand(name)
    return None if found is None or found.names_others else found


def is_task(name: str) -> bool:
    return _task_at_hand(name) is not None or name in all_tasks()


def load_plugin(plugin: str) -> list[str]:
    """Import a plugin that the user names: a file, a folder or a module. Return warnings."""
    discover()
    return _load(plugin)


def _load(plugin: str) -> list[str]:
    if classes.is_class(plugin):
        classes.load(plugin)
        return []
    return rooms.load(plugin)


def refuse_missing(plugins: Iterable[str], *, task: str, model: str) -> None:
    """Name the plugins that a config needs and that are not loaded. Never load them: the config may be a stranger's."""
    if task not in all_tasks() or model not in all_models():
        words = shlex.join(word for plugin in plugins for word in ("--plugin", plugin))
        raise ValueError(f"it was made with a plugin, which no config loads by itself; if you trust it: {words}")


def refuse_class(name: str) -> None:
    """Refuse MODULE:CLASS as a recorded name, since looking it up would import the module."""
    if classes.is_class(name):
        raise ValueError(f"{name!r} is no name of a task or model")


def find_task(name: str) -> type[Task]:
    if (found := _task_at_hand(name)) is not None:
        return found
    _refuse_unregistered(name, all_tasks(), Task)
    return _TASKS.find(name)


def find_model(name: str) -> type[ModelConfig]:
    if classes.is_class(name):
        discover()
        return _MODELS.find(classes.load(name))
    if (found := _model_at_hand(name)) is not None:
        return found
    _refuse_unregistered(name, all_models(), ModelConfig)
    return _MODELS.find(name)


def _refuse_unregistered(name: str, known: Collection[str], base: type) -> None:
    """Refuse the name of a class that exists but is not registered, with that reason.

    If its file did not import, the room says so.
    """
    if name in known or rooms.broken(name):
        return
    for cls in _below(base):
        if vars(cls).get("name") != name or cls.__module__ not in sys.modules:
            continue
        if "make" in vars(cls):  # made by wrap(), which assigns no name in its module
            raise ValueError(f"{name!r} is made by wrap() but not registered: register(wrap({name!r}, ..))")
        if getattr(sys.modules[cls.__module__], cls.__name__, None) is cls:  # its module was imported completely
            raise ValueError(f"{cls.__name__} is called {name!r} but not registered: put @register on it")


def _below(cls: type) -> Iterator[type]:
    for inner in cls.__subclasses__():
        yield inner
        yield from _below(inner)


def find_part(name: str) -> tuple[str, type[Task] | type[ModelConfig]]:
    """Return "task" or "model", and the class of this name."""
    if name in all_tasks():
        return "task", find_task(name)
    if name in all_models() or classes.is_class(name):
        return "model", find_model(name)
    for base in (Task, ModelConfig):
        _refuse_unregistered(name, (), base)
    known = [*all_tasks(), *all_models()]
    raise ValueError(f"unknown task or model {name!r}{hint_of(name, known)}")


def check_backend(name: str, *, where: str) -> None:
    """Refuse a backend that is neither a kernel's name nor `auto` nor `reference`."""
    if name in RESERVED:
        return
    try:
        _KERNELS.find(name, or_else=RESERVED)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def all_tasks() -> dict[str, list[type[Task]]]:
    """Return the task classes by name. More than one class for a name is a conflict."""
    discover()
    return _TASKS.by_name()


def all_models() -> dict[str, list[type[ModelConfig]]]:
    discover()
    return _MODELS.by_name()


def problems() -> list[str]:
    """Return the problems with plugins on this machine, a line each."""
    discover()
    return rooms.problems()
