"""Shared tests of causal attentions: a layer compared with a loop over one row, and its parts with the whole."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from support.layers import close, gradients

WIDTH = 12
LENGTHS = (1, 2, 17, 64, 65, 130)


def heads_of(x_LD: Tensor, weight: Tensor, num_heads: int) -> Tensor:
    """[H, L, K] by one projection."""
    return (x_LD @ weight.mT).unflatten(-1, (num_heads, -1)).transpose(0, 1)


def hold_to_the_loop(layer: Any, by_hand: Callable[[Any, Tensor], Tensor], length: int, *, tolerance: float) -> None:
    """Outputs of two rows, and the gradients of inputs and parameters."""
    x_BLD = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, tolerance)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 100 * tolerance)


def hold_parts_to_the_whole(layer: Any, length: int, cuts: Sequence[Sequence[int]]) -> None:
    """Outputs and gradients of prefills and steps, through the states they hand on and leave as they were."""
    x_BLD = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    whole_BLD = layer(x_BLD, Context())
    expected = gradients(whole_BLD, inputs)
    for sizes in cuts:
        state = layer.init_state(2, max_length=length + 3, device=torch.device("cpu"), dtype=torch.float64)
        outputs = []
        for part_BLD in x_BLD.split([*sizes, length - sum(sizes)], dim=1):
            before = [x.clone() for x in tensors(state)]
            y_BLD, after = layer.extend(part_BLD, state, Context())
            assert all(torch.equal(one, other) for one, other in zip(before, tensors(state), strict=True))
            outputs.append(y_BLD)
            state = after
        y_BLD = torch.cat(outputs, 1)
        close(y_BLD, whole_BLD, 1e-10)
        for one, other in zip(gradients(y_BLD, inputs), expected, strict=True):
            close(one, other, 1e-8)


def tensors(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [x for part in state for x in tensors(part)]


def stays_finite(layer: nn.Module, scales: Sequence[float], length: int = 90) -> None:
    """Check that outputs and gradients are finite in fp32."""
    layer.float()
    for scale in scales:
        x_BLD = (scale * torch.randn(2, length, WIDTH)).requires_grad_()
        y_BLD = layer(x_BLD, Context())
        for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])):
            assert bool(torch.isfinite(x).all()), scale
