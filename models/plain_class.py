"""A user's own class as a model, by its name alone: `ladder run parity my_package.layers:Mean`.

    my_package.layers:Mean                      ->  a model called my_package_layers_mean, made as Mean(d_model, **args)
    --model.args '{"heads": 2}'                 ->  Mean(d_model, heads=2)

The class is an ordinary module, or a function that makes one (models/plain.py says what it may take and return). Such a
class may declare the arguments of `wrap` itself, by attributes of these names:

    class Mean(nn.Module):
        stands, sees, transition = "block", "all", "diagonal positive"
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from chomsky_ladder.models.plain import PlainArgsConfig, base_of, refuse_undeclarable

DECLARED = ("sees", "cost", "transition", "device", "exact", "title", "version", "year", "paper", "feed_forward")


@dataclass(frozen=True, kw_only=True)
class ClassConfig(PlainArgsConfig):
    """The settings of a class named on the command line."""

    made_by = None  # the class


def name_of(module: str, called: str) -> str:
    """Return the model's name: my_package.layers, Mean  ->  my_package_layers_mean"""
    return re.sub(r"\W+", "_", f"{module}_{called}").strip("_").lower()


def _made(made_by: Callable[..., nn.Module], called: str, width: int, given: dict[str, Any]) -> nn.Module:
    try:
        inspect.signature(made_by).bind(width, **given)
    except TypeError as error:
        words = ", ".join([str(width), *(f"{name}={value!r}" for name, value in given.items())])
        raise ValueError(f"{called}({words}): {error}. It is given the width and --model.args, a JSON object") from None
    return made_by(width, **given)


def config_of(made_by: Callable[..., nn.Module], *, name: str, called: str, module: str) -> type[ClassConfig]:
    """Return the config of a class, under a name, belonging to the module it was found in."""
    own = {key: getattr(made_by, key, None) for key in DECLARED}
    declared = {key: value for key, value in own.items() if isinstance(value, str | int)}  # `device` may be a property
    refuse_undeclarable(name, declared)
    base: Any = base_of(name, getattr(made_by, "stands", "layer"))
    space = {
        "__doc__": made_by.__doc__,
        "__module__": module,
        "name": name,
        "of_class": called,
        "made_by": staticmethod(made_by),
        "make": lambda self: _made(made_by, called, self.d_model, self.given),
        "year": 2026,
        "paper": "none",
        **declared,
    }
    cls = type(f"{called}Config", (ClassConfig, base), space)
    return dataclass(frozen=True, kw_only=True)(cls)
