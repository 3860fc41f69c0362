"""The files and modules that define what runs need, for processes that have to find them.

sources(runs)  ->  ('ladder_example.first_symbol', '/home/ada/rm.py')        each a word for `--plugin`
"""

from collections.abc import Iterable

from chomsky_ladder.harness.config.origin import load_words
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models.kernels.kernel import KERNELS


def sources(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the modules and files of the runs' plugins, with kernels for them, that a new process would not find."""
    classes = dict.fromkeys(type(part) for run in runs for part in (run.task, run.model))
    needed = [(cls.name, cls.__module__, getattr(cls, "of_class", "")) for cls in classes]
    served = {cls.name for cls in classes}
    needed += [(kernel.name, kernel.module, "") for kernel in KERNELS if kernel.serving(served)]
    return tuple(dict.fromkeys(load_words(needed)))
