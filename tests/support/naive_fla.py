"""The naive functions of flash-linear-attention, which nobody else in a process of tests gets to see.

transformers takes the package's Triton kernels for its own models wherever it finds it, also where there is no GPU.
"""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_spec = importlib.util.find_spec("fla")
IS_THERE = _spec is not None
_found: dict[str, Any] = {}  # the package, once it was imported


def hide() -> None:
    """Hide fla from all imports but those made here."""
    sys.modules["fla"] = None  # pyright: ignore[reportArgumentType]


def naive(module: str, name: str) -> Callable[..., Any]:
    """A function of fla/ops/MODULE/naive.py."""
    sys.modules.pop("fla", None)
    sys.modules.update(_found)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without a GPU, as it is imported
            function = getattr(importlib.import_module(f"fla.ops.{module}.naive"), name)
        _found["fla"] = sys.modules["fla"]
    finally:
        hide()
    return function


def naive_alone(module: str, name: str) -> Callable[..., Any]:
    """Load a function from a file without dependencies, in a package that needs more than fla-core has."""
    assert _spec is not None and _spec.submodule_search_locations is not None
    path = Path(_spec.submodule_search_locations[0], "ops", module, "naive.py")
    found = importlib.util.spec_from_file_location(f"{module}_naive", path)
    assert found is not None and found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return getattr(made, name)
