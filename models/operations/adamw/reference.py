"""A step of AdamW over stacked weights [R, P], in place: its replicas have scalars of their own, and none is read.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = (1 - rate decay) w - rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

Loshchilov and Hutter 2017 (1711.05101). A replica that does not step is held by a choice, not by a factor of 0: what it
must not take may be NaN. On a CPU in pieces that stay in its cache: of 4 million weights they took 13 ms for 87. In C
it is one pass (in_c.py, measured on another machine).
"""

from typing import NamedTuple

import torch
from torch import Tensor

CACHED = 2**15  # weights of a piece


class Scalars(NamedTuple):
    """Of each replica in one step, in the order in which C reads them."""

    ok_R1: Tensor  # bool: whether it steps
    scale_R1: Tensor  # of the gradient, which clips it
    to_mean_R1: Tensor
    to_square_R1: Tensor
    size_R1: Tensor  # of a move
    root_R1: Tensor  # of the square's correction
    shrink_R1: Tensor  # of what is decayed
    eps_R1: Tensor


def adamw_step(
    gradient_RP: Tensor,
    weight_RP: Tensor,
    mean_RP: Tensor,
    square_RP: Tensor,
    decayed_P: Tensor,
    multiplier_P: Tensor | None,
    scalars: Scalars,
) -> None:
    """`decayed_P` is 0 or 1, `multiplier_P` a factor on the rate, if there are any but 1."""
    size = CACHED if gradient_RP.device.type == "cpu" else gradient_RP.shape[1]
    for start in range(0, gradient_RP.shape[1], size):
        part = slice(start, start + size)
        g_RP, w_RP, m_RP, v_RP = (x[:, part] for x in (gradient_RP, weight_RP, mean_RP, square_RP))
        g_RP = g_RP * scalars.scale_R1
        new_m_RP = torch.lerp(m_RP, g_RP, scalars.to_mean_R1)
        new_v_RP = torch.lerp(v_RP, g_RP * g_RP, scalars.to_square_R1)
        move_RP = scalars.size_R1 * new_m_RP / (new_v_RP.sqrt() * scalars.root_R1 + scalars.eps_R1)
        move_RP = torch.addcmul(move_RP, scalars.shrink_R1 * decayed_P[part], w_RP)
        if multiplier_P is not None:
            move_RP = move_RP * multiplier_P[part]
        for kept_RP, new_RP in ((m_RP, new_m_RP), (v_RP, new_v_RP), (w_RP, w_RP - move_RP)):
            kept_RP.copy_(torch.where(scalars.ok_R1, new_RP, kept_RP))
