"""Models of other packages behind our embedding and head. Each file is a plugin that is loaded when it is named.

    ladder run parity huggingface --plugin chomsky_ladder.models.bridges.huggingface --model.kind llama

A package is imported when its model is first made, so none has to be installed. If it is missing, one line says what to
install. A bridge's results belong to the release of its package, as those of a plugin belong to its code.
"""

import importlib
from typing import Any


def needed(module: str, *, install: str) -> Any:
    """Return a package's module. If it is missing, raise ValueError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"it needs {module.partition('.')[0]}: pip install '{install}' ({error})") from None
