"""The published protocols as data: what a preset changes of a run's defaults, and how a run deviates from its preset.

A number without its protocol is not comparable, so every run carries a preset's name and every table its label: the
name, then each setting that differs from the preset (the learning rate and the seed, which every protocol sweeps,
apart). Choices a paper leaves open are ours and noted here; a preset sets only what a task or a model has.
"""

from dataclasses import dataclass, field
from typing import Any

from harness.config import Eval, Run, Train, plain, replaced
from harness.registry import did_you_mean, find_model, find_task
from models.base import ModelConfig
from tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class Protocol:
    source: str
    """Where it comes from, and what is ours in it."""
    rates: tuple[float, ...]
    """The learning rates it chooses from."""
    seeds: int
    train: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    """Settings of every model that has them; one model's own go under its name in `models`."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    """Settings of every task that has them and admits the value."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)


_XLSTM = {"batch": 256, "betas": [0.9, 0.99], "weight_decay": 0.1, "warmup": 0.1, "lr_final": 1e-5, "precision": "bf16"}

PROTOCOLS: dict[str, Protocol] = {
    "xlstm": Protocol(
        source="Beck et al. 2024 (2405.04517), B.1.1; width 128, 4 heads, clipping at 1.0 and 3 seeds (paper: 2) ours",
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        train={**_XLSTM, "steps": 100_000},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4},
    ),
    "xlstm_20k": Protocol(
        source="the xlstm protocol cut to 20,000 steps",
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        train={**_XLSTM, "steps": 20_000},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4},
    ),
    "xlstm_code": Protocol(
        source="the configuration in the xLSTM authors' public code; raw accuracy there",
        rates=(1e-3,),
        seeds=1,
        train={**_XLSTM, "steps": 20_000, "betas": [0.9, 0.999], "lr_final": 1e-6, "clip": 0.0},
        model={"d_model": 64, "num_blocks": 2, "num_heads": 1},
    ),
    "grazzi": Protocol(
        source="Grazzi et al. 2024 (2411.12537); the paper reports the best seed and chooses the rate by the median",
        rates=(1e-2, 1e-3, 5e-4, 1e-4),
        seeds=3,
        train={**_XLSTM, "steps": 100_000, "batch": 1024, "lr_final": 1e-6, "precision": "fp32"},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4},
        tasks={"mod_arithmetic": {"model": {"num_blocks": 3}}},
    ),
    "deepmind": Protocol(
        source="Deletang et al. 2022 (2207.02098): Adam, one length a batch, mean over lengths, solved from .90; "
        "warm-up none; the paper reports the best of 10 seeds",
        rates=(1e-4, 3e-4, 5e-4),
        seeds=10,
        train={
            "steps": 1_000_000,
            "batch": 128,
            "lengths": [1, 40],
            "lengths_per": "batch",
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "warmup": 0.0,
        },
        eval={"lengths": [41, 500], "score": "lengths", "bins": [41, 100, 200, 300, 400, 500], "extrapolate": []},
        model={"num_blocks": 1, "d_model": 256},
        models={
            "encoder": {"num_blocks": 5, "d_model": 64, "num_heads": 8, "dropout": 0.1},
            "transformer": {"num_blocks": 5, "d_model": 64, "num_heads": 8, "dropout": 0.1},
        },
        task={"count": "input", "query": "token"},
        tasks={"bucket_sort": {"num_symbols": 5}, "reverse_string": {"num_symbols": 2}},
    ),
    "slice": Protocol(
        source="Walker et al. 2025 (2505.17761): dense supervision, raw accuracy; the width is 128 or 512 there",
        rates=(2e-3, 1e-3, 5e-4, 1e-4, 1e-5),
        seeds=5,
        train={**_XLSTM, "steps": 100_000, "precision": "fp32"},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4, "dropout": 0.01},
        task={"supervision": "dense"},
    ),
    "mamba3": Protocol(
        source="2603.15569: longest lengths 40 to 160 in stages of 10,000 steps (four stages ours), tested at 256",
        rates=(1e-4, 1.9e-4, 3.7e-4, 7.2e-4, 1.4e-3, 2.7e-3, 5.2e-3, 1e-2),
        seeds=3,
        train={**_XLSTM, "steps": 40_000, "curriculum": [40, 80, 120, 160], "precision": "fp32"},
        eval={"lengths": [255, 256], "bins": [255, 256], "extrapolate": [512, 1024]},
        model={"d_model": 128, "num_blocks": 1, "num_heads": 4},
        tasks={"mod_arithmetic": {"model": {"num_blocks": 3}}},
    ),
    "quick": Protocol(
        source="a smoke run of minutes on a CPU, not a result: the xlstm lengths and scores at a tiny budget",
        rates=(1e-2,),
        seeds=3,
        train={
            **_XLSTM,
            "steps": 800,
            "batch": 32,
            "precision": "fp32",
            "stop_after": 2,
            "log_every": 20,
        },
        eval={"test": 512, "validation": 128, "every": 100, "extrapolate": []},
        # A forget bias of 1 (Jozefowicz et al. 2015): without it some seeds need longer than the budget for parity.
        model={"d_model": 64, "num_blocks": 2, "num_heads": 4, "forget_bias": 1.0, "d_inner": 64},
    ),
}


