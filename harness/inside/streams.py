"""The inputs and labels of probes: a model's streams, and a task's states.

Layer 0 is the embedding, layer l the stream after block l. A position counts if a symbol is read there: blank answer
slots and padding do not count. A task with boards has two views, that of the player to move and black and white.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import restored
from chomsky_ladder.harness.train.data import evaluation_lengths
from chomsky_ladder.harness.train.forward import autocast, context
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw


class Trained(NamedTuple):
    """A finished run and its model, in eval mode."""

    run: Run
    model: Model
    step: int


def load_trained(folder: RunFolder, *, device: torch.device | str = "cpu") -> Trained:
    """Return the model of a finished run. Refuse an unfinished one."""
    result = folder.result()
    if result is None or result["status"] != "done":
        why = "is not done yet" if result is None else f"has {result['status']}"
        raise ValueError(f"{folder.path.name} {why}: only a finished run is probed")
    run, model, step = restored(folder)
    return Trained(run, model.to(device), step)


def views_of(task: Task) -> dict[str, tuple[str, ...]]:
    """Return the views in which a task's state is labelled, with the names of their classes.

    The first is the main one.
    """
    if not task.state_sizes:
        raise ValueError(f"{task.name} defines no state that a probe could look for")
    return task.state_views


def labels_of(task: Task, tokens_BL: Tensor) -> dict[str, Tensor]:
    """Return the state after each position in each view, int64 [B, L, S]."""
    return {view: task.state_as(view, tokens_BL) for view in views_of(task)}


@torch.no_grad()
def streams_of(model: Model, tokens_BL: Tensor, ctx: Context | None = None) -> list[Tensor]:
    """Return the stream of every layer, [B, L, D] each."""
    layers = range(model.num_layers + 1)
    ctx = ctx or Context()
    ctx.taps = frozenset(layers)
    model(tokens_BL, ctx)
    if set(ctx.tapped) != set(layers):
        raise ValueError(f"{model.config.name} has no residual stream that could be tapped at every layer")
    return [ctx.tapped[layer] for layer in layers]


class Strings(NamedTuple):
    """The strings of one split, and the N positions that count."""

    batch: Batch
    string_N: Tensor
    position_N: Tensor
    labels: dict[str, Tensor]  # [N, S] for each view

    @property
    def count(self) -> int:
        return self.batch.tokens_BL.shape[0]


def strings_of(
    run: Run, split: str, *, count: int, lengths: tuple[int, int], device: torch.device | str = "cpu"
) -> Strings:
    """Return the first `count` strings of a split, the same for every model of a task."""
    task = without_training_targets(run.task)
    legal = task.legal_lengths(*lengths)
    if not legal:
        raise ValueError(f"{task.name} has no string of length {lengths[0]}..{lengths[1]} to be probed on")
    lengths_B = evaluation_lengths(task, legal, count=count, seed=run.eval.seed, split=split).to(device)
    draw = Draw(seed=run.eval.seed, split=split, rows_B=torch.arange(count, device=device))
    batch = task.sample(draw, lengths_B, max(map(task.positions, legal)))
    position_L = torch.arange(batch.tokens_BL.shape[1], device=device)
    read_BL = (batch.tokens_BL != PAD) & (position_L < batch.length_B[:, None])
    string_N, position_N = read_BL.nonzero().unbind(1)
    labels = {view: labels_BLS[read_BL] for view, labels_BLS in labels_of(task, batch.tokens_BL).items()}
    return Strings(batch, string_N, position_N, labels)


def stream_positions(run: Run, model: Model, strings: Strings) -> list[Tensor]:
    """Return the stream of every layer at the positions that count, float32 [N, D] each."""
    device = strings.batch.tokens_BL.device
    parts: list[list[Tensor]] = [[] for _ in range(model.num_layers + 1)]
    for rows_B in torch.arange(strings.count, device=device).split(run.eval.batch):
        batch = Batch(*(x[rows_B] for x in strings.batch))
        inside_N = (strings.string_N >= rows_B[0]) & (strings.string_N <= rows_B[-1])
        row_N, position_N = strings.string_N[inside_N] - rows_B[0], strings.position_N[inside_N]
        with autocast(run, device):
            streams = streams_of(model, batch.tokens_BL, context(batch, backend="auto"))
        for part, x_BLD in zip(parts, streams, strict=True):
            part.append(x_BLD[row_N, position_N].float())
    return [torch.cat(part) for part in parts]
