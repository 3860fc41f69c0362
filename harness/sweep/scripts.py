"""A sweep's script: a Python file with a function `runs()` that returns its list of runs.

def runs() -> list[Run]:
    return grid(tasks=["parity"], models=["lstm", "mamba"], seeds=range(3))
"""

import importlib.util
import sys
from pathlib import Path

from chomsky_ladder.harness.config.run import Run


def runs_of(path: str) -> list[Run]:
    """The runs a script names; what is wrong with it is one line that names the file."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no such script: {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))  # as if it had been started itself
    try:
        spec.loader.exec_module(module)
        found = module.runs()
    except AttributeError:
        if hasattr(module, "runs"):
            raise
        raise ValueError(f"{path} has no function runs() that returns the runs of its sweep") from None
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{path} does not import: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    if not isinstance(found, list) or not found or not all(isinstance(run, Run) for run in found):
        raise ValueError(f"runs() of {path} must return a list of runs, not {type(found).__name__}")
    return found
