"""A sweep's script: a Python file with a function `runs()` that returns its list of runs.

def runs() -> list[Run]:
    return grid("parity", "lstm", protocol="xlstm_cpu", overrides={"train.steps": 500}, seeds=5)

A script may offer a search in place of a list: a function `search()` that returns a `halving(..)`.

A study of the literature (harness/sweep/studies/) needs no file. Its name stands for its runs at the budget of two
cores.
"""

import importlib.util
import sys
import traceback
from pathlib import Path

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.sweep.halving import Halving
from chomsky_ladder.harness.sweep.studies import find_study, studies


def runs_of(path: str, results: Path | None = None) -> list[Run]:
    """Return the runs of a script. A search has those of its rounds that are known from a results folder."""
    work = work_of(path)
    if isinstance(work, Halving):
        return [run for runs in work.rounds(results or default_results()) for run in runs]
    return work


def work_of(path: str) -> list[Run] | Halving:
    """Return the runs of a script, or its search. Report its mistakes in one line that names the file."""
    file = Path(path)
    if not file.exists() and path in studies():
        return find_study(path).runs()
    if not file.is_file():
        raise ValueError(f"no such script: {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))  # as if the script had been started itself
    try:
        spec.loader.exec_module(module)
        names = [name for name in ("runs", "search") if callable(getattr(module, name, None))]
        if not names:
            raise ValueError(f"{path} has no function runs() that returns the runs of its sweep, nor search()")
        if len(names) > 1:
            raise ValueError(f"{path} has both runs() and search(): keep one of them")
        found = getattr(module, names[0])()
    except ValueError:
        raise
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{path} does not import: {type(error).__name__}: {error}") from None
    except SystemExit as stop:  # the script's own, which would end the command without a word
        raise ValueError(
            f"{path} ends{_where(stop, file)} before it returns its runs: sys.exit({stop.code!r})"
        ) from None
    except Exception as error:  # anything may go wrong in the script
        raise ValueError(f"{path} breaks{_where(error, file)}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if names == ["search"]:
        if not isinstance(found, Halving):
            raise ValueError(f"search() of {path} must return a halving(..), not {type(found).__name__}")
        return found
    if found == []:
        raise ValueError(f"runs() of {path} returned no runs")
    if not isinstance(found, list) or not all(isinstance(run, Run) for run in found):
        held = {type(each).__name__: None for each in found} if isinstance(found, list) else [type(found).__name__]
        raise ValueError(f"runs() of {path} must return a list of runs, not {' and '.join(held)}")
    return found


def _where(error: BaseException, file: Path) -> str:
    """Return the last line of the script on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f" in line {lines[-1]}" if lines else ""
