"""One pass of a model over a batch: its context, its precision, its loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.tasks.base import Batch, Task


class Answers(NamedTuple):
    """A model's answers to one batch."""

    batch: Batch
    rows_B: Tensor
    lengths_B: Tensor
    said_BL: Tensor  # the most probable token at each position; only meaningful where scored
    right_BL: Tensor  # bool; False where nothing is scored
    nats_BL: Tensor  # float64: minus the log probability of the target; 0 where nothing is scored
    task: Task


def context(batch: Batch, *, backend: Backend, once: bool = False) -> Context:
    """Return the context of a batch.

    With `once`, only the one answer of each string is asked for (`Task.asks_once`).
    """
    position_L = torch.arange(batch.tokens_BL.shape[1], device=batch.tokens_BL.device)
    valid_BL = position_L < batch.length_B[:, None]
    asked_B = batch.length_B - 1 if once else None
    return Context(valid_BL=valid_BL, prompt_B=batch.prompt_B, asked_B=asked_B, backend=backend)


def autocast(run: Run, device: torch.device, *, cached: bool = True) -> torch.autocast:
    """Return the autocast of a run's precision. With `cached`, a weight is cast once for all its uses.

    A CUDA graph must not use the cache: replays would never see a changed weight.
    """
    enabled = run.train.precision == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=cached)


def loss_of(logits_BLV: Tensor, batch: Batch, ctx: Context) -> Tensor:
    """Return cross entropy averaged over scored tokens, plus the extra losses in the context."""
    targets_BL = torch.where(batch.scored_BL, batch.targets_BL, -100)
    if logits_BLV.shape[1] < targets_BL.shape[1]:
        targets_BL = ctx.asked(targets_BL)
    loss = nn.functional.cross_entropy(logits_BLV.flatten(0, 1), targets_BL.flatten(), ignore_index=-100)
    return loss + sum(value for values in ctx.losses.values() for value in values)
