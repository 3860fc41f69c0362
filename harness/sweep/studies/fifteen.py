"""The fifteen tasks of the xLSTM paper (2405.04517) by fourteen models, at a budget for two CPU cores.

    ladder study fifteen --budget cpu --report-seeds 3

cpu is the frozen suite fifteen-v1: one seed at each of three learning rates, then three fresh seeds at the chosen one.
That is 630 and 630 runs of at most 8,000 steps, some 50 hours of a core. The most telling tasks come first. gpu is
the same cells under xlstm_20k, full the published protocol.
"""

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.studies.xlstm_table import ALL
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

SUITE = "fifteen-v1"
MODELS = [*ALL, "sliding_window", "moe"]


def runs(budget: Budget = "cpu") -> list[Run]:
    tasks = PROTOCOLS[SUITE].table
    return [run for task in tasks for run in study_runs(budget, tasks=[task], models=MODELS, cpu=SUITE)]


table = published_tables("accuracy", against="xlstm")
