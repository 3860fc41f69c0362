"""The files and modules that define the tasks and models of runs, for processes that have to find them."""

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

from chomsky_ladder.harness.config.run import Run


def sources(runs: Iterable[Run]) -> tuple[str, ...]:
    """The modules and files that define those tasks and models of the runs that no other process would find."""
    found = {}
    for cls in dict.fromkeys(type(part) for run in runs for part in (run.task, run.model)):
        if cls.__module__.startswith("chomsky_ladder."):
            continue
        try:
            file = inspect.getfile(cls)
        except (OSError, TypeError):
            raise ValueError(
                f"{cls.name} was typed into a session: put it in a file, where Ray's workers find it"
            ) from None
        found[_importable(cls.__module__, file) or str(Path(file).resolve())] = None
    return tuple(found)


def _importable(module: str, file: str) -> str:
    """The module's name if importing it in another process gives that file; one in `sys.modules` proves nothing."""
    top = module.partition(".")[0]
    found = filter(None, (finder.find_spec(top, None) for finder in sys.meta_path))
    origin = next((spec.origin for spec in found), None)
    loaded = getattr(sys.modules.get(top), "__file__", file)
    return module if origin is not None and origin == loaded else ""
