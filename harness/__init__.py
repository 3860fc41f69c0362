"""Chomsky Ladder's harness. What a script or a notebook needs:

from harness import grid, load, preset_run, sized, sweep

Each name is imported when it is first asked for: a command that only reads records does without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.build import load
    from harness.config import Eval, Run, Train
    from harness.exec import Exec
    from harness.protocols import grid, preset_run
    from harness.sizing import sized
    from harness.sweeps import sweep
    from harness.train import execute

__all__ = ["Eval", "Exec", "Run", "Train", "execute", "grid", "load", "preset_run", "sized", "sweep"]

_HOMES = {
    "build": ("load",),
    "config": ("Eval", "Run", "Train"),
    "exec": ("Exec",),
    "protocols": ("grid", "preset_run"),
    "sizing": ("sized",),
    "sweeps": ("sweep",),
    "train": ("execute",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"harness.{module}"), name)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
