"""The least block of a bilinear RNN that composes a group: as large as a faithful representation, if theory is right.

    ladder study group_blocks --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

A bilinear RNN of one block multiplies its state by matrices of block_size rows. To compose a group they have to be a
representation, and one by real matrices (harness/inside/rounding.py). The least that tells all elements apart:

    S3   2 rows      A5   3      S5   4      A6   5

Smaller blocks do not add up to a larger one: A5 and A6 are simple, so a representation that does not tell all elements
apart tells none apart. Of S5 a smaller one tells odd from even. Signs do not help either, as no double cover of these
groups has smaller real representations. Settings are those of climb-v1, and the width is 120.
"""

from dataclasses import replace

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.protocols import grid
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, in_smoke
from chomsky_ladder.harness.sweep.study_tables import published_tables

SUITE = "climb-v1"
LEAST = {"S3": 2, "A5": 3, "S5": 4, "A6": 5}
MODEL = {"num_blocks": 1, "d_model": 120, "d_inner": 0}


def runs(budget: Budget = "cpu") -> list[Run]:
    sizes = (2, 3, 4, 5) if budget in ("smoke", "cpu") else (1, 2, 3, 4, 5, 6)
    found = []
    for group in LEAST:
        for size in sizes:
            listed = grid("word_problem", "bilinear_rnn", protocol=SUITE)
            task = replaced(listed[0].task, {"group": group, "inputs": "generators"}, where="task")
            model = replaced(listed[0].model, MODEL | {"block_size": size}, where="model")
            found += [replace(run, task=task, model=model) for run in listed]
    found.sort(key=lambda run: run.seed)
    return in_smoke(found) if budget == "smoke" else found


table = published_tables("lengths")
