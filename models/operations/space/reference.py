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

from chomsky_ladder.models.scans.pairs import conjugate, real_of, times


class System(NamedTuple):
    """x -> d x - q Re(sum r x) + b u in every channel, of one of each conjugate pair of states; pairs are complex."""

    d_HM2: Tensor
    q_HM2: Tensor | None  # None: a diagonal system
    r_HM2: Tensor | None
    b_HM2: Tensor

    def carried(self, x_XHM2: Tensor) -> Tensor:
        """Abar x."""
        if self.q_HM2 is None or self.r_HM2 is None:
            return times(self.d_HM2, x_XHM2)
        return times(self.d_HM2, x_XHM2) - self.q_HM2 * real_of(self.r_HM2, x_XHM2).sum(-1)[..., None, None]

    def matrix(self) -> Tensor:
        """Abar over real and imaginary parts, state by state, of a system with a part of rank one."""
        assert self.q_HM2 is not None and self.r_HM2 is not None
        real_HM, imaginary_HM = self.d_HM2.unbind(-1)
        turn_HM22 = torch.stack([real_HM, -imaginary_HM, imaginary_HM, real_HM], -1).unflatten(-1, (2, 2))
        same_MM = torch.eye(turn_HM22.shape[1], dtype=turn_HM22.dtype, device=turn_HM22.device)
        turn_HNN = (turn_HM22[:, :, :, None] * same_MM[:, None, :, None]).flatten(3).flatten(1, 2)
        q_HN, r_HN = self.q_HM2.flatten(1), conjugate(self.r_HM2).flatten(1)
        return turn_HNN - q_HN[:, :, None] * r_HN[:, None]


def impulse_response(C_HM2: Tensor, system: System, length: int) -> Tensor:
    """K_0 .. K_(length - 1) of every channel, [H, L]."""
    powers = _of_diagonal if system.q_HM2 is None else _of_matrix
    rows_HIN, columns_HNJ = powers(C_HM2, system, doublings=(length - 1).bit_length())
    return (rows_HIN @ columns_HNJ).flatten(1)[:, :length]


def _of_diagonal(C_HM2: Tensor, system: System, *, doublings: int) -> tuple[Tensor, Tensor]:
    """Real rows and columns, of powers number by number, which a compiler puts together."""
    rows_HIM2, columns_HJM2, power_H1M2 = 2 * C_HM2[:, None], system.b_HM2[:, None], system.d_HM2[:, None]
    for doubling in range(doublings):
        if doubling:
            power_H1M2 = times(power_H1M2, power_H1M2)
        if 2 * doubling < doublings:
            columns_HJM2 = torch.cat([columns_HJM2, times(power_H1M2, columns_HJM2)], 1)
        else:
            rows_HIM2 = torch.cat([rows_HIM2, times(power_H1M2, rows_HIM2)], 1)
    return conjugate(rows_HIM2).flatten(2), columns_HJM2.flatten(2).mT


def _of_matrix(C_HM2: Tensor, system: System, *, doublings: int) -> tuple[Tensor, Tensor]:
    """The power is squared in the product that doubles rows or columns; the last square is not needed."""
    rows_HIN, columns_HNJ = 2 * conjugate(C_HM2).flatten(1)[:, None], system.b_HM2.flatten(1)[..., None]
    power_HNN = system.matrix()
    for doubling in range(doublings):
        squared = [power_HNN] if doubling + 1 < doublings else []
        if 2 * doubling < doublings:
            found_HNX, size = power_HNN @ torch.cat([columns_HNJ, *squared], 2), columns_HNJ.shape[2]
            columns_HNJ = torch.cat([columns_HNJ, found_HNX[..., :size]], 2)
            power_HNN = found_HNX[..., size:]
        else:
            found_HXN, size = torch.cat([rows_HIN, *squared], 1) @ power_HNN, rows_HIN.shape[1]
            rows_HIN = torch.cat([rows_HIN, found_HXN[:, :size]], 1)
            power_HNN = found_HXN[:, size:]
    return rows_HIN, columns_HNJ
