"""A study: a sweep of the literature at one of four budgets, trained, tabled and drawn by one command.

    smoke   one seed at one learning rate, 20 steps of 8 strings, to see that everything works; in smoke/ of the results
    cpu     the protocol `xlstm_cpu`, or the study's own selection: enough work for two cores
    gpu     20,000 steps of the published protocol, about an hour of one GPU
    full    the published protocol

    ladder study xlstm_table --budget cpu        also: ladder plan xlstm_table; ladder sweep xlstm_table

Finished runs are not run again. So a stopped study can be resumed, and studies share the runs they have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import grid, matched, with_model
from chomsky_ladder.harness.config.run import Run

Budget = Literal["smoke", "cpu", "gpu", "full"]
Model = tuple[str, Mapping[str, Any]]  # a name, and the changes to the protocol's settings

GPU_STEPS = 20_000  # of the protocol xlstm_20k
_SMOKE_TRAIN = {"steps": 20, "batch": 8}
_SMOKE_EVAL = {"test": 32, "validation": 16, "every": 10, "extrapolate": [], "extrapolation": 8}


def study_runs(
    budget: Budget,
    *,
    tasks: Iterable[tuple[str, Mapping[str, Any]] | str],
    models: Iterable[Model | str],
    full: str = "xlstm",
    cpu: str = "xlstm_cpu",
    train: Mapping[str, Any] | None = None,
    score: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Return every learning rate and seed of every cell, the first seed of all cells first.

    `full` is the published protocol, `cpu` that of two cores. `train` and `score` change settings in all cells.
    """
    shortened = "xlstm_20k" if full == "xlstm" else full
    protocol = {"smoke": "quick", "cpu": cpu, "gpu": shortened, "full": full}[budget]
    train, score = dict(train or {}), dict(score or {})
    if budget == "gpu" and shortened == full:
        train = {"steps": min(GPU_STEPS, PROTOCOLS[full].train["steps"])} | train
    if budget == "smoke":
        train, score = train | _SMOKE_TRAIN, score | _SMOKE_EVAL
    runs = []
    for model, of_model in map(_named, models):
        for task, of_task in map(_named, tasks):
            cell = grid(task, model, protocol=protocol)
            runs += [
                _changed(run, of_task, of_model, train, score) for run in (cell[:1] if budget == "smoke" else cell)
            ]
    return sorted(runs, key=lambda run: run.seed)


def in_smoke(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of a suite's cells at one learning rate and seed, a few steps of short strings each."""
    train = {"steps": 8, "batch": 8, "curriculum": [40]}
    score = {"every": 8, "test": 32, "validation": 16, "extrapolate": []}
    return [
        replace(run, train=replaced(run.train, train, where="train"), eval=replaced(run.eval, score, where="eval"))
        for run in runs
        if (run.train.lr, run.seed) == (runs[0].train.lr, runs[0].seed)
    ]


def _named(part: Model | str) -> Model:
    return (part, {}) if isinstance(part, str) else part


def _changed(
    run: Run, task: Mapping[str, Any], model: Mapping[str, Any], train: Mapping[str, Any], score: Mapping[str, Any]
) -> Run:
    run = with_model(run, model)
    return replace(
        run,
        model=matched(run.model, PROTOCOLS[run.protocol]),
        task=replaced(run.task, dict(task), where="task"),
        train=replaced(run.train, dict(train), where="train"),
        eval=replaced(run.eval, dict(score), where="eval"),
    )
