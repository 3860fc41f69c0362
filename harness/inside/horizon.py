"""How far does an answer hold when a string goes on and on? Accuracy by position, read from a state of constant size.

    tokens  a b b a b ...  10,000 of them        right  1 1 1 1 0 ...        by position, in bins that double
                                                 first mistake of a string: the position of its first 0

The model reads the string as its step form does, a piece at a time, and keeps nothing but its state: a recurrence
reaches any length in the memory of one piece, attention as far as its cache goes. What is asked at a position is what a
string that ends there is asked, so a task must answer every prefix at its last symbol. Strings are drawn by their
places, as all are, under a split of their own. Beside the model stands its floor: the commonest answer.

On this scale mistakes tell drift from chance: an answer that hangs on a state (parity) is at chance for ever after the
state is lost once, one that forgets (last write) recovers. What is no longer a number is no answer.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain, require
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside.settings import HorizonSettings
from chomsky_ladder.harness.inside.streams import Trained, load_trained
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.harness.train.generate import start
from chomsky_ladder.harness.train.machine import (
    avoid_faulty_tiles,
    find_device,
    keep_freed_memory,
    numerics,
    provenance,
)
from chomsky_ladder.harness.train.score import scaled
from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

SCHEMA, FILE = 1, "horizon.json"
HELD = 0.9
"""Scaled accuracy of a bin, as of a rung."""


def horizon_run(folder: RunFolder, settings: HorizonSettings | None = None, *, device: str = "auto") -> dict[str, Any]:
    """Measure a run and write horizon.json into its folder."""
    trained = load_trained(folder, device=find_device(device))
    with folder.locked():
        result = horizon(trained, settings)
        write_atomically(folder.path / FILE, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    return result


@torch.no_grad()
def horizon(trained: Trained, settings: HorizonSettings | None = None) -> dict[str, Any]:
    """Accuracy by position of a model, first mistakes, and how far it holds."""
    avoid_faulty_tiles()
    keep_freed_memory()
    settings = settings or HorizonSettings()
    run, model, step = trained
    device = next(model.parameters()).device
    batch = strings(run, settings, device=device)
    rows, length = batch.tokens_BL.shape
    _refuse(run, length)
    state = start(model, rows, max_length=length)
    right: list[Tensor] = []
    finite: list[Tensor] = []
    for tokens_BC, targets_BC in _pieces(batch, settings.piece):
        with autocast(run, device):
            logits_BCV, state = model.extend(tokens_BC, state, Context())
        finite.append(logits_BCV.isfinite().all(-1))
        right.append((logits_BCV.argmax(-1) == targets_BC) & finite[-1])
    right_BL = torch.cat(right, 1)
    asked_BL = batch.targets_BL > 0
    bins = list(_binned(run, right_BL, asked_BL, batch.targets_BL))
    first_B = _first_mistakes(right_BL, asked_BL)
    return {
        "schema": SCHEMA,
        "kind": "horizon",
        "run_id": run.run_id,
        "step": step,
        "task": run.task.name,
        "model": run.model.name,
        "settings": plain(settings),
        "length": length,
        "trained_to": run.train.longest(run.train.steps - 1),
        "state_bytes": state_bytes(state) // rows,
        "bins": bins,
        "holds_to": _holds_to(bins),
        "finite_to": int(torch.cat(finite, 1).all(0).int().cumprod(0).sum()),
        "first_mistakes": sorted(first_B),
        "without_mistake": rows - len(first_B),
        "numerics": numerics(Exec(threads=torch.get_num_threads()), device),
        "provenance": provenance(run.task, run.model),
    }


def strings(run: Run, settings: HorizonSettings, *, device: torch.device) -> Batch:
    """Strings of the greatest length that the task has up to the one asked for, each prefix with its answer."""
    task = run.task
    each = isinstance(task, Classification) and type(task).prefix_answers is not Classification.prefix_answers
    require(each and not getattr(task, "closing", ()), f"{task.name} does not answer every prefix at its last symbol")
    assert isinstance(task, Classification)
    task = replace(task, supervision="dense")
    legal = task.legal_lengths(max(1, settings.length - 64), settings.length)
    require(bool(legal), f"{task.name} has no strings of a length in {max(1, settings.length - 64)}..{settings.length}")
    rows_B = torch.arange(settings.strings, device=device)
    draw = Draw(seed=settings.seed, split="horizon", rows_B=rows_B)
    return task.sample(draw, torch.full_like(rows_B, legal[-1]), task.positions(legal[-1]))


def _refuse(run: Run, length: int) -> None:
    config = run.model
    require(config.stepwise, f"{config.name} has no step form: it has no state to read on from")
    most = config.longest_input
    require(most is None or length <= most, f"{config.name} takes no more than {most} positions, not {length}")


def _pieces(batch: Batch, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(batch.tokens_BL.split(size, 1), batch.targets_BL.split(size, 1), strict=True)


def edges(trained_to: int, length: int) -> list[tuple[int, int]]:
    """Positions in bins, both ends counted from 1: the trained ones, then ever twice as many."""
    found, low, high = [], 1, min(trained_to, length)
    while low <= length:
        found.append((low, high))
        low, high = high + 1, min(2 * high, length)
    return found


def _binned(run: Run, right_BL: Tensor, asked_BL: Tensor, targets_BL: Tensor) -> Iterator[dict[str, Any]]:
    for low, high in edges(run.train.longest(run.train.steps - 1), right_BL.shape[1]):
        asked_BP, right_BP = asked_BL[:, low - 1 : high], right_BL[:, low - 1 : high]
        count = int(asked_BP.sum())
        if count:
            accuracy = int((right_BP & asked_BP).sum()) / count
            commonest = int(targets_BL[:, low - 1 : high][asked_BP].bincount().max()) / count
            yield {
                "from": low,
                "to": high,
                "answers": count,
                "accuracy": accuracy,
                "scaled": scaled(accuracy, 1 / len(run.task.answers)),
                "commonest": commonest,
            }


def _holds_to(bins: Sequence[dict[str, Any]]) -> int:
    """The last position of the bins from the first one on that hold; 0 if the first does not."""
    held = 0
    for each in bins:
        if each["scaled"] < HELD:
            break
        held = each["to"]
    return held


def _first_mistakes(right_BL: Tensor, asked_BL: Tensor) -> list[int]:
    """The positions, from 1, of the first wrong answer of those strings that have one."""
    wrong_BL = asked_BL & ~right_BL
    return (wrong_BL.int().argmax(1) + 1)[wrong_BL.any(1)].tolist()
