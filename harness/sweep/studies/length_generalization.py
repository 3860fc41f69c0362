"""Length generalisation: trained on lengths 3..40, tested up to 256, then at 512, 1024 and 2048.

    ladder study length_generalization --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

Each task is of another class. The models fail in different ways: by positions (a Transformer with and without them, a
window), by decay (S4, Mamba, retention), or not so far (LSTM, sLSTM, DeltaNet with reflections). The figure `lengths`
marks the training range. The table has a column for each length.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

TASKS = ["parity", "cycle_nav", "majority", "reverse_string", "bucket_sort"]
MODELS = ["lstm", ("xlstm", {"ratio": "0:1"}), ("delta_net", {"eigenvalues": "signed"}), "mamba", "s4", "retention"]
ATTENTION = [("transformer", {"positions": positions}) for positions in ("none", "rope", "alibi")]


def runs(budget: Budget = "cpu") -> list[Run]:
    tasks, models = (TASKS[:3], MODELS[:4]) if budget == "cpu" else (TASKS, MODELS)
    longer = {"extrapolate": [512, 1024] if budget == "cpu" else [512, 1024, 2048]}
    return study_runs(budget, tasks=tasks, models=[*models, *ATTENTION, "sliding_window"], score=longer)


table = published_tables("lengths")
