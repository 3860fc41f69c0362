"""A class in place of a model's name: MODULE:CLASS, wherever `ladder` takes a model, and as `--plugin`.

    my_package.layers:Mean              a module that can be imported, or one of the working folder
    layers.py:Mean                      a file, from the working folder or beside the script of the sweep
    /home/ada/my_package.layers:Mean    a module in a folder: how config.json names one that is not installed

The class becomes a model (models/plain_class.py) under a new name, my_package_layers_mean, which records and tables
use. Its code is hashed like that of any plugin (harness/config/origin.py).
"""

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from chomsky_ladder.harness.config import rooms
from chomsky_ladder.harness.config.rooms import did_you_mean
from chomsky_ladder.models.base import MODELS, ModelConfig, register
from chomsky_ladder.models.plain_class import ClassConfig, config_of, name_of


def is_class(word: str) -> bool:
    """Return True if a word names a class in a module."""
    return re.fullmatch(r".+:[A-Za-z_]\w*", word) is not None


def load(word: str) -> str:
    """Register the class as a model. Return the model's name."""
    where, _, called = word.rpartition(":")
    modules: list[ModuleType] = []
    rooms.taken(word, lambda: modules.append(_module(where)), Path(where))
    made_by, name = _found(modules[0], where, called), _name(where, called)
    if not any(issubclass(cls, ClassConfig) and cls.name == name and cls.made_by is made_by for cls in MODELS):
        config = config_of(made_by, name=name, called=called, module=modules[0].__name__)
        rooms.taken(word, lambda: register(config), Path(where))
    return name


def _found(module: ModuleType, where: str, called: str) -> Any:
    """Return the class, or function, of a module."""
    found = getattr(module, called, None)
    if isinstance(found, type) and issubclass(found, ModelConfig):
        raise ValueError(f"{where}:{called} is a model's config: put @register on it, and name the model by its name")
    if isinstance(found, type) and not issubclass(found, nn.Module):
        raise ValueError(f"{where}:{called} is no nn.Module, which a model is made of")
    if not callable(found):
        known = [name for name, value in vars(module).items() if _is_here(value, module)]
        there = f"; there are {', '.join(known)}" if known else ""
        raise ValueError(f"{where} has no class {called!r}{did_you_mean(called, known) or there}")
    return found


def _is_here(value: Any, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__


def _name(where: str, called: str) -> str:
    return name_of(Path(where).stem if where.endswith(".py") else Path(where).name, called)


def _module(where: str) -> ModuleType:
    """Return the module named by the part of a word before the colon."""
    path = Path(where)
    if where.endswith(".py"):
        return _of_file(path)
    folder = Path.cwd() if path.name == where else path.resolve().parent
    rooms.search_too(folder)
    module = importlib.import_module(path.name)
    lies_in = Path(inspect.getfile(module)).resolve()
    if path.name != where and not lies_in.is_relative_to(folder):
        raise ImportError(f"another module is called {path.name}, in {lies_in}")
    return module


def _of_file(path: Path) -> ModuleType:
    """Import a file, again if it has been edited since the last import."""
    if not path.is_file() and not path.is_absolute():  # a sweep's script has its folder first in sys.path
        path = next((found for folder in sys.path[:1] if (found := Path(folder) / path).is_file()), path)
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    rooms.look_in(path.resolve().parent)
    content, (before, module) = path.read_bytes(), _files.get(path.resolve(), (b"", None))
    if module is None or content != before:
        module = rooms.import_file(path)
        _files[path.resolve()] = content, module
    return module


_files: dict[Path, tuple[bytes, ModuleType | None]] = {}  # imported here: the content at that time, and the module
