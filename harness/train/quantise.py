"""Weights of few bits (`train.qat`): every forward pass reads rounded matrices, AdamW moves the full-precision ones.

    s_o = max_i |w_oi| / (2^(bits-1) - 1)        q_oi = s_o round(w_oi / s_o)

    4 bits:  (0.7, -0.31, 0.04)  has s = 0.1 and is read as  (0.7, -0.3, 0.0)
    levels:  2 bits -1..1, 4 bits -7..7, 8 bits -127..127; a half goes to the even one

Symmetric, one scale an output channel. Training takes the gradient by q for that by w (straight through, Bengio et al.
2013, 1308.3432; nothing is clipped, since the largest weight sets the scale), every evaluation and every model that is
loaded has q, and a checkpoint has w. Jacob et al. 2017 (1712.05877) train like this.

Rounded are the tensors that weight decay applies to: two or more dimensions, recurrent matrices and the head among
them. Biases, norms and gains, the embedding (looked up, not multiplied) and what a module names in `no_decay`, such as
the logarithms of a state-space model's rates, keep full precision, and so do activations and states.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared


def rounded(weight: Tensor, bits: int, *, inputs: int = 1) -> Tensor:
    """The weights at the nearest levels; `inputs` is the dimension that a scale is shared along."""
    levels = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(inputs, keepdim=True) / levels
    return torch.where(scale > 0, torch.round(weight / scale) * scale, weight)


def is_matrix(model: nn.Module) -> list[bool]:
    """Of every parameter, in the order of `parameters()`, whether it is rounded."""
    return [decays for _, decays, _ in declared(model)]


@torch.no_grad()
def read_rounded(model: nn.Module, bits: int) -> None:
    """Round a model's own matrices for good; 0 bits leave them as they are."""
    if bits:
        for parameter, matrix in zip(model.parameters(), is_matrix(model), strict=True):
            if matrix:
                parameter.copy_(rounded(parameter, bits))


@torch.no_grad()
def write_rounded(learnt: Sequence[Tensor], read: Sequence[Tensor], matrices: Sequence[bool], bits: int) -> None:
    """What R stacked models [R, ...] read of the weights they learn."""
    for weight, place, matrix in zip(learnt, read, matrices, strict=True):
        place.copy_(rounded(weight, bits, inputs=2) if matrix else weight)
