"""The accuracy table of the tasks that no architecture is known to solve."""

from dataclasses import replace

from chomsky_ladder.harness.tables.kind import Row, register
from chomsky_ladder.harness.tables.kinds.accuracy import ACCURACY, beside_a_paper


def is_hard(row: Row) -> bool:
    return "hard" in row["traits"].split()


register(
    replace(
        ACCURACY,
        name="hard",
        about="accuracy on the tasks that nobody solves",
        against=beside_a_paper(is_hard),
        wants=is_hard,
        subject="a task that nobody solves (`hard` of tasks/base.py)",
        rank=1,
    )
)
