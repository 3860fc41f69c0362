"""Make runs from the published protocols, and find how a run deviates from its own.

A number without its protocol is not comparable. So every run carries a preset's name, and its record lists the
differences from the preset, except learning rate and seed, which every protocol sweeps. harness/store/labels.py makes
readable labels from these.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from chomsky_ladder.harness.config.parts import default_settings, plain, replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import SIZED_AT, Protocol
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.rooms import did_you_mean
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.config.sizing import sized
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.tasks.base import Task

WIDTHS = ("d_model", "d_inner")  # set by a number of parameters (harness/config/sizing.py)


def find_protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        hint = did_you_mean(name, PROTOCOLS) or f"; there are {', '.join(PROTOCOLS)}"
        raise ValueError(f"unknown protocol {name!r}{hint}")
    return PROTOCOLS[name]


def preset_run(task: str, model: str, *, protocol: str = "xlstm_20k", seed: int = 0) -> Run:
    """Return the run a protocol describes for a task and a model. Change what you like with `dataclasses.replace`."""
    return replace(_preset(find_task(task), find_model(model), protocol), seed=seed)


@lru_cache(maxsize=4096)
def _preset(task_cls: type[Task], model_cls: type[ModelConfig], protocol: str) -> Run:
    preset = find_protocol(protocol)
    _refuse_other_version(preset, task_cls, protocol)
    of_task, of_model = preset.tasks.get(task_cls.name, {}), preset.model_of(task_cls.name, model_cls.name)
    task = _applied_to_task(task_cls(), preset.task | {k: v for k, v in of_task.items() if k != "model"})
    train = {"lr": preset.rates[0], **preset.train_of(task_cls.name, model_cls.name)}
    score = preset.eval_of(task_cls.name, model_cls.name)
    if stages := train.get("curriculum"):  # stages too short for any string of the task are left out
        shortest = train.get("lengths", plain(Train())["lengths"])[0]
        train["curriculum"] = [stage for stage in stages if task.legal_lengths(shortest, stage)]
    if task_cls.own_lengths:
        own = list(task_cls.own_lengths)
        train = {**train, "lengths": own, "curriculum": []}
        score = {**score, "lengths": own, "bins": sorted(set(own)), "extrapolate": []}
    model = replaced(model_cls(), {k: v for k, v in of_model.items() if k in plain(model_cls())}, where="model")
    return Run(
        task=task,
        model=matched(model, preset),
        train=replaced(Train(), train, where="train"),
        eval=replaced(Eval(), score, where="eval"),
        protocol=protocol,
    )


def _refuse_other_version(preset: Protocol, task_cls: type[Task], protocol: str) -> None:
    fixed = preset.versions.get(task_cls.name, task_cls.version)
    if fixed != task_cls.version:
        raise ValueError(f"{protocol} has version {fixed} of {task_cls.name}, and this code makes {task_cls.version}")


def _applied_to_task(task: Task, changes: dict[str, Any]) -> Task:
    """Return the task with the changes for which it has fields.

    Query and supervision only change if it admits the value.
    """
    for name, value in changes.items():
        if name in plain(task):
            try:
                task = replaced(task, {name: value}, where="task")
            except ValueError:
                if name not in ("query", "supervision"):
                    raise
    return task


def matched(model: ModelConfig, preset: Protocol) -> ModelConfig:
    """Return the model with the widths that reach the protocol's number of parameters, if it has one."""
    if not preset.params:
        return model
    usual = {name: value for name, value in default_settings(type(model)).items() if name == "d_inner"}
    return _sized(replaced(model, usual, where="model"), preset.params)


@lru_cache(maxsize=1024)
def _sized(model: ModelConfig, params: int) -> ModelConfig:
    return sized(model, vocab=SIZED_AT, target=params)


