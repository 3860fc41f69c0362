"""Frozen suites: each is a file of harness/config/suites/, a protocol in which everything is fixed.

`scripts/freeze.py` writes one, once. It holds the versions of its tasks and a hash of each task's first test strings,
so that a suite can be checked anywhere.
"""

import hashlib
from importlib.resources import files

from chomsky_ladder.harness.config.run import without_training_targets
from chomsky_ladder.harness.train.export import blank_answers, rows
from chomsky_ladder.tasks.base import Task

FOLDER = files("chomsky_ladder.harness.config") / "suites"

_HASHED = 64  # test strings of a task


def strings_hash(task: Task, *, lengths: tuple[int, int], seed: int) -> str:
    """Return the sha256 of a task's first test strings, as `ladder export` writes them."""
    task = blank_answers(without_training_targets(task))
    lines = rows(task, task.legal_lengths(*lengths), count=_HASHED, seed=seed, split="test")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
