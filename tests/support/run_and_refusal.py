"""A small run to vary part by part, every task and model to vary it by, and the one line that refuses a mistake."""

from dataclasses import replace
from typing import Any

import pytest

from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.parity import Parity

RUN = Run(task=Parity(), model=LSTMConfig(d_model=16))
TASKS = [classes[0]() for classes in all_tasks().values()]
MODELS = [classes[0].tiny() for classes in all_models().values()]


def with_part(where: str, part: Any) -> Run:
    return replace(RUN, **{where: part})


def refusal(make: Any) -> str:
    """The one line with which a user's mistake is refused."""
    with pytest.raises(ValueError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)
