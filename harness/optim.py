"""AdamW in decay groups and the learning rate as a pure function of the step.

What is decayed and at what rate is declared by the modules (`no_decay`, `rate_multipliers`), never by model names:
matrices are decayed; vectors, embeddings, norms and what a module names are not.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn

from harness.config import Train


def rate_at(train: Train, step: int) -> float:
    """The learning rate of a step (from 0): linear warm-up to `lr`, then a cosine to `lr_final` at the last step."""
    warmup = round(train.warmup * train.steps)
    if step < warmup:
        return train.lr * (step + 1) / warmup
    if train.schedule == "constant":
        return train.lr
    progress = (step - warmup) / max(1, train.steps - 1 - warmup)
    return train.lr_final + (train.lr - train.lr_final) * 0.5 * (1 + math.cos(math.pi * progress))


def optimiser(model: nn.Module, train: Train) -> torch.optim.AdamW:
    """AdamW with one group for each pair of decay and rate multiplier; `group["multiplier"]` scales the rate."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter, decays, multiplier in declared(model):
        key = (train.weight_decay if decays else 0.0, multiplier)
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": decay, "multiplier": multiplier}
            for (decay, multiplier), parameters in groups.items()
        ],
        lr=train.lr,
        betas=train.betas,
        eps=train.eps,
        fused=not any(parameter.is_complex() for parameter in model.parameters()),
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["multiplier"]


def declared(model: nn.Module) -> Iterator[tuple[nn.Parameter, bool, float]]:
    """Every parameter once, whether it is decayed and the factor on its rate."""
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
                decays = parameter.ndim >= 2 and name not in no_decay and not isinstance(module, nn.Embedding)
                yield parameter, decays, multipliers.get(name, 1.0)
