"""What a linear state space answers to a single 1: the kernel of its convolution, for every channel.

    x_0 = b        x_(t+1) = Abar x_t        K_t = 2 Re(sum C x_t)        Abar x = d x - q Re(sum r x)

The states are complex, one stored of each conjugate pair, which is what the 2 stands for; d is diagonal and q, r a
matrix of rank one or nothing. K_(iJ + j) = (C Abar^(iJ)) (Abar^j b) is a product of I ~ sqrt(L) rows and J ~ sqrt(L)
columns, which double until they are enough; the powers of a dense Abar come by squaring. Few steps then take the place
of L, at N^2 to N^3 operations each where a step of the recurrence has N: right for a GPU, which has them to spare.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class System(NamedTuple):
    """x -> d x - q Re(sum r x) + b u in every channel, complex, in one of each conjugate pair of states."""

    d_HM: Tensor
    q_HM: Tensor | None  # None: a diagonal system
    r_HM: Tensor | None
    b_HM: Tensor

    def carried(self, x_XHM: Tensor) -> Tensor:
        """Abar x."""
        if self.q_HM is None or self.r_HM is None:
            return self.d_HM * x_XHM
        return self.d_HM * x_XHM - self.q_HM * (self.r_HM * x_XHM).real.sum(-1, keepdim=True)

    def matrix(self) -> Tensor:
        """Abar over real and imaginary parts, state by state: one part a channel, or one a state if it is diagonal."""
        real_HM, imaginary_HM = self.d_HM.real, self.d_HM.imag
        turn_HM22 = torch.stack([real_HM, -imaginary_HM, imaginary_HM, real_HM], -1).unflatten(-1, (2, 2))
        if self.q_HM is None or self.r_HM is None:
            return turn_HM22
        q_HN = torch.view_as_real(self.q_HM).flatten(1)
        r_HN = torch.stack([self.r_HM.real, -self.r_HM.imag], -1).flatten(1)
        same_MM = torch.eye(turn_HM22.shape[1], dtype=turn_HM22.dtype, device=turn_HM22.device)
        turn_HNN = (turn_HM22[:, :, :, None] * same_MM[:, None, :, None]).flatten(3).flatten(1, 2)
        return (turn_HNN - q_HN[:, :, None] * r_HN[:, None])[:, None]


def impulse_response(C_HM2: Tensor, system: System, length: int) -> Tensor:
    """K_0 .. K_(length - 1) of every channel, [H, L], from real rows and columns in G independent parts."""
    doublings = (length - 1).bit_length()
    real_HM, imaginary_HM = C_HM2.unbind(-1)
    row_HM2 = 2 * torch.stack([real_HM, -imaginary_HM], -1)
    power_HGNN = system.matrix()
    parts, order = power_HGNN.shape[1:3]
    rows_HGIN = row_HM2.reshape(-1, parts, 1, order)
    columns_HGNJ = torch.view_as_real(system.b_HM).reshape(-1, parts, order, 1)
    for doubling in range(doublings):
        if doubling:
            power_HGNN = power_HGNN @ power_HGNN
        if 2 * doubling < doublings:
            columns_HGNJ = torch.cat([columns_HGNJ, power_HGNN @ columns_HGNJ], 3)
        else:
            rows_HGIN = torch.cat([rows_HGIN, rows_HGIN @ power_HGNN], 2)
    kernel_HIJ = rows_HGIN.transpose(1, 2).flatten(2) @ columns_HGNJ.flatten(1, 2)
    return kernel_HIJ.flatten(1)[:, :length]
