"""Write strings of a task to a file with their hash, as `ladder export` does (harness/config/frozen.py reads it)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.config.frozen import FORMAT, digest, line
from chomsky_ladder.harness.config.parts import plain, refuse_endless
from chomsky_ladder.harness.config.run import without_training_targets
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.train.data import evaluation_lengths
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw

_AT_ONCE = 256


def export(task: Task, path: Path, *, lengths: tuple[int, int], count: int, seed: int, split: str) -> dict[str, Any]:
    """Write `count` strings of a task. Return the file's first line."""
    task = blank_answers(without_training_targets(task))
    low, high = lengths
    if not 1 <= low <= high:
        raise ValueError(f"--lengths must rise from 1, not {low} {high}")
    refuse_endless(high, what="--lengths")
    legal = task.legal_lengths(low, high)
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must lie in 0..2**63-1, not {seed}")
    if not split:
        raise ValueError("--split needs the name of a stream")
    if not legal:
        raise ValueError(f"{task.name} has no string of length {lengths[0]}..{lengths[1]}")
    if not 1 <= count <= 10_000_000:
        raise ValueError(f"--count must lie in 1..10000000, not {count}")
    header = {
        "format": FORMAT,
        "task": {"name": task.name, "version": task.version, **plain(task)},
        "vocab": list(task.vocab),
        "answers": list(task.answers),
        "lengths": list(lengths),
        "split": split,
        "seed": seed,
        "count": count,
    }
    strings = list(rows(task, legal, count=count, seed=seed, split=split))
    header["sha256"] = digest(header, strings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = "\n".join([line(header), *strings, ""]).encode()
        if path.exists() and not path.is_file():  # a pipe, or the terminal
            path.write_bytes(content)
        else:
            write_atomically(path, content)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
    return header


def blank_answers(task: Task) -> Task:
    """Return the task with blank answer slots. A model that is fed its own answers must not see the right ones."""
    return task if task.decode == "parallel" else replace(task, decode="parallel")


def rows(task: Task, legal: Sequence[int], *, count: int, seed: int, split: str) -> Iterator[str]:
    """Yield the strings of a split in order, one line each."""
    lengths = evaluation_lengths(task, legal, count=count, seed=seed, split=split)
    for rows_B in torch.arange(count).split(_AT_ONCE):
        lengths_B = lengths[rows_B]
        width = max(map(task.positions, lengths_B.unique().tolist()))
        batch = task.sample(Draw(seed=seed, split=split, rows_B=rows_B), lengths_B, width)
        for row, length in enumerate(lengths_B.tolist()):
            read_at = batch.scored_BL[row].nonzero()[:, 0]
            string = {
                "length": length,
                "tokens": batch.tokens_BL[row, : int(batch.length_B[row])].tolist(),
                "read_at": read_at.tolist(),
                "answer": batch.targets_BL[row, read_at].tolist(),
            }
            yield line(string)
