"""Frozen sets of strings: a file on which any model can be scored, also one from outside this package.

    {"format": 1, "task": {"name": "parity", ..}, "vocab": ["PAD", "a", "b"], "lengths": [40, 256], "count": 8192, ..}
    {"length": 40, "tokens": [1, 2, ..], "read_at": [38], "answer": [2]}
    ..

The first line describes the strings and holds the sha256 of everything else. Then each string has a line: its input
tokens with blank answer slots, the positions whose output is an answer, and the answers. The strings are rows 0 ..
count - 1 of a split, so a file exported with the test's settings holds the test's strings. When a file is opened, its
strings are drawn again and compared, because the hash only detects accidental changes.
"""

import hashlib
import json
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import from_plain
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw

FORMAT = 1
_AT_ONCE = 256  # strings drawn again at a time


@dataclass(frozen=True)
class FrozenSet:
    """The strings of a file, as tensors."""

    task: Task
    sha256: str
    lengths: tuple[int, int]
    seed: int
    split: str
    strings: Batch
    length_of_B: Tensor  # as the task counts lengths

    @property
    def legal(self) -> tuple[int, ...]:
        return tuple(self.length_of_B.unique().tolist())

    def batches(self, *, batch: int, device: torch.device) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Yield batches of all strings, the longest first, as `evaluation_batches` does."""
        for rows_B in torch.argsort(self.length_of_B, stable=True, descending=True).split(batch):
            width = int(self.strings.length_B[rows_B].max())
            chosen = (tensor[rows_B, :width] if tensor.ndim == 2 else tensor[rows_B] for tensor in self.strings)
            yield Batch(*(t.to(device) for t in chosen)), rows_B.to(device), self.length_of_B[rows_B].to(device)


def open_frozen(path: str, sha256: str = "") -> FrozenSet:
    """Return the set in a file. Refuse one that was changed or that does not have the given hash."""
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
        first, *rows = Path(path).read_text("utf-8").splitlines()
        header = json.loads(first)
        known = header.pop("format") == FORMAT
        said, settings = header.pop("sha256"), dict(header["task"])
        strings = [json.loads(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path} is not a file of strings that `ladder export` wrote") from None
    if not known or digest({"format": FORMAT, **header}, rows) != said:
        raise ValueError(f"{path} is not as it was exported: its sha256 does not fit its strings")
    task = _task(path, header, settings)
    lengths, seed, split = _drawn_by(path, header)
    legal = set(task.legal_lengths(*lengths))
    if header.get("count") != len(strings) or not strings:
        raise ValueError(f"{path} says it has {header.get('count')!r} strings, and {len(strings)} are there")
    for number, string in enumerate(strings, start=1):
        wrong = _wrong(string, task, legal)
        if wrong:
            raise ValueError(f"{path} holds no string of {task.name} in line {number + 1}: {wrong}")
    batch, length_of_B = _tensors(strings), torch.tensor([string["length"] for string in strings])
    _refuse_others(path, task, batch, length_of_B, seed=seed, split=split)
    return FrozenSet(
        task=task, sha256=said, lengths=lengths, seed=seed, split=split, strings=batch, length_of_B=length_of_B
    )


def _task(path: str, header: dict[str, Any], settings: dict[str, Any]) -> Task:
    """Return the task of a set. Its tokens must mean what they mean here."""
    name, version = settings.pop("name", None), settings.pop("version", None)
    if not isinstance(name, str):
        raise ValueError(f"{path} names no task in its first line")
    cls = find_task(name)
    if version != cls.version:
        raise ValueError(f"{path} holds {cls.name} version {version}; here it is version {cls.version}")
    try:
        task = from_plain(cls, settings, where="task")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has settings in its first line that {cls.name} cannot have: {error}") from None
    if header.get("vocab") != list(task.vocab) or header.get("answers") != list(task.answers):
        raise ValueError(f"{path} has another vocabulary than {cls.name} with these settings has here")
    return task


def _drawn_by(path: str, header: dict[str, Any]) -> tuple[tuple[int, int], int, str]:
    """Return the lengths, the seed and the split named in the first line."""
    lengths, seed, split = (header.get(name) for name in ("lengths", "seed", "split"))
    if not _are_whole(lengths) or len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1] < 2**31:
        raise ValueError(f"{path} has no lengths in its first line that rise from 1, but {str(lengths)[:40]}")
    if type(seed) is not int or not 0 <= seed < 2**63 or not isinstance(split, str) or not split:
        raise ValueError(f"{path} has no seed and split in its first line that strings could be drawn by")
    return (lengths[0], lengths[1]), seed, split


def _wrong(string: Any, task: Task, legal: Set[int]) -> str:
    """Return why a line is not a string of the task; "" if it may be one."""
    if not isinstance(string, dict) or set(string) != {"length", "tokens", "read_at", "answer"}:
        return "it has not length, tokens, read_at and answer"
    length, tokens, read_at, answer = (string[name] for name in ("length", "tokens", "read_at", "answer"))
    if type(length) is not int or length not in legal:
        return f"its length is {str(length)[:20]}, which the first line rules out"
    if not _are_whole(tokens) or len(tokens) != task.positions(length):
        return f"its tokens do not fill the {task.positions(length)} positions of its length"
    if not all(0 <= token < len(task.vocab) for token in tokens):
        return f"a token of it is none of the {len(task.vocab)} there are"
    if not _are_whole(read_at) or not read_at or not all(-1 < a < b for a, b in pairwise([*read_at, len(tokens)])):
        return "the positions that are read do not rise within it"
    if not _are_whole(answer) or len(answer) != len(read_at) or not set(answer) <= set(task.answers):
        return "its answers are not one for each position that is read"
    return ""


def _are_whole(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and set(map(type, values)) <= {int}


def _refuse_others(path: str, task: Task, strings: Batch, length_of_B: Tensor, *, seed: int, split: str) -> None:
    """Draw the strings again from seed, split and row, and refuse a file that differs in strings or answers."""
    for rows_B in torch.arange(len(length_of_B)).split(_AT_ONCE):
        lengths_B = length_of_B[rows_B]
        width = max(map(task.positions, lengths_B.unique().tolist()))
        drawn = task.sample(Draw(seed=seed, split=split, rows_B=rows_B), lengths_B, width)
        tokens_BL, targets_BL, scored_BL = (part[rows_B, :width] for part in strings[:3])
        within_BL = torch.arange(width) < drawn.length_B[:, None]
        same_BL = (scored_BL == drawn.scored_BL) & ((tokens_BL == drawn.tokens_BL) | ~within_BL)
        same_BL &= (targets_BL == drawn.targets_BL) | ~drawn.scored_BL
        if not bool(same_BL.all()):
            line_number = int(rows_B[~same_BL.all(1)][0]) + 2
            raise ValueError(
                f"{path} has another string or answer in line {line_number} than {task.name} draws for it: "
                "it is not what `ladder export` writes"
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
    """Return a line of the file. Equal trees give equal bytes."""
    return json.dumps(tree, separators=(",", ":"))


def digest(header: dict[str, Any], rows: list[str]) -> str:
    """Return the sha256 of a set: of its first line without the hash, and of its strings."""
    return hashlib.sha256("\n".join([line(header), *rows]).encode()).hexdigest()
