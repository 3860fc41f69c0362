"""The fields of a protocol: how its paper trains, scores and reports, and the exceptions for single models or tasks.

Case(models=("xlstm",), tasks=("mod_arithmetic",), model={"d_model": 64})        that model is narrower on that task
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Reports = Literal["mean", "median", "best"]  # how a published cell summarises its seeds
Measure = Literal["scaled", "raw"]  # accuracy above chance, or plain accuracy

SIZED_AT = 16
"""Vocabulary size at which `Protocol.params` are counted, so that a model has one config on every task."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One task of a climb (harness/climb), with the settings in which it differs from the protocol's own task."""

    name: str
    asks: str
    """The skill it tests, in two or three words."""
    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    strings: str
    """A hash of its first test strings (harness/train/suite.py)."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An exception of a protocol for some models and tasks. An empty list means all of them."""

    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    where: dict[str, Any] = field(default_factory=dict)
    """Settings the model must have: of xLSTM, say, a ratio of 1:0."""
    train: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)

    def is_of(self, task: str, model: str) -> bool:
        return task in (self.tasks or (task,)) and model in (self.models or (model,))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    source: str
    """The paper and code it comes from, the choices that are ours, and every known deviation."""
    version: int = 1
    """Raised whenever its runs change. Results of two versions never share a table."""
    reports: Reports = "mean"
    measure: Measure = "scaled"
    solved: float = 0.9
    """The score, in that measure, from which a run counts as solved."""
    rates: tuple[float, ...]
    """The learning rates it chooses from."""
    seeds: int
    """Number of seeds at each learning rate."""
    report: int = 0
    """Number of fresh seeds at the chosen learning rate.

    Only these are reported. 0: the choosing seeds are reported.
    """
    ties: Literal["lower", "sooner"] = "lower"
    """The learning rate taken in a tie of validations: the lower one, or the one that reached 0.99 sooner."""
    remark: str = ""
    """A warning that is shown with all its results."""
    table: tuple[str, ...]
    """The tasks of its published table."""
    train: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    """Settings of every model that has them. Settings of one model stand under its name in `models`."""
    params: int = 0
    """Target for a model's active parameters, reached by choosing widths, counted at SIZED_AT. 0: widths as set."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    """Settings of every task that has them and admits the value."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of one task. `model` in there changes models on that task."""
    cases: tuple[Case, ...] = ()
    """Exceptions for some models, or for some models on some tasks. If two apply, the later one decides."""
    versions: dict[str, int] = field(default_factory=dict)
    """The versions of a frozen suite's tasks. Other versions are refused."""
    strings: dict[str, str] = field(default_factory=dict)
    """A hash of the first test strings of each task of a frozen suite (harness/train/suite.py)."""
    rungs: tuple[Rung, ...] = ()
    """The tasks of a climb, from the lowest to the highest."""

    def train_of(self, task: str, model: str) -> dict[str, Any]:
        """Return the training settings of a model on a task.

        `case_of` adds those that depend on the model's settings.
        """
        return self.train | self._otherwise("train", task, model)

    def eval_of(self, task: str, model: str) -> dict[str, Any]:
        """Return the scoring settings of a model on a task."""
        return self.eval | self._otherwise("eval", task, model)

    def model_of(self, task: str, model: str) -> dict[str, Any]:
        """Return the settings of a model on a task."""
        of_task = self.tasks.get(task, {}).get("model", {})
        return {**self.model, **self.models.get(model, {}), **of_task, **self._otherwise("model", task, model)}

    def case_of(self, task: str, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the training settings for a model with these settings, beyond those of `train_of`."""
        cases = [case for case in self.cases if case.where and case.is_of(task, model)]
        held = [case.train for case in cases if case.where.items() <= settings.items()]
        return {name: value for train in held for name, value in train.items()}

    def _otherwise(self, part: Literal["train", "eval", "model"], task: str, model: str) -> dict[str, Any]:
        own = [getattr(case, part) for case in self.cases if not case.where and case.is_of(task, model)]
        return {name: value for settings in own for name, value in settings.items()}
