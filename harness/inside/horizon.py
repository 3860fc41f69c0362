"""Measure how long answers stay right as a string goes on: accuracy by position, with a state of constant size.

    tokens  a b b a b ...  10,000 of them        right  1 1 1 1 0 ...        by position, in bins that double
                                                 first mistake of a string: the position of its first 0

The model reads the string through its step form, a piece at a time, and keeps only its state. So a recurrence reaches
any length in the memory of one piece, and attention goes as far as its cache. The answer asked at a position is that of
a string ending there, so the task must answer every prefix at its last symbol. Strings come from their own split. The
model's floor is the most common answer.

On this scale mistakes distinguish drift from chance. If an answer depends on a state (parity), accuracy stays at chance
once the state is lost. If the task forgets (last write), accuracy recovers. Answers that are not finite count as wrong.
Beside it stands the drift of what the head reads, for tasks with a state (harness/inside/drift.py).
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
from chomsky_ladder.harness.inside.drift import Drift
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
from chomsky_ladder.models.backbone import Backbone, state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

SCHEMA, FILE = 1, "horizon.json"
HELD = 0.9
"""Scaled accuracy from which a bin holds, as for a rung."""


def horizon_run(folder: RunFolder, settings: HorizonSettings | None = None, *, device: str = "auto") -> dict[str, Any]:
    """Measure a run and write horizon.json into its folder."""
    trained = load_trained(folder, device=find_device(device))
    with folder.locked():
        result = horizon(trained, settings)
        write_atomically(folder.path / FILE, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    return result


@torch.no_grad()
def horizon(trained: Trained, settings: HorizonSettings | None = None) -> dict[str, Any]:
    """Return a model's accuracy by position, its first mistakes, and how far it holds."""
    avoid_faulty_tiles()
    keep_freed_memory()
    settings = settings or HorizonSettings()
    run, model, step = trained
    device = next(model.parameters()).device
    batch = strings(run, settings, device=device)
    rows, length = batch.tokens_BL.shape
    _refuse(run, length)
    state = start(model, rows, max_length=length)
    watched = model if run.task.state_sizes and isinstance(model, Backbone) else None
    trained_to = run.train.longest(run.train.steps - 1)
    drift = Drift(run.task.state(batch.tokens_BL), first=min(trained_to, length)) if watched else None
    right: list[Tensor] = []
    finite: list[Tensor] = []
    for tokens_BC, targets_BC in _pieces(batch, settings.piece):
        ctx = Context(taps=frozenset({model.num_layers} if watched else ()))
        with autocast(run, device):
            logits_BCV, state = model.extend(tokens_BC, state, ctx)
        if watched and drift:
            drift.read(watched.norm(ctx.tapped[model.num_layers].to(watched.head.weight.dtype)))
        finite.append(logits_BCV.isfinite().all(-1))
        right.append((logits_BCV.argmax(-1) == targets_BC) & finite[-1])
    right_BL = torch.cat(right, 1)
    asked_BL = batch.targets_BL > 0
    bins = list(_binned(run, right_BL, asked_BL, batch.targets_BL))
    if drift:
        bins = [each | {"drift": drift.between(each["from"], each["to"])} for each in bins]
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
        "trained_to": trained_to,
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
    """Return strings of the greatest legal length up to the requested one, with an answer for every prefix."""
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
    """Return bins of positions, both ends counted from 1: the training lengths, then bins that double in size."""
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
    """Return the last position up to which all bins hold; 0 if the first does not."""
    held = 0
    for each in bins:
        if each["scaled"] < HELD:
            break
        held = each["to"]
    return held


def _first_mistakes(right_BL: Tensor, asked_BL: Tensor) -> list[int]:
    """Return the position, from 1, of the first wrong answer in each string that has one."""
    wrong_BL = asked_BL & ~right_BL
    return (wrong_BL.int().argmax(1) + 1)[wrong_BL.any(1)].tolist()
