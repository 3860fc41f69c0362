"""The published protocols as data: what each preset changes of a run's defaults.

Choices a paper leaves open are ours, and `source` says which. A preset sets only what a task or a model has.
"""

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

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
    model: dict[str, Any] = field(default_factory=dict)

    def is_of(self, task: str, model: str) -> bool:
        return task in (self.tasks or (task,)) and model in (self.models or (model,))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    source: str
    """Where it comes from, what is ours in it, and what is not as it is there."""
    version: int = 1
    """Raised whenever its runs would be others; results of two versions never share a table."""
    reports: Literal["mean", "median", "best"] = "mean"
    """What a published cell is of its seeds."""
    measure: Literal["scaled", "raw"] = "scaled"
    """Whether a published cell is accuracy above chance, or plain accuracy."""
    solved: float = 0.9
    """From where, in that measure, a run counts as solved."""
    rates: tuple[float, ...]
    """The learning rates it chooses from."""
    seeds: int
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

    def model_of(self, task: str, model: str) -> dict[str, Any]:
        """What it says of a model on a task."""
        of_task = self.tasks.get(task, {}).get("model", {})
        return {**self.model, **self.models.get(model, {}), **of_task, **self._otherwise("model", task, model)}

    def case_of(self, task: str, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """What it says of training a model that has these settings, beyond `train_of`."""
        cases = [case for case in self.cases if case.where and case.is_of(task, model)]
        held = [case.train for case in cases if case.where.items() <= settings.items()]
        return {name: value for train in held for name, value in train.items()}

    def _otherwise(self, part: Literal["train", "model"], task: str, model: str) -> dict[str, Any]:
        own = [getattr(case, part) for case in self.cases if not case.where and case.is_of(task, model)]
        return {name: value for settings in own for name, value in settings.items()}


_XLSTM = {"batch": 256, "betas": [0.9, 0.99], "weight_decay": 0.1, "warmup": 0.1, "lr_final": 1e-5, "precision": "bf16"}
_REGULAR = ("parity", "even_pairs", "cycle_nav", "mod_arithmetic")
_FIFTEEN = (
    *_REGULAR,
    *("mod_arithmetic_brackets", "solve_equation", "bucket_sort", "missing_duplicate", "odds_first", "repetition"),
    *("reverse_string", "stack_manipulation", "set", "majority", "majority_count"),
)
_SIZE = {"d_model": 128, "num_blocks": 2, "num_heads": 4}

PROTOCOLS: dict[str, Protocol] = {
    "xlstm": Protocol(
        source="Beck et al. 2024 (2405.04517), B.1.1; width 128, 4 heads, clipping at 1.0 and 3 seeds (paper: 2) ours",
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        table=_FIFTEEN,
        train={**_XLSTM, "steps": 100_000},
        model=_SIZE,
    ),
    "xlstm_20k": Protocol(
        source="the xlstm protocol cut to 20,000 steps",
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        table=_FIFTEEN,
        train={**_XLSTM, "steps": 20_000},
        model=_SIZE,
    ),
    "xlstm_code": Protocol(
        source="the configuration in the xLSTM authors' public code; raw accuracy there",
        rates=(1e-3,),
        seeds=1,
        table=_FIFTEEN,
        train={**_XLSTM, "steps": 20_000, "betas": [0.9, 0.999], "lr_final": 1e-6, "clip": 0.0},
        model={"d_model": 64, "num_blocks": 2, "num_heads": 1},
    ),
    "grazzi": Protocol(
        source="Grazzi et al. 2024 (2411.12537), who report the best seed and choose the rate by the median; betas and "
        "warm-up, which are not published, as in xlstm",
        rates=(1e-2, 1e-3, 5e-4, 1e-4),
        seeds=3,
        table=("parity", "mod_arithmetic", "mod_arithmetic_brackets"),
        train={**_XLSTM, "steps": 100_000, "batch": 1024, "lr_final": 1e-6, "precision": "fp32"},
        model=_SIZE,
        models={"xlstm": {"d_model": 64, "num_heads": 1}},
        tasks={
            "mod_arithmetic": {"model": {"num_blocks": 3}},
            "mod_arithmetic_brackets": {"model": {"num_blocks": 3}},
        },
    ),
    "deepmind": Protocol(
        source="Deletang et al. 2022 (2207.02098): Adam, one length a batch, mean over lengths, solved from .90, the "
        "best of 10 seeds reported; a causal transformer, which they have not, takes their encoder's size here",
        rates=(1e-4, 3e-4, 5e-4),
        seeds=10,
        table=(
            *_REGULAR,
            *("mod_arithmetic_brackets", "solve_equation", "reverse_string", "stack_manipulation", "bucket_sort"),
            *("missing_duplicate", "odds_first", "duplicate_string"),
            *("binary_addition", "binary_multiplication", "compute_sqrt"),
        ),
        train={
            "steps": 1_000_000,
            "batch": 128,
            "lengths": [1, 40],
            "lengths_per": "batch",
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "warmup": 0.0,
            "schedule": "constant",
        },
        eval={"lengths": [41, 500], "score": "lengths", "bins": [41, 100, 200, 300, 400, 500], "extrapolate": []},
        model={"num_blocks": 1, "d_model": 256},
        models={
            "encoder": {"num_blocks": 5, "d_model": 64, "num_heads": 8, "dropout": 0.1},
            "transformer": {"num_blocks": 5, "d_model": 64, "num_heads": 8},
        },
        task={"count": "input", "query": "token"},
        tasks={
            "mod_arithmetic_brackets": {"operators": "+-"},
            "solve_equation": {"operators": "+-"},
            "bucket_sort": {"num_symbols": 5},
            "reverse_string": {"num_symbols": 2},
            "odds_first": {"num_symbols": 2, "first": "even"},
            "missing_duplicate": {"num_symbols": 2, "hole": "either"},
            "stack_manipulation": {"num_symbols": 2, "reads": "top_down", "end": "token", "push": 2},
            "binary_addition": {"padding": "none"},
            "binary_multiplication": {"padding": "none"},
        },
    ),
    "slice": Protocol(
        source="Walker et al. 2025 (2505.17761): dense supervision, raw accuracy, width 128 or 512; betas, warm-up, "
        "final rate and clipping, which are not published, as in xlstm",
        rates=(2e-3, 1e-3, 5e-4, 1e-4, 1e-5),
        seeds=5,
        table=_REGULAR,
        train={**_XLSTM, "steps": 100_000, "precision": "fp32"},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4, "dropout": 0.01},
        task={"supervision": "dense"},
    ),
    "mamba3": Protocol(
        source="2603.15569: longest lengths 40 to 160 in stages of 10,000 steps, tested at 256 (here 255..256, since "
        "not every task has both); the four stages, betas, warm-up and final rate, which are not published, ours, as "
        "is one width where the paper takes the better of 32 and 64",
        rates=(1e-4, 1.9e-4, 3.7e-4, 7.2e-4, 1.4e-3, 2.7e-3, 5.2e-3, 1e-2),
        seeds=3,
        table=("parity", "mod_arithmetic", "mod_arithmetic_brackets"),
        train={**_XLSTM, "steps": 40_000, "curriculum": [40, 80, 120, 160], "precision": "fp32"},
        eval={"lengths": [255, 256], "bins": [255, 256], "extrapolate": [512, 1024]},
        model={"d_model": 128, "num_blocks": 1, "num_heads": 4},
        tasks={
            "mod_arithmetic": {"model": {"num_blocks": 3}},
            "mod_arithmetic_brackets": {"model": {"num_blocks": 3}},
        },
    ),
    "xlstm_cpu": Protocol(
        source="the xlstm lengths, tasks and selection at what two CPU cores carry in an evening: 1,000 steps of 32 "
        "strings, half the width, two rates, 1,024 test strings, a stop when validation stays perfect; a forget bias "
        "of 1 for the LSTMs",
        rates=(1e-2, 1e-3),
        seeds=3,
        table=(*_REGULAR, "bucket_sort", "majority"),
        train={**_XLSTM, "steps": 1000, "batch": 32, "precision": "fp32", "stop_after": 2},
        eval={"test": 1024, "validation": 256, "every": 125, "extrapolate": [512], "extrapolation": 128},
        model={"d_model": 64, "num_blocks": 2, "num_heads": 4, "forget_bias": 1.0},
    ),
    "quick": Protocol(
        source="a smoke run of minutes on a CPU, not a result: the xlstm lengths and scores at a tiny budget",
        remark="a smoke run, not a result",
        rates=(1e-2,),
        seeds=3,
        table=("parity", "even_pairs", "cycle_nav", "bucket_sort"),
        train={
            **_XLSTM,
            "steps": 800,
            "batch": 32,
            "precision": "fp32",
            "stop_after": 2,
        },
        eval={"test": 512, "validation": 128, "every": 100, "extrapolate": []},
        # A forget bias of 1 (Jozefowicz et al. 2015): without it some seeds need longer than the budget for parity.
        model={"d_model": 64, "num_blocks": 2, "num_heads": 4, "forget_bias": 1.0, "d_inner": 64},
    ),
}


def _suites() -> dict[str, Protocol]:
    """The frozen suites, by their files' names."""
    found = sorted((files("chomsky_ladder.harness.config") / "suites").iterdir(), key=lambda file: file.name)
    trees: dict[str, dict[str, Any]] = {file.name.removesuffix(".json"): json.loads(file.read_text()) for file in found}
    for tree in trees.values():
        tree |= {key: tuple(tree[key]) for key in ("rates", "table") if key in tree}
        tree["rungs"] = tuple(Rung(**rung) for rung in tree.get("rungs", ()))
    return {name: Protocol(**tree) for name, tree in trees.items()}


PROTOCOLS |= _suites()


def remark_of(name: str) -> str:
    """A protocol's, where it is known here and has one."""
    return PROTOCOLS[name].remark if name in PROTOCOLS else ""


def warning_of(name: str) -> str:
    """The same as a sentence."""
    return f"{name.capitalize()}: {remark_of(name)}." if remark_of(name) else ""


def has_rungs(name: str) -> bool:
    """Whether it is a climb: of tasks at settings of its own, beside which no paper's values may stand."""
    return name in PROTOCOLS and bool(PROTOCOLS[name].rungs)
