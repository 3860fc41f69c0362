"""Models of other packages behind our embedding and head: each file a plugin that is loaded when it is named.

    ladder run parity huggingface --plugin chomsky_ladder.models.bridges.huggingface --model.kind llama

A package is imported when its model is first made, so that none has to be here; without it there is one line that says
what to install. A bridge's results belong to the release of its package, as those of a plugin to its code.
"""

import importlib
from typing import Any


def needed(module: str, *, install: str) -> Any:
    """A package's module; where it is missing, what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"it needs {module.partition('.')[0]}: pip install '{install}' ({error})") from None
