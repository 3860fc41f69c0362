"""Sweeps of the literature, one file each: `runs(budget)` lists the runs, `table(runs, results)` shows the results.

studies()  ->  {"depth": "The least depth at which a model solves a length: ..", ..}
"""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from chomsky_ladder.harness.config.rooms import did_you_mean


def studies() -> dict[str, str]:
    """Return every study's name, with the first paragraph of its file."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return {name: _about(Path(__path__[0]) / f"{name}.py") for name in names}


def find_study(name: str) -> ModuleType:
    known = studies()
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise ValueError(f"unknown study {name!r}{hint}")
    return importlib.import_module(f"{__name__}.{name}")


def _about(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split())