def find_protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        hint = did_you_mean(name, PROTOCOLS) or f"; there are {', '.join(PROTOCOLS)}"
        raise ValueError(f"unknown protocol {name!r}{hint}")
    return PROTOCOLS[name]


def preset_run(task: str, model: str, *, protocol: str = "xlstm_20k", seed: int = 0) -> Run:
    """The run a protocol describes for a task and a model; change what you like with `dataclasses.replace`."""
    preset = find_protocol(protocol)
    task_cls, model_cls = find_task(task), find_model(model)
    of_task = preset.tasks.get(task, {})
    of_model = {**preset.model, **preset.models.get(model, {}), **of_task.get("model", {})}
    return Run(
        task=_applied(task_cls(), preset.task | {k: v for k, v in of_task.items() if k != "model"}),
        model=_applied(model_cls(), of_model),
        train=replaced(Train(), {"lr": preset.rates[0], **preset.train}, where="train"),
        eval=replaced(Eval(), preset.eval, where="eval"),
        seed=seed,
        protocol=protocol,
    )


def _applied(part: Task | ModelConfig, changes: dict[str, Any]) -> Task | ModelConfig:
    """The part with each change it has a field for and admits (not every task has prefix answers, say)."""
    for name, value in changes.items():
        if name in plain(part):
            try:
                part = replaced(part, {name: value}, where=name)
            except ValueError:
                continue
    return part


def protocol_label(run: Run) -> str:
    """The preset's name and what differs from it in training, evaluation and the task's layout."""
    preset = preset_run(run.task.name, run.model.name, protocol=run.protocol)
    changes = _changes("train", preset.train, run.train, ignore=("lr", "log_every"))
    changes += _changes("eval", preset.eval, run.eval)
    changes += [change for change in _changes("task", preset.task, run.task) if change.split("=")[0] in _LAYOUT]
    return _labelled(run.protocol, changes)


def task_label(run: Run) -> str:
    preset = preset_run(run.task.name, run.model.name, protocol=run.protocol)
    changes = _changes("", preset.task, run.task)
    return _labelled(run.task.name, [change for change in changes if f"task.{change.split('=')[0]}" not in _LAYOUT])


def model_label(run: Run) -> str:
    preset = preset_run(run.task.name, run.model.name, protocol=run.protocol)
    return _labelled(run.model.name, _changes("", preset.model, run.model))


_LAYOUT = ("task.count", "task.query", "task.supervision", "task.decode")  # a headline axis: two never share a table


def _changes(where: str, before: Any, after: Any, ignore: tuple[str, ...] = ()) -> list[str]:
    old, new = plain(before), plain(after)
    prefix = f"{where}." if where else ""
    return [f"{prefix}{name}={_shown(new[name])}" for name in new if name not in ignore and new[name] != old[name]]


def _shown(value: Any) -> str:
    return "..".join(map(str, value)) if isinstance(value, list) else str(value)


def _labelled(name: str, changes: list[str]) -> str:
    return f"{name} ({', '.join(changes)})" if changes else name
