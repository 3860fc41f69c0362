"""The weights of one run, or of several runs that train as one. A step updates all of them and reads no value.

Runs of one task and one model that differ only in seed, learning rate, other scalars of training and the size of a
finite training set are stacked. Their weights are the rows of one tensor [R, P], and the forward pass is `torch.vmap`
of one model's. One backward pass of the summed losses gives each run its own gradient, since no loss depends on another
run's weights. A single run is the same without vmap. All decisions of a step are made on the device, for example to
hold a replica whose loss is no longer finite. So the host need not look at every step, and a step can be captured in a
CUDA graph.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.following import Following
from chomsky_ladder.harness.train.forward import autocast, context, loss_of
from chomsky_ladder.harness.train.optim import AdamW, declared
from chomsky_ladder.harness.train.quantise import is_matrix, write_rounded
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.tasks.base import Batch

_ALIGNED = 64  # each tensor starts at a multiple of this many weights, so that kernels may read 16 bytes at a time


def pack_key(run: Run) -> Run:
    """Return what runs of a pack share: all but seed, optimiser scalars and the size of a finite training set."""
    scalars = {"lr": 1.0, "lr_final": 0.0, "warmup": 0.0, "schedule": "cosine", "weight_decay": 0.0}
    scalars |= {"betas": (0.0, 0.0), "eps": 1.0, "clip": 0.0, "stop_after": 0, "stop_above": 1.0}
    scalars |= {"examples": min(run.train.examples, 1)}
    return replace(run, seed=0, train=replace(run.train, **scalars))


class Seen(NamedTuple):
    """A replica's counters and metrics, read by the host."""

    live: bool  # it still takes steps
    done: int  # steps taken
    loss: float  # of its last step: the value that was not finite, if it diverged
    norm: float
    loss_sum: float  # since the last `forget`
    metrics: dict[str, float]


Metrics = dict[str, Tensor]


class Parts(NamedTuple):
    """The functions that a step calls: a pack's methods, or compiled ones (harness/train/compiled.py)."""

    draw: Callable[[Tensor, int], Batch]
    gradients: Callable[[Tensor, Batch], tuple[Tensor, Tensor, Metrics]]
    losses: Callable[[Sequence[Tensor], Tensor, Batch], tuple[Tensor, Metrics]]
    in_rows: Callable[[Sequence[Tensor | None]], Tensor]
    update: Callable[[Tensor, Tensor, Metrics], None]


