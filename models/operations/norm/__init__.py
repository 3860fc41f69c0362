"""RMSNorm: y = w x / sqrt(mean(x^2) + eps), Zhang and Sennrich 2019 (1910.07467).

    y = rms_norm(ctx, x, weight_D, eps)        y = normed(x, norm, ctx) for a module of torch's

In C a row stays in the cache from its squares to its values.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import worth_a_call
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation

_LOOPS = Loops(
    "norm",
    "x y: R N D, weight: R D, eps: , scale: R N",
    forward="x weight eps -> y scale",
    backward="x weight scale d_y -> d_x +d_weight",
    sizes="R N D",
)


def plain(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    return nn.functional.rms_norm(x, weight_D.shape, weight_D, eps)


def _in_c(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """C version of `rms_norm`. Each replica has a weight of its own."""
    given = x.reshape(1, -1, x.shape[-1]), weight_D[None], torch.tensor(eps, dtype=x.dtype)
    return _LOOPS(*given)[0].view(x.shape)


rms_norm = Operation(plain, name="rms_norm", serves=(), shown=lambda x, weight, eps: x)
rms_norm.in_c(_in_c, name="native_norm", rank=19, takes=worth_a_call)


def normed(x: Tensor, norm: nn.Module, ctx: Context) -> Tensor:
    """Return norm(x): of an RMSNorm by `rms_norm`, unless it mixes precisions or is stacked by hand."""
    if type(norm) is not nn.RMSNorm or norm.weight.dtype != x.dtype or norm.weight.ndim > 1:
        return norm(x)
    return rms_norm(ctx, x, norm.weight, torch.finfo(x.dtype).eps if norm.eps is None else norm.eps)
