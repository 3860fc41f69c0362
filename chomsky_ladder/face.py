"""A package's public names, each imported from where it is defined when it is first asked for.

__getattr__, __dir__ = face(__name__, {"models.base": ("ModelConfig", "register")})
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def face(package: str, homes: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package; homes are modules of chomsky_ladder with names in them."""
    home_of = {name: f"chomsky_ladder.{home}" for home, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return found, lambda: sorted(home_of)
