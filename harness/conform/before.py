"""The cheap half of `ladder check`, run before a user's own model trains: a leak would make all its numbers worthless.

    ladder: peek fails `ladder check`: the future never changes the past: outputs before a change: off by 1.61e+00.
    Mend it, or declare what it sees; --exec.unchecked trains it as it is

Tests check our own models.
"""

import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.origin import is_ours
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.conform.compare import as_exact_as
from chomsky_ladder.harness.conform.model import (
    rows_do_not_see_each_other,
    the_future_never_changes_the_past,
    wider_padding_changes_nothing,
)
from chomsky_ladder.harness.train.machine import pinned

LEAKS = (the_future_never_changes_the_past, wider_padding_changes_nothing, rows_do_not_see_each_other)


def refuse_leaks(runs: Sequence[Run], settings: Exec) -> None:
    """Refuse models that see the future, padding or other rows, unless they declare it or the check is off."""
    for model in () if settings.unchecked else dict.fromkeys(run.model for run in runs):
        if is_ours(type(model).__module__) or model.device == "cuda":
            continue
        for leak in LEAKS:
            try:
                with warnings.catch_warnings(action="ignore"), pinned(1), as_exact_as(model):
                    leak(model)
            except AssertionError as error:
                if not _is_of_a_check(error):
                    continue
                name = leak.__name__.replace("_", " ")
                raise ValueError(
                    f"{model.name} fails `ladder check`: {name}: {error}. Mend it, or declare what it sees; "
                    "--exec.unchecked trains it as it is"
                ) from None
            except Exception:  # a check that does not apply, or a broken model: training, or `check`, will report it
                continue


def _is_of_a_check(error: AssertionError) -> bool:
    """Return True for an assertion of a check, False for one in the model's own code."""
    return (
        Path(traceback.extract_tb(error.__traceback__)[-1].filename).resolve().parent == Path(__file__).resolve().parent
    )
