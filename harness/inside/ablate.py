"""Take a layer away: put its mean in place of what it adds to the stream, and score the answers again.

    nothing taken away       1.000    1.000        right at training lengths, and at the longest of the test
    block 1: LSTMLayer       0.150    0.030        no answer without it: the state is here
    block 2: Attention       1.000    1.000        not needed

The mean is over all positions of the same strings, in the whole model. So a layer that says the same everywhere costs
nothing, and neither does one whose work another layer does, too. A block without such layers is taken away whole.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside.run_rows import made
from chomsky_ladder.harness.inside.streams import Trained
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.machine import avoid_faulty_tiles, numerics, provenance
from chomsky_ladder.harness.train.outcome import by_length
from chomsky_ladder.harness.train.score import Score, scaled
from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.layers.canon import Convolved
from chomsky_ladder.models.layers.feedback import Fed
from chomsky_ladder.models.layers.residual import Residual

NOTHING, TRAINING = "nothing", "training"
COLUMNS = ("run_id", "step", "commit", "torch", "device", "without", "lengths", "accuracy", "scaled")


class Part(NamedTuple):
    """A part of a model that can be taken away."""

    name: str
    module: nn.Module
    adds: bool  # its output is added to the stream; a whole block's is the stream


def parts_of(model: Model) -> list[Part]:
    """Return the layers of a model, in order. Raise ValueError if it has no stream that blocks add to."""
    if not isinstance(model, Backbone):
        raise ValueError(f"{model.config.name} has no residual stream from which to take a layer away")
    return [part for place, block in enumerate(model.blocks, start=1) for part in _parts(f"block {place}", block)]


def _parts(where: str, block: Block) -> Iterator[Part]:
    inside = [each for each in block.modules() if isinstance(each, Residual)]
    if len(inside) != 1:
        yield Part(where, block, False)
        return
    layers = [(_bare(layer), layer) for layer in inside[0].layers]
    kinds = [type(inner).__name__ for inner, _ in layers]
    for number, (kind, (_, layer)) in enumerate(zip(kinds, layers, strict=True)):
        again = f" {kinds[: number + 1].count(kind)}" if kinds.count(kind) > 1 else ""
        yield Part(f"{where}: {kind}{again}", layer, True)


def _bare(layer: Any) -> nn.Module:
    """Return a layer without the convolution and the feedback around it."""
    while isinstance(layer, Convolved | Fed):
        layer = layer.inner
    return layer


@torch.no_grad()
def ablated(trained: Trained) -> dict[str, Any]:
    """Return a run's accuracy with each part in turn taken away, at training lengths and in the bins of the test."""
    avoid_faulty_tiles()
    run, model, step = trained
    device = next(model.parameters()).device
    parts, evaluator = parts_of(model), Evaluator(run, model, device=device, backend="auto")
    evaluator.asks_once, task = False, evaluator.task  # the mean is over all positions
    require(task.decode != "teacher", f"{run.run_id} reads its own answers, token by token: no layer can be taken away")
    chance = None if task.allows_several else 1 / len(task.answers)
    rows: list[dict[str, Any]] = []
    for score, named in ((evaluator.in_distribution, _at_training), (evaluator.test, by_length)):
        with _heard(parts) as means:
            found = {NOTHING: score()}
        for part, mean in zip(parts, means, strict=True):
            require(mean.count > 0, f"{run.model.name} goes around its layers: they cannot be taken away")
            with _replaced(part, mean.total_D / mean.count):
                found[part.name] = score()
        rows += [
            {"without": name, "lengths": lengths, "accuracy": accuracy}
            | {"scaled": None if chance is None else scaled(accuracy, chance)}
            for name, counted in found.items()
            for lengths, accuracy in named(run, counted).items()
        ]
    return {
        "kind": "ablate",
        "run_id": run.run_id,
        "step": step,
        "parts": [NOTHING, *(part.name for part in parts)],
        "rows": rows,
        "numerics": numerics(Exec(threads=torch.get_num_threads()), device),
        "provenance": provenance(run.task, run.model),
    }


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of a CSV file."""
    return [{"run_id": result["run_id"], "step": result["step"]} | made(result) | row for row in result["rows"]]


def _at_training(run: Run, score: Score) -> dict[str, float]:
    accuracy = score.accuracy(score=run.eval.score)
    return {} if accuracy is None else {TRAINING: accuracy}


@dataclass
class _Mean:
    total_D: Any = 0.0
    count: int = 0


@contextmanager
def _heard(parts: Sequence[Part]) -> Iterator[list[_Mean]]:
    """Sum up what each part adds to the stream, over the positions inside strings."""
    means = [_Mean() for _ in parts]

    def listen(part: Part, mean: _Mean) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[Tensor, Context], output_BLD: Tensor) -> None:
            added_BLD = output_BLD if part.adds else output_BLD - given[0]
            valid_BL = given[1].valid_BL
            assert valid_BL is not None
            mean.total_D += added_BLD[valid_BL].double().sum(0)
            mean.count += int(valid_BL.sum())

        return hook

    handles = [part.module.register_forward_hook(listen(part, mean)) for part, mean in zip(parts, means, strict=True)]
    try:
        yield means
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _replaced(part: Part, mean_D: Tensor) -> Iterator[None]:
    """Let a part add this mean at every position."""

    def hook(_: nn.Module, given: tuple[Tensor, Context], output_BLD: Tensor) -> Tensor:
        same_BLD = mean_D.to(output_BLD.dtype).expand_as(output_BLD)
        return same_BLD if part.adds else given[0] + same_BLD

    handle = part.module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