def grid(
    task: str,
    model: str,
    *,
    protocol: str = "xlstm_20k",
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 0,
) -> list[Run]:
    """Return all runs behind one cell of a protocol's table: every learning rate with every seed.

    The runs of a script are the same on every machine. So the default `protocol` is that of a GPU, while `ladder run`
    on a CPU takes xlstm_cpu.

    `overrides` are settings by the names that options and records have, {"train.steps": 500, "model.d_model": 32,
    "task.group": "S3"}. A learning rate among them replaces the protocol's. `seeds` replaces its number of seeds.
    """
    preset = find_protocol(protocol)
    base = overridden(preset_run(task, model, protocol=protocol), overrides or {})
    rates = (base.train.lr,) if "train.lr" in (overrides or {}) else preset.rates
    return [
        replace(base, seed=seed, train=replace(base.train, lr=rate, lr_final=min(rate, base.train.lr_final)))
        for rate in rates
        for seed in range(seeds or preset.seeds)
    ]


def overridden(run: Run, overrides: Mapping[str, Any]) -> Run:
    """Return the run with settings changed by dotted names.

    Training settings that depend on the model change with them.
    """
    by_part: dict[str, dict[str, Any]] = {"task": {}, "model": {}, "train": {}, "eval": {}}
    for name, value in overrides.items():
        part, _, setting = name.partition(".")
        if part not in by_part or not setting:
            raise ValueError(f"{name!r} names no setting: such are task.., model.., train.. and eval.., as train.steps")
        by_part[part][setting.replace("-", "_")] = value
    run = with_model(run, by_part.pop("model"))
    if "lr" in by_part["train"]:
        by_part["train"].setdefault("lr_final", min(by_part["train"]["lr"], run.train.lr_final))
    parts = {name: replaced(getattr(run, name), changes, where=name) for name, changes in by_part.items()}
    return replace(run, **parts)


def with_model(run: Run, changes: Mapping[str, Any]) -> Run:
    """Return the run with changed model settings, trained as its protocol trains such a model."""
    usual, model = plain(_preset(type(run.task), type(run.model), run.protocol).train), run.model
    changed = replaced(model, dict(changes), where="model")
    train = {name: usual[name] for name in case_of(run, model)} | case_of(run, changed)
    return replace(run, model=changed, train=replaced(run.train, train, where="train"))


def case_of(run: Run, model: ModelConfig) -> dict[str, Any]:
    """Return the training settings that a run's protocol has for a model with exactly these settings."""
    return find_protocol(run.protocol).case_of(run.task.name, model.name, plain(model))


def identity_of(run: Run) -> Identity:
    """Return the names of a run's parts, and the settings in which they differ from the protocol's preset."""
    preset, version = _preset(type(run.task), type(run.model), run.protocol), find_protocol(run.protocol).version
    model = plain(preset.model)
    if PROTOCOLS[run.protocol].params:  # widths that follow from the number of parameters are no choice of the run
        at_size = plain(matched(run.model, PROTOCOLS[run.protocol]))
        model |= {name: at_size[name] for name in WIDTHS if name in at_size}
    settings: dict[str, Any] = {"protocol.version": version} if version != 1 else {}
    settings |= _changes("train", plain(preset.train) | case_of(run, run.model), run.train, ignore=("lr",))
    settings |= _changes("eval", plain(preset.eval), run.eval, ignore=("file", "file_sha256"))
    settings |= {"eval.file_sha256": run.eval.file_sha256} if run.eval.file_sha256 else {}
    settings |= _version("task", run.task) | _changes("task", plain(preset.task), run.task, run.task.outside_identity)
    settings |= _version("model", run.model) | _changes("model", model, run.model)
    return Identity(run.protocol, run.task.name, run.model.name, settings)


def columns_of(run: Run) -> dict[str, Any]:
    """Return everything about a run that tables need, for its record."""
    identity = identity_of(run)
    return {
        "run_id": run.run_id,
        **identity.labels(),
        "level": run.task.level,
        "lr": run.train.lr,
        "seed": run.seed,
        **identity.plain(),
        "traits": " ".join(name for name in ("tracks_state", "hard") if getattr(run.task, name)),
        "transition": run.model.moves,
        "demand": run.task.demand,
    }


def _changes(part: str, before: dict[str, Any], after: Any, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    new = plain(after)
    return {f"{part}.{name}": new[name] for name in new if name not in ignore and new[name] != before[name]}


def _version(part: str, of: Task | ModelConfig) -> dict[str, int]:
    return {f"{part}.version": of.version} if of.version != 1 else {}
