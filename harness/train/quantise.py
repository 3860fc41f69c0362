"""Low-bit weights (`train.qat`): every forward pass reads rounded matrices, and AdamW updates the full-precision ones.

    s_o = max_i |w_oi| / (2^(bits-1) - 1)        q_oi = s_o round(w_oi / s_o)

    4 bits:  (0.7, -0.31, 0.04)  has s = 0.1 and is read as  (0.7, -0.3, 0.0)
    levels:  2 bits -1..1, 4 bits -7..7, 8 bits -127..127; a half goes to the even one

Rounding is symmetric, with one scale for each output channel. The gradient by q is used as the gradient by w
(straight-through, Bengio et al. 2013, 1308.3432). Nothing is clipped, since the largest weight sets the scale.
Evaluation and loaded models use q, and checkpoints hold w. Jacob et al. 2017 (1712.05877) train like this.

The tensors that weight decay applies to are rounded: those with two or more dimensions, recurrent matrices and the head
among them. Biases, norms, gains and the embedding (looked up, not multiplied) keep full precision. So do the tensors
that a module names in `no_decay`, such as the log rates of a state-space model, and activations and states.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared


def rounded(weight: Tensor, bits: int, *, inputs: int = 1) -> Tensor:
    """Round weights to the nearest levels. `inputs` is the dimension along which a scale is shared."""
    levels = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(inputs, keepdim=True) / levels
    return torch.where(scale > 0, torch.round(weight / scale) * scale, weight)


def is_matrix(model: nn.Module) -> list[bool]:
    """Return True for each parameter that is rounded, in the order of `parameters()`."""
    return [decays for _, decays, _ in declared(model)]


@torch.no_grad()
def read_rounded(model: nn.Module, bits: int) -> None:
    """Round a model's own matrices for good. 0 bits leave them as they are."""
    if bits:
        for parameter, matrix in zip(model.parameters(), is_matrix(model), strict=True):
            if matrix:
                parameter.copy_(rounded(parameter, bits))


@torch.no_grad()
def write_rounded(learnt: Sequence[Tensor], read: Sequence[Tensor], matrices: Sequence[bool], bits: int) -> None:
    """Write the rounded weights of R stacked models, [R, ...], into the tensors that the models read."""
    for weight, place, matrix in zip(learnt, read, matrices, strict=True):
        place.copy_(rounded(weight, bits, inputs=2) if matrix else weight)
