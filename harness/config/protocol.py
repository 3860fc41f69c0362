"""What a protocol declares: how its paper trains, scores and reports, and what it does otherwise in single cases.

Case(models=("xlstm",), tasks=("mod_arithmetic",), model={"d_model": 64})        that model is narrower on that task
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Reports = Literal["mean", "median", "best"]  # what a published cell is of its seeds
Measure = Literal["scaled", "raw"]  # whether it is accuracy above chance, or plain accuracy

SIZED_AT = 16
"""Tokens of the vocabulary at which `Protocol.params` are counted, so that a model is one config on every task."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One task of a climb (harness/climb), with the settings that set it apart from the protocol's own of that task."""

    name: str
    asks: str
    """What a model has to do, in two or three words."""
    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    strings: str
    """A hash of its first test strings (harness/train/suite.py)."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a protocol does otherwise: with some models, on some tasks; those not named are all of them."""

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
    """Where it comes from, what is ours in it, and what is not as it is there."""
    version: int = 1
    """Raised whenever its runs would be others; results of two versions never share a table."""
    reports: Reports = "mean"
    measure: Measure = "scaled"
    solved: float = 0.9
    """From where, in that measure, a run counts as solved."""
    rates: tuple[float, ...]
    """The learning rates it chooses from."""
    seeds: int
    """Seeds at each rate."""
    report: int = 0
    """Fresh seeds at the rate that those chose. Only they are reported. 0: the seeds that choose are reported."""
    ties: Literal["lower", "sooner"] = "lower"
    """The rate taken where several validate alike: the lower, or the one that was at 0.99 sooner."""
    remark: str = ""
    """What nobody may overlook in its results."""
    table: tuple[str, ...]
    """The tasks of its published table."""
    train: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    """Settings of every model that has them; one model's own go under its name in `models`."""
    params: int = 0
    """The active parameters that every model's widths bring it nearest to, counted at SIZED_AT; 0: widths as set."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    """Settings of every task that has them and admits the value."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """One task's own; `model` among them holds what it changes there."""
    cases: tuple[Case, ...] = ()
    """What some models, or some models on some tasks, do otherwise; of two the later one decides."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of a frozen suite: the versions of its tasks; another one is refused."""
    strings: dict[str, str] = field(default_factory=dict)
    """Of a frozen suite: a hash of each task's first test strings (harness/train/suite.py)."""
    rungs: tuple[Rung, ...] = ()
    """Of a climb: its tasks from the lowest to the highest."""

    def train_of(self, task: str, model: str) -> dict[str, Any]:
        """What it says of training a model on a task; `case_of` has what depends on the model's settings."""
        return self.train | self._otherwise("train", task, model)

    def eval_of(self, task: str, model: str) -> dict[str, Any]:
        """What it says of scoring a model on a task."""
        return self.eval | self._otherwise("eval", task, model)

    def model_of(self, task: str, model: str) -> dict[str, Any]:
        """What it says of a model on a task."""
        of_task = self.tasks.get(task, {}).get("model", {})
        return {**self.model, **self.models.get(model, {}), **of_task, **self._otherwise("model", task, model)}

    def case_of(self, task: str, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """What it says of training a model that has these settings, beyond `train_of`."""
        cases = [case for case in self.cases if case.where and case.is_of(task, model)]
        held = [case.train for case in cases if case.where.items() <= settings.items()]
        return {name: value for train in held for name, value in train.items()}

    def _otherwise(self, part: Literal["train", "eval", "model"], task: str, model: str) -> dict[str, Any]:
        own = [getattr(case, part) for case in self.cases if not case.where and case.is_of(task, model)]
        return {name: value for settings in own for name, value in settings.items()}
