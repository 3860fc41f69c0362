"""Frozen sets of strings: one file that anybody's model can be scored on, ours or not.

    {"format": 1, "task": {"name": "parity", ..}, "vocab": ["PAD", "a", "b"], "lengths": [40, 256], "count": 8192, ..}
    {"length": 40, "tokens": [1, 2, ..], "read_at": [38], "answer": [2]}
    ..

The first line says what the strings are and holds the sha256 of everything else; then a line a string: its input
tokens, blank answer slots included, the positions whose output is an answer, and the answers. The strings are rows
0 .. count - 1 of a split, so a file exported with the test's settings holds the test's strings.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import from_plain
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import PAD, Batch, Task

FORMAT = 1


@dataclass(frozen=True)
class FrozenSet:
    """The strings of a file, as tensors."""

    task: Task
    sha256: str
    lengths: tuple[int, int]
    strings: Batch
    length_of_B: Tensor  # as the task counts lengths

    @property
    def legal(self) -> tuple[int, ...]:
        return tuple(self.length_of_B.unique().tolist())

    def batches(self, *, batch: int, device: torch.device) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """All strings in order of length, as `evaluation_batches` makes them."""
        for rows_B in torch.argsort(self.length_of_B, stable=True).split(batch):
            width = int(self.strings.length_B[rows_B].max())
            chosen = (tensor[rows_B, :width] if tensor.ndim == 2 else tensor[rows_B] for tensor in self.strings)
            yield Batch(*(t.to(device) for t in chosen)), rows_B.to(device), self.length_of_B[rows_B].to(device)


def open_frozen(path: str, sha256: str = "") -> FrozenSet:
    """The set in a file, which must be as it was exported and, where a hash is given, the set of that hash."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path}")
    found = _opened(path, file.stat().st_mtime_ns, file.stat().st_size)
    if sha256 not in ("", found.sha256):
        raise ValueError(f"{path} has other strings now than eval.file_sha256={sha256[:12]} says: put that set back")
    return found


@lru_cache(maxsize=8)
def _opened(path: str, changed: int, size: int) -> FrozenSet:
    try:
        first, *rows = Path(path).read_text().splitlines()
        header = json.loads(first)
        known = header.pop("format") == FORMAT
        said, settings = header.pop("sha256"), dict(header["task"])
        strings = [json.loads(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not a file of strings that `ladder export` wrote") from None
    if not known or digest({"format": FORMAT, **header}, rows) != said:
        raise ValueError(f"{path} is not as it was exported: its sha256 does not fit its strings")
    cls, version = find_task(settings.pop("name")), settings.pop("version")
    if version != cls.version:
        raise ValueError(f"{path} holds {cls.name} version {version}; here it is version {cls.version}")
    task = from_plain(cls, settings, where="task")
    if header["vocab"] != list(task.vocab) or header["answers"] != list(task.answers):
        raise ValueError(f"{path} has another vocabulary than {cls.name} with these settings has here")
    return FrozenSet(
        task=task,
        sha256=said,
        lengths=(header["lengths"][0], header["lengths"][1]),
        strings=_tensors(strings),
        length_of_B=torch.tensor([string["length"] for string in strings]),
    )


def _tensors(strings: list[dict[str, Any]]) -> Batch:
    rows, width = len(strings), max(len(string["tokens"]) for string in strings)
    tokens_BL = torch.full((rows, width), PAD)
    targets_BL, scored_BL = tokens_BL.clone(), torch.zeros(rows, width, dtype=torch.bool)
    for row, string in enumerate(strings):
        tokens_BL[row, : len(string["tokens"])] = torch.tensor(string["tokens"])
        targets_BL[row, string["read_at"]] = torch.tensor(string["answer"])
        scored_BL[row, string["read_at"]] = True
    length_B = torch.tensor([len(string["tokens"]) for string in strings])
    prompt_B = torch.tensor([string["read_at"][0] + 1 for string in strings])
    return Batch(tokens_BL, targets_BL, scored_BL, length_B, prompt_B)


def line(tree: dict[str, Any]) -> str:
    """A line of the file, always the same bytes."""
    return json.dumps(tree, separators=(",", ":"))


def digest(header: dict[str, Any], rows: list[str]) -> str:
    """The sha256 of a set: of its first line without it, and of its strings."""
    return hashlib.sha256("\n".join([line(header), *rows]).encode()).hexdigest()
