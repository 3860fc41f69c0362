"""Chomsky Ladder's one import name. What a script or a notebook needs is here:

    from chomsky_ladder import grid, load, preset_run, sized, sweep

and what a plugin needs in `chomsky_ladder.models` and `chomsky_ladder.tasks`. In a clone the three rooms are links to
the folders beside this one; installed, they are folders. Each name is imported when it is first asked for: a command
that only reads records does without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.exec import Exec
    from chomsky_ladder.harness.config.protocols import grid, preset_run
    from chomsky_ladder.harness.config.run import Eval, Run, Train
    from chomsky_ladder.harness.config.sizing import sized
    from chomsky_ladder.harness.sweep.sweep import sweep
    from chomsky_ladder.harness.train.build import load
    from chomsky_ladder.harness.train.loop import execute

__all__ = ["Eval", "Exec", "Run", "Train", "execute", "grid", "load", "preset_run", "sized", "sweep"]

_HOMES = {
    "config.exec": ("Exec",),
    "config.protocols": ("grid", "preset_run"),
    "config.run": ("Eval", "Run", "Train"),
    "config.sizing": ("sized",),
    "sweep.sweep": ("sweep",),
    "train.build": ("load",),
    "train.loop": ("execute",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"chomsky_ladder.harness.{module}"), name)
    raise AttributeError(f"module 'chomsky_ladder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
