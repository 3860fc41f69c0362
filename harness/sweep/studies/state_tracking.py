"""State tracking by recurrences, from parity to S5, and the role of the transition's eigenvalues.

    ladder study state_tracking --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

Grazzi et al. 2024 (2411.12537): a diagonal or reflecting transition needs an eigenvalue of -1 for parity. Merrill et
al. 2024 (2404.08819): diagonal transitions of fixed depth cannot solve the word problems of A5 and S5. Every model that
has the choice runs with eigenvalues in [0, 1] and in [-1, 1]. Supervision is dense. The number after the semicolon of a
cell counts the seeds that solve the task.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

DENSE = {"supervision": "dense"}
REGULAR = [("parity", DENSE), ("cycle_nav", DENSE), ("mod_arithmetic", DENSE)]
GROUPS = [("word_problem", {"group": group}) for group in ("S3", "A5", "S5")]
RANGES = [
    (model, {"eigenvalues": eigenvalues}) for model in ("mamba", "delta_net") for eigenvalues in ("positive", "signed")
]


def runs(budget: Budget = "cpu") -> list[Run]:
    if budget == "cpu":  # 1,000 steps are not enough for S5: S3 is the group on which models differ
        return study_runs(budget, tasks=[REGULAR[0], GROUPS[0]], models=["lstm", *RANGES[2:], "transformer"])
    models = ["lstm", ("xlstm", {"ratio": "0:1"}), "gru", "s4", *RANGES, "transformer"]
    return study_runs(budget, tasks=[*REGULAR, *GROUPS], models=models, full="slice")


table = published_tables("state_tracking")
