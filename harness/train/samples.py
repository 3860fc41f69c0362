"""Strings of a task with their answers, as text for people and as tensors for a model.

some = sample("parity", 3, length=6)
print(some)                          a b b a b  ->  b        a line a string
model(some.batch.tokens_BL)          the tensors behind them (tasks/base.py): tokens, targets, scored positions, ..
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.train.data import evaluation_lengths
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw

MOST = 1_000_000


@dataclass(frozen=True)
class Sample:
    """Strings of one task."""

    task: Task
    batch: Batch
    lengths: list[int]
    """The lengths as the task counts them."""

    @property
    def strings(self) -> list[str]:
        """Return `input -> answer` lines, in the task's symbols."""
        return [f"{' '.join(row['input'])}  ->  {' '.join(row['answer'])}" for row in self.rows()]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every string's symbols, its answers and the positions at which they are read."""
        vocab, batch = self.task.vocab, self.batch
        for row, length in enumerate(self.lengths):
            positions, scored = int(batch.length_B[row]), batch.scored_BL[row]
            yield {
                "row": row,
                "length": length,
                "input": [vocab[token] for token in batch.tokens_BL[row, :positions].tolist()],
                "answer": [vocab[token] for token in batch.targets_BL[row][scored].tolist()],
                "read_at": scored.nonzero()[:, 0].tolist(),
            }

    def __len__(self) -> int:
        return len(self.lengths)

    def __str__(self) -> str:
        return "\n".join(self.strings)

    __repr__ = __str__  # for notebooks


def sample(
    task: Task | str, n: int = 3, *, length: int = 0, seed: int = 0, settings: dict[str, Any] | None = None
) -> Sample:
    """Draw `n` strings of a task, given by name or as an object, of one length or of any from 3 to 20.

    `settings` change the task's settings. The same seed gives the same strings on any machine.
    """
    chosen = find_task(task)() if isinstance(task, str) else task
    chosen = replaced(chosen, settings or {}, where="task")
    if length < 0:
        raise ValueError(f"a length must not be negative: {length}")
    if not 1 <= n <= MOST:
        raise ValueError(f"the count of strings must lie in 1..{MOST}, not {n}")
    legal = _legal(chosen, length)
    lengths_B = evaluation_lengths(chosen, legal, count=n, seed=seed, split="train")
    draw = Draw(seed=seed, split="train", rows_B=torch.arange(n))
    batch = chosen.sample(draw, lengths_B, max(map(chosen.positions, legal)))
    return Sample(chosen, batch, lengths_B.tolist())


def _legal(task: Task, length: int) -> tuple[int, ...]:
    """Return the legal lengths: the given one, else those from 3 to 20, else the task's shortest."""
    low, high = (length, length) if length else (3, 20)
    legal = task.legal_lengths(low, high)
    every = task.legal_lengths(1, max(2 * high, 256))
    if not length and not legal:
        legal = every[:1]
    if not legal:
        near = ", ".join(map(str, sorted(sorted(every, key=lambda legal: abs(legal - low))[:4])))
        raise ValueError(f"{task.name} has no string of length {low}..{high}" + (f"; it has {near}" if near else ""))
    return legal
