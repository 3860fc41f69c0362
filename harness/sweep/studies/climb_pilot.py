"""The pilot of the climb's second protocol: does ten times the training teach what climb-v1 calls not learnt?

    ladder study climb_pilot --budget smoke|cpu|gpu|full

Five models, four of them not the LSTM, on six tasks, with 10,000 steps of 64 strings instead of 2,000 of 32. Last write
has long silences, brackets nest deeply, and queries are far behind their pairs. Models have the form that theory asks
for (a Transformer without positions, PD-SSM with a state for each element of A5). cpu is one seed at one learning rate.
gpu has five learning rates, and tasks of state tracking are also trained on the last answer alone. full adds the same
cells at three learning rates for 30,000 steps, to see if outcomes change with more training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.protocols import find_protocol, matched, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.sweep.study import Budget

Part = tuple[str, dict[str, Any]]  # a name, and the changes to climb-v1's settings

FIRST = "climb-v1"
TASKS: tuple[Part, ...] = (
    ("cycle_nav", {}),
    ("word_problem", {}),
    ("parity", {}),
    ("mqar", {"power": 100}),
    ("dyck", {"nesting": "deep"}),
    ("flip_flop", {"silence": True}),
)
TRACKING = ("cycle_nav", "word_problem", "parity")
MODELS: tuple[Part, ...] = (
    ("delta_net", {"eigenvalues": "signed"}),
    ("pd_ssm", {"d_state": 64, "num_maps": 4}),
    ("transformer", {"positions": "none"}),
    ("xlstm", {"conv": "causal4", "recurrent_init": "zeros"}),
    ("lstm", {}),
)
RATES = (3e-3, 1e-2, 1e-3, 3e-2, 3e-4)  # smoke and cpu have the first
USUAL = {"steps": 10_000, "batch": 64}, {"every": 500}
LONGER = {"steps": 30_000, "batch": 64}, {"every": 500}
SMOKE = {"steps": 8, "batch": 8, "curriculum": [40]}, {"every": 8, "test": 32, "validation": 16, "extrapolate": []}


def runs(budget: Budget = "cpu") -> list[Run]:
    if budget in ("smoke", "cpu"):
        return _cells(RATES[:1], *(SMOKE if budget == "smoke" else USUAL))
    dense = _cells(RATES, *USUAL)
    final = [replace(run, task=replace(run.task, supervision="final")) for run in dense if run.task.name in TRACKING]
    return [*dense, *final, *(longer() if budget == "full" else [])]


def longer() -> list[Run]:
    """Return the same cells, trained three times as long."""
    return _cells(RATES[:3], *LONGER)


def _cells(rates: Sequence[float], train: Mapping[str, Any], score: Mapping[str, Any]) -> list[Run]:
    return [_run(task, model, {**train, "lr": lr}, score) for task in TASKS for model in MODELS for lr in rates]


def _run(task: Part, model: Part, train: Mapping[str, Any], score: Mapping[str, Any]) -> Run:
    usual = preset_run(task[0], model[0], protocol=FIRST)
    changed = replaced(usual.model, dict(model[1]), where="model")
    return replace(
        usual,
        task=replaced(usual.task, dict(task[1]), where="task"),
        model=matched(changed, find_protocol(FIRST)),
        train=replaced(usual.train, dict(train), where="train"),
        eval=replaced(usual.eval, dict(score), where="eval"),
    )


def table(listed: Sequence[Run], results: Path) -> str:
    """Return a table: each run's scaled accuracy at training and test lengths, and when it was learnt."""
    records = collect(results).set_index("run_id")
    ids = [run.run_id for run in listed if run.run_id in records.index]
    found = records.loc[ids]
    heads = ("task", "model", "learning rate", "at training lengths", "at test lengths", "steps to .99")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---:|"]
    for one in found.itertuples():
        learnt = "" if pd.isna(one.steps_to_99) else f"{int(one.steps_to_99):,}"
        scores = f"{one.in_distribution:.2f} | {one.test_scaled:.2f}"
        lines.append(f"| {one.task} | {one.model} | {one.lr:g} | {scores} | {learnt} |")
    return "\n".join(lines) + "\n"