class Pack:
    """Replicas in training. The parameters of `models[r]` are row r of the weights, always up to date.

    Under `train.qat` they are row r of the rounded weights, which are rounded again after every step.
    """

    def __init__(self, runs: Sequence[Run], *, device: torch.device, backend: Backend) -> None:
        assert len({pack_key(run) for run in runs}) == 1, "runs of a pack differ in scalars of training alone"
        self.run, self.count, self.device, self.backend = runs[0], len(runs), device, backend
        self.models = [build_model(run, device) for run in runs]
        self.stream = TrainingStream(runs, device)
        self.following = Following(self.run, device) if self.run.train.asks_what_follows else None
        self.asks_once = self.run.task.asks_once and self.following is None
        self.kernels: set[str] = set()
        """The kernels that the losses used. Compiled losses depend on this set, so nothing else may add to it."""
        self.compiled: set[str] = set()
        self._names = [name for name, _ in self.models[0].named_parameters()]
        self._shapes = [parameter.shape for parameter in self.models[0].parameters()]
        sizes = [shape.numel() for shape in self._shapes]
        self._padding = [-size % _ALIGNED for size in sizes]
        ends = [0]
        for size, padding in zip(sizes, self._padding, strict=True):
            ends.append(ends[-1] + size + padding)
        self._spans = [slice(start, start + size) for (start, _), size in zip(pairwise(ends), sizes, strict=True)]
        self.weight_RP, self.read_RP = self._place_weights(ends[-1])
        self._is_matrix = is_matrix(self.models[0])
        self.settle()
        self._leaves = self._make_leaves()
        decayed_P, multiplier_P = torch.zeros_like(self.weight_RP[0]), torch.ones_like(self.weight_RP[0])
        listed = declared(self.models[0], decayed=self.run.train.decayed)
        for span, (parameter, decays, multiplier) in zip(self._spans, listed, strict=True):
            decayed_P[span], multiplier_P[span] = float(decays), multiplier * parameter.requires_grad
        self.optimizer = AdamW(self.weight_RP, decayed_P, multiplier_P, [run.train for run in runs], backend=backend)
        self.step_number = torch.zeros((), dtype=torch.int64, device=device)
        self.live_R = torch.ones(self.count, dtype=torch.bool, device=device)
        self.done_R = torch.zeros(self.count, dtype=torch.int64, device=device)
        self.loss_R, self.norm_R, self.loss_sum_R = torch.zeros(3, self.count, dtype=torch.float64, device=device)
        self.metrics: Metrics = {}
        self.instead: Parts | None = None
        """Parts of a step in place of its own methods."""

    @property
    def parts(self) -> Parts:
        return self.instead or Parts(self.draw, self.gradients, self.losses, self.in_rows, self.update)

    @property
    def backends(self) -> set[str]:
        """Return the kernels that steps used, and the parts of them that were compiled."""
        return self.kernels | self.compiled | self.optimizer.kernels

    def _place_weights(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the learnt rows and the rows that models read. Without rounding these are the same tensor."""
        weight_RP = next(self.models[0].parameters()).new_zeros(self.count, size)
        read_RP = torch.zeros_like(weight_RP) if self.run.train.qat else weight_RP
        for row, model in enumerate(self.models):
            for parameter, span in zip(model.parameters(), self._spans, strict=True):
                assert not parameter.is_complex(), "complex weights are kept as reals"
                weight_RP[row, span] = parameter.detach().flatten()
                parameter.data = read_RP[row, span].view(parameter.shape)
        for (name, one), *others in zip(*map(_other_tensors, self.models), strict=True):
            assert all(torch.equal(one, other) for _, other in others), f"{name} differs between seeds"
        return weight_RP, read_RP

    def settle(self) -> None:
        """Update the weights that the models read."""
        if self.run.train.qat:
            learnt, read = self.stacks(self.weight_RP), self.stacks(self.read_RP)
            write_rounded(learnt, read, self._is_matrix, self.run.train.qat)

    def stacks(self, weight_RP: Tensor) -> list[Tensor]:
        """Return views of the rows as the models' tensors, [R, ...] each."""
        spans = zip(self._spans, self._shapes, strict=True)
        return [weight_RP[:, span].view(self.count, *shape) for span, shape in spans]

    def _make_leaves(self) -> list[Tensor]:
        """Return the tensors that a step differentiates by: a single model's parameters, or their stacks [R, ...]."""
        if self.count == 1:
            return list(self.models[0].parameters())
        stacks = zip(self.stacks(self.read_RP), self.models[0].parameters(), strict=True)
        return [stack.detach().requires_grad_(parameter.requires_grad) for stack, parameter in stacks]

    def advance(self, longest: int) -> None:
        """Take one optimiser step of every live replica, on strings up to length `longest`."""
        batch = self.parts.draw(self.step_number, longest)
        self.parts.update(*self.parts.gradients(self.step_number, batch))

    def draw(self, step: Tensor, longest: int) -> Batch:
        return self.stream.batch(step, longest=longest)

    def gradients(self, step: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Metrics]:
        """Return the gradient [R, P], the losses and the blocks' metrics of a batch.

        Rounding passes the gradient through.
        """
        with autocast(self.run, self.device):
            loss_R, metrics = self.parts.losses(self._leaves, step, batch)
        return self.gradient_of(loss_R), loss_R.detach(), metrics

    def gradient_of(self, loss_R: Tensor) -> Tensor:
        """Return the gradient [R, P], computed by one backward pass."""
        learnt = [leaf for leaf in self._leaves if leaf.requires_grad]
        return self.parts.in_rows(torch.autograd.grad(loss_R.sum(), learnt, allow_unused=True))

    def in_rows(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Lay out the parameters' gradients as rows [R, P]."""
        found, pieces = iter(gradients), []
        for leaf, padding in zip(self._leaves, self._padding, strict=True):
            gradient = next(found) if leaf.requires_grad else None
            gradient = torch.zeros_like(leaf) if gradient is None else gradient
            pieces.append(gradient.reshape(self.count, -1))
            if padding:
                pieces.append(gradient.new_zeros(self.count, padding))
        return torch.cat(pieces, 1)

    def context(self, batch: Batch) -> Context:
        """Return a batch's context. With several processes each makes its own (harness/train/distributed.py)."""
        return context(batch, backend=self.backend, once=self.asks_once)

    def losses(self, leaves: Sequence[Tensor], step: Tensor, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss of every replica on its own strings, and the blocks' metrics."""
        following = self.following.targets(batch) if self.following else ()
        if self.count == 1:
            ctx = self.context(batch)
            ctx.masks = self.stream.masks(step)
            loss, metrics = self._loss(self.models[0], batch, ctx, following)
            return loss[None], {name: value[None] for name, value in metrics.items()}

        def one(
            weights: list[Tensor], seed: Tensor, following: tuple[Tensor, ...], *fields: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:  # torch.compile cannot trace `Metrics`
            batch = Batch(*fields)
            ctx = context(batch, backend=self.backend, once=self.asks_once)
            ctx.stacked, ctx.masks = True, self.stream.masks(step, seed=seed)
            return self._loss(self._reading(weights), batch, ctx, following)

        return torch.vmap(one)(list(leaves), self.stream.seed_R, following, *batch)

    def _loss(
        self, model: Callable[[Tensor, Context], Tensor], batch: Batch, ctx: Context, following: Sequence[Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits_BLV = model(batch.tokens_BL, ctx)
        if self.following:
            self.following.add(logits_BLV, batch, following, ctx)
        loss = loss_of(logits_BLV, batch, ctx)
        self.kernels |= ctx.backends
        return loss, means(ctx)

    def logits(self, batch: Batch, ctx: Context) -> Tensor:
        """Return the logits of several models on the same strings: [R, B, L, V]."""
        return torch.vmap(lambda weights: self._reading(weights)(batch.tokens_BL, ctx))(self._leaves)

    def _reading(self, weights: Sequence[Tensor]) -> Callable[[Tensor, Context], Tensor]:
        """Return the model with these weights in place of its own."""
        named = dict(zip(self._names, weights, strict=True))
        return lambda tokens_BL, ctx: functional_call(self.models[0], named, (tokens_BL, ctx))

    @torch.no_grad()
    def update(self, gradient_RP: Tensor, loss_R: Tensor, metrics: Metrics) -> None:
        """Take the step where loss and gradient are finite. Hold a replica for good where they are not."""
        norm_R = torch.linalg.vector_norm(gradient_RP, dim=1).double()
        loss_R = loss_R.double()
        was_live_R = self.live_R.clone()
        ok_R = was_live_R & loss_R.isfinite() & norm_R.isfinite()
        self.optimizer.update(gradient_RP, norm_R=norm_R, step=self.step_number, done_R=self.done_R, ok_R=ok_R)
        self.settle()
        self.loss_R.copy_(torch.where(was_live_R, loss_R, self.loss_R))
        self.norm_R.copy_(torch.where(was_live_R, norm_R, self.norm_R))
        self.loss_sum_R.copy_(torch.where(ok_R, self.loss_sum_R + loss_R, self.loss_sum_R))
        for name, value_R in metrics.items():
            kept_R = self.metrics.setdefault(name, torch.zeros_like(value_R))
            kept_R.copy_(torch.where(ok_R, value_R, kept_R))
        self.live_R.copy_(ok_R)
        self.done_R.add_(ok_R)
        self.step_number.add_(1)

    def seen(self) -> list[Seen]:
        """Return the counters and metrics of every replica, in one transfer to the host."""
        names = sorted(self.metrics)
        columns = [self.live_R, self.done_R, self.loss_R, self.norm_R, self.loss_sum_R, *map(self.metrics.get, names)]
        rows = torch.stack([column.double() for column in columns], 1).tolist()
        return [
            Seen(bool(live), int(done), loss, norm, total, dict(zip(names, metrics, strict=True)))
            for live, done, loss, norm, total, *metrics in rows
        ]

    def forget(self) -> None:
        """Reset the sums of the losses."""
        self.loss_sum_R.zero_()

    def hold(self, row: int) -> None:
        """Let a replica take no further step."""
        self.live_R[row] = False

    def saved(self, row: int) -> dict[str, Any]:
        """Return a replica's weights and moments by name, as a checkpoint holds them: copied to the CPU."""
        held = {name: value.detach().cpu().clone() for name, value in self.models[row].state_dict().items()}
        moments = {"mean": self.optimizer.mean_RP, "square": self.optimizer.square_RP}
        return {
            "model": held | self._by_name(self.weight_RP[row]),
            "optimizer": {kind: self._by_name(value_RP[row]) for kind, value_RP in moments.items()},
        }

    def restore(self, row: int, saved: dict[str, Any], *, done: int, loss_sum: float) -> None:
        """Restore a replica from a checkpoint. The caller makes sure that all replicas are at the same step."""
        self.models[row].load_state_dict(saved["model"])
        kept = {"mean": self.optimizer.mean_RP, "square": self.optimizer.square_RP, "weight": self.weight_RP}
        tensors = {**saved["optimizer"], "weight": saved["model"]}
        for kind, value_RP in kept.items():
            for name, span in zip(self._names, self._spans, strict=True):
                value_RP[row, span] = tensors[kind][name].flatten().to(value_RP)
        self.settle()
        self.done_R[row], self.loss_sum_R[row] = done, loss_sum
        self.step_number.fill_(done)

    def _by_name(self, row_P: Tensor) -> dict[str, Tensor]:
        spans = zip(self._names, self._spans, self._shapes, strict=True)
        return {name: row_P[span].view(shape).cpu().clone() for name, span, shape in spans}


def _other_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield buffers, and tensors kept as plain attributes. Replicas share them, so they must not depend on the seed."""
    for place, module in model.named_modules():
        held = {**dict(module.named_buffers(recurse=False)), **vars(module)}
        for name, value in held.items():
            if isinstance(value, Tensor):
                yield f"{place}.{name}".removeprefix("."), value


def means(ctx: Context) -> Metrics:
    """Return the losses and metrics that blocks reported, averaged over layers."""
    named = {**ctx.losses, **ctx.metrics}
    return {name: torch.stack(values).detach().mean() for name, values in named.items()}
