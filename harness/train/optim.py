"""AdamW over stacked weights [R, P] (models/operations/adamw) and the learning rate as a pure function of the step.

Each of R replicas has its own learning rate, decay and constants, and nothing here reads a value on the host. The
modules declare which weights decay and with which learning-rate factor (`no_decay`, `rate_multipliers`). Matrices
decay. Vectors, embeddings, norms and the tensors in `no_decay` do not. (`train.decayed` may ask for decay of all but
embeddings, as in some public code.)
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.run import Train
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.operations.adamw import adamw_step
from chomsky_ladder.models.operations.adamw.reference import Scalars


def rate_at(train: Train, step: int) -> float:
    """Return the learning rate of a step (from 0): linear warm-up to `lr`, then a cosine to `lr_final` at the last
    step.
    """
    warmup = round(train.warmup * train.steps)
    if step < warmup:
        return train.lr * (step + 1) / warmup
    if train.schedule == "constant":
        return train.lr
    progress = (step - warmup) / max(1, train.steps - 1 - warmup)
    return train.lr_final + (train.lr - train.lr_final) * 0.5 * (1 + math.cos(math.pi * progress))


class AdamW:
    """The moments of R replicas and their in-place update.

    `decayed_P` is 0 or 1, `multiplier_P` a learning-rate factor.
    """

    def __init__(
        self,
        weight_RP: Tensor,
        decayed_P: Tensor,
        multiplier_P: Tensor,
        trains: Sequence[Train],
        *,
        backend: Backend = "auto",
    ) -> None:
        self.weight_RP, self.decayed_P = weight_RP, decayed_P
        self.backend = backend
        self.kernels: set[str] = set()
        """The kernels that ran, for the record."""
        self.multiplier_P = None if bool((multiplier_P == 1).all()) else multiplier_P
        self.mean_RP, self.square_RP = torch.zeros_like(weight_RP), torch.zeros_like(weight_RP)

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=weight_RP.device)[:, None]

        rates = [[rate_at(train, step) for step in range(train.steps)] for train in trains]
        self._rate_RT = torch.tensor(rates, dtype=torch.float64, device=weight_RP.device)
        self._beta1_R1, self._beta2_R1 = (column([train.betas[k] for train in trains]) for k in (0, 1))
        self._eps_R1 = column([train.eps for train in trains]).to(weight_RP.dtype)
        self._decay_R1 = column([train.weight_decay for train in trains])
        self._clip_R1 = column([train.clip or math.inf for train in trains])

    def update(self, gradient_RP: Tensor, *, norm_R: Tensor, step: Tensor, done_R: Tensor, ok_R: Tensor) -> None:
        """Take the step after `done_R` earlier ones, for the replicas that are `ok_R`. The others stay as they are.

        The gradient is clipped by its norm as torch.nn.utils.clip_grad_norm_ does.
        """
        dtype, t_R1, norm_R1 = self.weight_RP.dtype, done_R[:, None] + 1, norm_R[:, None]
        rate_R1 = self._rate_RT.index_select(1, step.clamp(max=self._rate_RT.shape[1] - 1).reshape(1))
        scalars = Scalars(
            ok_R1=ok_R[:, None],
            scale_R1=(self._clip_R1 / (norm_R1 + 1e-6)).clamp(max=1).to(dtype),
            to_mean_R1=(1 - self._beta1_R1).to(dtype),
            to_square_R1=(1 - self._beta2_R1).to(dtype),
            size_R1=(rate_R1 / (1 - self._beta1_R1**t_R1)).to(dtype),
            root_R1=(1 - self._beta2_R1**t_R1).rsqrt().to(dtype),
            shrink_R1=(rate_R1 * self._decay_R1).to(dtype),
            eps_R1=self._eps_R1,
        )
        ctx = Context(backend=self.backend)
        held = (self.weight_RP, self.mean_RP, self.square_RP, self.decayed_P, self.multiplier_P)
        adamw_step(ctx, gradient_RP, *held, scalars)
        self.kernels |= ctx.backends


def declared(
    model: nn.Module, *, decayed: Literal["matrices", "all_but_embedding"] = "matrices"
) -> Iterator[tuple[nn.Parameter, bool, float]]:
    """Yield every parameter in the order of `parameters()`, with True if it decays, and its learning-rate factor."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        no_decay = getattr(module, "no_decay", frozenset())
        multipliers = getattr(module, "rate_multipliers", {})
        own = dict(module.named_parameters(recurse=False))
        for name in [*no_decay, *multipliers]:
            assert name in own, f"{type(module).__name__} declares {name!r}, which is no parameter of its own"
        for name, parameter in own.items():
            if parameter not in seen:
                seen.add(parameter)
                may_decay = decayed != "matrices" or (parameter.ndim >= 2 and name not in no_decay)
                yield parameter, may_decay and not isinstance(module, nn.Embedding), multipliers.get(name, 1.0)
