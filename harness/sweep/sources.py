"""The files and modules that define what runs need, for processes that have to find them."""

import sys
from collections.abc import Iterable
from pathlib import Path

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models.kernels.kernel import KERNELS


def sources(runs: Iterable[Run]) -> tuple[str, ...]:
    """The modules and files of those tasks and models, and of kernels for them, that no other process would find."""
    classes = dict.fromkeys(type(part) for run in runs for part in (run.task, run.model))
    needed = [(cls.name, cls.__module__) for cls in classes]
    served = {cls.name for cls in classes}
    needed += [(kernel.name, kernel.module) for kernel in KERNELS if not served.isdisjoint(kernel.serves)]
    found = {}
    for name, module in needed:
        if module.startswith("chomsky_ladder."):
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            raise ValueError(f"{name} was typed into a session: put it in a file, where Ray's workers find it")
        found[_importable(module, file) or str(Path(file).resolve())] = None
    return tuple(found)


def _importable(module: str, file: str) -> str:
    """The module's name if importing it in another process gives that file; one in `sys.modules` proves nothing."""
    top = module.partition(".")[0]
    found = filter(None, (finder.find_spec(top, None) for finder in sys.meta_path))
    origin = next((spec.origin for spec in found), None)
    loaded = getattr(sys.modules.get(top), "__file__", file)
    return module if origin is not None and origin == loaded else ""
