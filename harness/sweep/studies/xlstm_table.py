"""The formal-language table of the xLSTM paper (2405.04517, figure 4 and appendix B.1): models x tasks, three learning
rates.

    ladder study xlstm_table --budget smoke|cpu|gpu|full [--engine ray] [--report-seeds 5] [--exec.results FOLDER]

cpu runs the four regular tasks, bucket_sort and majority for six of the models; gpu is 12 x 10 x 9 = 1,080 runs of
20,000 steps; full is 12 x 15 x 9 = 1,620 runs of the published 100,000. The paper's values stand beside ours, with the
difference in budget in the header.
"""

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

XLSTM = [("xlstm", {"ratio": ratio}) for ratio in ("0:1", "1:0", "1:1")]
SIX = ["lstm", "lstm_block", *XLSTM[:2], "mamba", "transformer"]
TEN = [*PROTOCOLS["xlstm_cpu"].table, "mod_arithmetic_brackets", "solve_equation", "repetition", "reverse_string"]
ALL = [*SIX, XLSTM[2], "retention", "hyena", "rwkv4", "rwkv5", "rwkv6"]


def runs(budget: Budget = "cpu") -> list[Run]:
    if budget == "gpu":
        return study_runs(budget, tasks=TEN, models=ALL)
    protocol, models = ("xlstm", ALL) if budget == "full" else ("xlstm_cpu", SIX)
    return study_runs(budget, tasks=PROTOCOLS[protocol].table, models=models)


table = published_tables("accuracy", against="xlstm")
