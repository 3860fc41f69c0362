"""The least depth at which a model solves a length: one block is enough for a recurrence, others need log n.

    ladder study depth --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

Models are trained and tested at one length n, as in Merrill et al. 2024 (2404.08819), section 5. A cell is the least
number of blocks whose mean scaled accuracy over seeds, at the learning rate chosen on validation, is .9 or more. `>4`
means that the deepest model tried is not enough, `?` that a smaller depth has no result.
"""

from collections.abc import Sequence
from pathlib import Path

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.tables.depth import depths

LENGTHS: dict[Budget, list[int]] = {
    "smoke": [4, 8],
    "cpu": [4, 8, 16],
    "gpu": [4, 8, 16],
    "full": [4, 8, 12, 16, 20, 24],
}
DEEPEST: dict[Budget, int] = {"smoke": 2, "cpu": 3, "gpu": 4, "full": 4}
MODELS = [("transformer", {}), ("mamba", {}), ("delta_net", {"eigenvalues": "signed"}), ("lstm", {})]


def runs(budget: Budget = "cpu") -> list[Run]:
    tasks = ["parity"] if budget == "cpu" else ["parity", ("word_problem", {"group": "A5"})]
    found = []
    for n in LENGTHS[budget]:
        exact = {"lengths": [n, n], "bins": [n - 1, n], "extrapolate": []}
        for blocks in range(1, DEEPEST[budget] + 1):
            models = [(name, {**changes, "num_blocks": blocks}) for name, changes in MODELS]
            found += study_runs(
                budget, tasks=tasks, models=models, full="grazzi", train={"lengths": [n, n]}, score=exact
            )
    return found


def table(listed: Sequence[Run], results: Path) -> str:
    sheets, data = depths(listed, collect(results))
    (results / "tables").mkdir(exist_ok=True)
    write_atomically(results / "tables" / "depth.csv", csv_of(data).encode())
    write_atomically(results / "tables" / "depth.md", sheets.encode())
    return sheets
