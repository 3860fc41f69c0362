"""Do models compose pairs of elements that they never saw side by side? Products of S3 with pairs held out.

    ladder study held_pairs --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

No training string has a held-out pair of neighbouring elements, and test strings have all pairs (tasks/_held_pairs.py).
After arXiv 2606.07254. An answer is read after every element, so the answer after a string's first held-out pair stands
beside those before it. Each element has a whole number of held-out successors. So 10 % hold out 6 of the 36 pairs of
S3, and 25 % hold out 12. gpu and full add A5, where shares are exact.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

SHARES = (0, 10, 25)
MODELS = ["lstm", "transformer", ("delta_net", {"eigenvalues": "signed"}), ("xlstm", {"ratio": "1:1"}), "mamba"]


def runs(budget: Budget = "cpu") -> list[Run]:
    groups = ("S3",) if budget in ("smoke", "cpu") else ("S3", "A5")
    tasks = [
        ("word_problem", {"group": group, "asks": "every", "held_pairs": share}) for group in groups for share in SHARES
    ]
    return study_runs(budget, tasks=tasks, models=MODELS, full="slice")


table = published_tables("held_pairs")
