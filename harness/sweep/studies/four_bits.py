"""Does state tracking survive 4 bits? The recurrences that track a state, with weights of 32, 8, 4 and 2 bits.

    ladder study four_bits --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

The cells are those of the study of state tracking (state_tracking.py) that have a chance, trained and scored with
rounded weight matrices (harness/train/quantise.py). Activations and states keep full precision, so the study only
limits the weights. An entry is the mean scaled accuracy over seeds, at the learning rate chosen on validation for this
many bits. The number after the semicolon counts the runs that reached .9.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables
from chomsky_ladder.harness.tables.kinds.bits import BITS

PARITY, CYCLE = ("parity", {"supervision": "dense"}), ("cycle_nav", {"supervision": "dense"})
GROUPS = [("word_problem", {"group": group}) for group in ("S3", "A5", "S5")]
SIGNED = {"eigenvalues": "signed"}


def runs(budget: Budget = "cpu") -> list[Run]:
    models, tasks = ["lstm", ("delta_net", SIGNED), "transformer"], [PARITY, GROUPS[0]]  # 1,000 steps do not reach S5
    if budget != "cpu":
        models, tasks = [*models, "gru", ("xlstm", {"ratio": "0:1"}), ("mamba", SIGNED)], [PARITY, CYCLE, *GROUPS]
    listed = [study_runs(budget, tasks=tasks, models=models, full="slice", train={"qat": bits}) for bits in BITS]
    return sorted((run for of_bits in listed for run in of_bits), key=lambda run: run.seed)


table = published_tables("bits")
