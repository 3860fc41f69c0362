"""The checks that every registered task and model must pass, ours or a user's: `ladder check NAME`, and the test suite.

A check is a function that returns nothing, raises AssertionError with its reason, or raises `Skip` if the part declares
that it does not apply. Checks of tasks are in task.py, those of models in model_mistakes.py, model.py and
model_device.py. say.py explains other exceptions.
"""

import inspect
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple

from chomsky_ladder.harness.config.run import without_training_targets
from chomsky_ladder.harness.conform import model as conform_model
from chomsky_ladder.harness.conform import model_device, model_mistakes
from chomsky_ladder.harness.conform import task as conform_task
from chomsky_ladder.harness.conform.compare import Skip, as_exact_as
from chomsky_ladder.harness.conform.say import package_of, said_of
from chomsky_ladder.harness.train.machine import pinned
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.tasks.base import Task


class Outcome(NamedTuple):
    check: str
    verdict: Literal["ok", "skip", "FAIL"]
    reason: str


def checks(kind: str) -> list[Callable[[Any], None]]:
    """Return the checks for a kind of part, in the order of their files."""
    return [function for module in _CHECKS[kind] for function in _of_module(module)]


_CHECKS = {"task": (conform_task,), "model": (model_mistakes, conform_model, model_device)}


def _of_module(module: ModuleType) -> list[Callable[[Any], None]]:
    own = [f for name, f in inspect.getmembers(module, inspect.isfunction) if not name.startswith("_")]
    return sorted((f for f in own if f.__module__ == module.__name__), key=lambda f: f.__code__.co_firstlineno)


def specimen(cls: type[Task] | type[ModelConfig]) -> Task | ModelConfig:
    """Return the instance to check by default: a small model, or a task with its default settings."""
    return cls.tiny() if issubclass(cls, ModelConfig) else cls()


def check(part: Task | ModelConfig) -> list[Outcome]:
    with pinned(1):
        return [run_check(function, part) for function in checks("task" if isinstance(part, Task) else "model")]


def run_check(function: Callable[[Any], None], part: Task | ModelConfig) -> Outcome:
    name = function.__name__.replace("_", " ")
    part = without_training_targets(part) if isinstance(part, Task) else part
    if getattr(part, "device", "any") != "any":
        return Outcome(name, "skip", "it runs on a CUDA device alone, and this is computed on a CPU")
    try:
        with warnings.catch_warnings(), as_exact_as(part):
            warnings.simplefilter("error")
            function(part)
    except Skip as skip:
        return Outcome(name, "skip", str(skip))
    except Exception as error:  # a part may fail in any way; the check reports it
        package = package_of(error)
        if function is model_device.stays_on_its_device and package not in (
            "",
            type(part).__module__.partition(".")[0],
        ):
            return Outcome(name, "skip", f"{package}, which it calls, does not: it {said_of(error)}")
        return Outcome(name, "FAIL", said_of(error))
    return Outcome(name, "ok", "")
