"""PD-SSM, SLiCE and the sLSTM in their authors' settings: do the published values come out?

    ladder study authors --budget smoke|cpu|gpu|full

On parity, even pairs and a cycle of five, 20,000 steps of 256 strings (the papers: up to 100,000), one seed at three
learning rates. PD-SSM (2509.22284) and SLiCE (2505.17761) report on one benchmark, under which the sLSTM runs too; it
runs under its own authors' code's settings as well (2405.04517). cpu is the cycle alone, some five hours of a core;
full has every seed and rate.
"""

from collections.abc import Sequence
from dataclasses import replace

from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

TASKS = ("parity", "even_pairs", "cycle_nav")
SLSTM = ("xlstm", {"ratio": "0:1", "conv": "causal4", "recurrent_init": "zeros"})
MODELS = ("pd_ssm", ("slice", {"saturates_at": 1e11}), SLSTM)
RATES = (2e-3, 1e-3, 5e-4)  # of the benchmark's five
OWN_RATES = (1e-2, 1e-3, 1e-4)  # of the xLSTM paper


def runs(budget: Budget = "cpu") -> list[Run]:
    tasks = TASKS[-1:] if budget == "cpu" else TASKS
    every = study_runs("gpu" if budget == "cpu" else budget, tasks=tasks, models=MODELS, full="slice")
    if budget in ("smoke", "full"):
        return every
    return [*(run for run in every if run.seed == 0 and run.train.lr in RATES), *_own(tasks)]


def _own(tasks: Sequence[str]) -> list[Run]:
    """Return the runs of the sLSTM with its authors' code's settings, at their paper's learning rates."""
    found = []
    for task in tasks:
        usual = preset_run(task, "xlstm", protocol="xlstm_code")
        model = replace(usual.model, ratio="0:1")
        for lr in OWN_RATES:
            found.append(replace(usual, model=model, train=replace(usual.train, lr=lr)))
    return found


table = published_tables("accuracy")
