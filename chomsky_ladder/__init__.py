"""Chomsky Ladder's one import name. What a script or a notebook needs is here:

    from chomsky_ladder import grid, load, records, sample, sweep, table

and what a plugin needs in `chomsky_ladder.models` and `chomsky_ladder.tasks`. In a clone the three rooms are links to
the folders beside this one; installed, they are folders. Each name is imported when it is first asked for: a command
that only reads records does without torch.
"""

import sys
from typing import TYPE_CHECKING

from chomsky_ladder.face import face

if not __debug__:
    print(
        "ladder: -O and PYTHONOPTIMIZE remove the assertions that guard results: start Python without", file=sys.stderr
    )
    sys.exit(2)

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.exec import Exec
    from chomsky_ladder.harness.config.protocols import grid, preset_run
    from chomsky_ladder.harness.config.random_search import log_uniform, random_search, uniform
    from chomsky_ladder.harness.config.run import Eval, Run, Train
    from chomsky_ladder.harness.config.sizing import sized
    from chomsky_ladder.harness.inside.written import generate
    from chomsky_ladder.harness.sweep.halving import halving
    from chomsky_ladder.harness.sweep.study import study_runs
    from chomsky_ladder.harness.sweep.sweep import sweep
    from chomsky_ladder.harness.tables.frames import records, table
    from chomsky_ladder.harness.train.build import load
    from chomsky_ladder.harness.train.loop import execute
    from chomsky_ladder.harness.train.samples import Sample, sample

__all__ = [
    "Eval",
    "Exec",
    "Run",
    "Sample",
    "Train",
    "execute",
    "generate",
    "grid",
    "halving",
    "load",
    "log_uniform",
    "preset_run",
    "random_search",
    "records",
    "sample",
    "sized",
    "study_runs",
    "sweep",
    "table",
    "uniform",
]

_HOMES = {
    "harness.config.exec": ("Exec",),
    "harness.config.protocols": ("grid", "preset_run"),
    "harness.config.random_search": ("log_uniform", "random_search", "uniform"),
    "harness.config.run": ("Eval", "Run", "Train"),
    "harness.config.sizing": ("sized",),
    "harness.inside.written": ("generate",),
    "harness.sweep.halving": ("halving",),
    "harness.sweep.study": ("study_runs",),
    "harness.sweep.sweep": ("sweep",),
    "harness.tables.frames": ("records", "table"),
    "harness.train.build": ("load",),
    "harness.train.loop": ("execute",),
    "harness.train.samples": ("Sample", "sample"),
}

__getattr__, __dir__ = face(__name__, _HOMES)
