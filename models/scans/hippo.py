"""HiPPO-LegS and its form as a diagonal plus a matrix of rank 1.

    A_nk = -sqrt((2n + 1) (2k + 1)) for n > k, -(n + 1) for n = k, 0 for n < k        B_n = sqrt(2n + 1)

With P_n = sqrt(n + 1/2), A + P P^T is -1/2 plus a skew-symmetric matrix, thus V diag(a) V^H with V unitary. In the
basis V, A is diag(a) - P' P'^H with P' = V^H P. Gu et al. 2020 (2008.07669); Gu et al. 2021 (2111.00396), appendix C.
"""

import torch
from torch import Tensor


def legs(order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return A [N, N], B [N] and P [N] of the module's docstring, in float64."""
    n_N = torch.arange(order, dtype=torch.float64)
    B_N = (2 * n_N + 1).sqrt()
    A_NN = -torch.tril(B_N[:, None] * B_N, -1) - torch.diag(n_N + 1)
    return A_NN, B_N, (n_N + 0.5).sqrt()


def legs_modes(order: int) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues a above the real axis [N/2], falling in frequency, and their entries of P', real and
    positive.

    The other half is their conjugate. An eigenvector's phase is free and chosen so that P' is real. Then V^H B, which
    is sqrt(2) P', is real too, and nothing depends on the machine's choice.
    """
    A_NN, _, P_N = legs(order)
    skew_NN = A_NN + P_N[:, None] * P_N
    skew_NN = (skew_NN - skew_NN.T) / 2
    frequency_N, V_NN = torch.linalg.eigh(-1j * skew_NN)
    kept = order - order // 2
    P_M = (V_NN[:, kept:].mH @ P_N.to(V_NN.dtype)).abs()
    return torch.complex(torch.full_like(P_M, -0.5), frequency_N[kept:]).flip(0), P_M.flip(0)
