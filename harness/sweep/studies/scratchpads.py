"""Do written steps help? A Transformer that writes its steps before the answer, or fillers, or nothing.

    ladder study scratchpads --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

The tasks are parity, the products of S3, arithmetic modulo 5 and the sum of two numbers, on strings of the training
lengths, 3..20. A fixed depth cannot solve these tasks at every length, and with steps it can (Merrill and Sabharwal
2023, 2310.07923). Fillers are the control (Pfau et al. 2024, 2404.15758). The study has one learning rate on a CPU and
the protocol's on a GPU.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

LENGTHS = (3, 20)
KINDS = ("none", "padding", "steps")
TASKS = [
    ("scratchpad", {"of": "parity"}),
    ("scratchpad", {"of": "word_problem", "group": "S3"}),
    ("scratchpad", {"of": "mod_arithmetic"}),
    ("long_addition", {}),
]


def runs(budget: Budget = "cpu") -> list[Run]:
    train = {"lengths": LENGTHS} | ({"lr": 3e-3, "steps": 2000} if budget == "cpu" else {})
    score = {"lengths": LENGTHS, "bins": (3, 10, 15, 20), "extrapolate": (40,)}
    tasks = [(name, {**changes, "scratchpad": kind}) for name, changes in TASKS for kind in KINDS]
    found = study_runs(budget, tasks=tasks, models=["transformer"], train=train, score=score)
    return [*{run.run_id: run for run in found}.values()]  # equal runs where the learning rate is set


table = published_tables("scratchpad")
