"""A causal convolution as long as the sequence, one filter a channel: y_n = sum over t of taps_t z_{n - t}.

By Fourier transforms, padded so that nothing comes round to the front, in n log n; or by a matrix a channel, T_ns =
taps_{n - s}. Row n of all matrices is one vector moved on by n, so that they are written, and their gradient is summed
up, without an index:

    v = taps_0, 0 .. 0, taps_{N-1} .. taps_1    (2N numbers)        N times v in rows of 2N - 1: the first N of each

A compiler fuses nothing with transforms and complex numbers; products of matrices need only their layout.
"""

import torch
from torch import Tensor, nn


def convolved(z_BND: Tensor, taps_TD: Tensor, *, length: int | None = None) -> Tensor:
    """The last `length` outputs, or all of them."""
    inputs, count = z_BND.shape[1], taps_TD.shape[0]
    length = inputs if length is None else length
    if length == 1:
        return (z_BND[:, -count:] * taps_TD[: min(inputs, count)].flip(0)).sum(1, keepdim=True)
    size = inputs + count
    product_BDN = torch.fft.rfft(z_BND.mT, n=size) * torch.fft.rfft(taps_TD.mT, n=size)
    return torch.fft.irfft(product_BDN, n=size)[..., inputs - length : inputs].mT


def by_matrices(z_BND: Tensor, taps_TD: Tensor) -> Tensor:
    length, width = z_BND.shape[1:]
    taps_ND = nn.functional.pad(taps_TD, (0, 0, 0, length - taps_TD.shape[0]))
    moved_MD = torch.cat([taps_ND[:1], torch.zeros_like(taps_ND), taps_ND[1:].flip(0)])
    in_rows_MD = moved_MD.expand(length, 2 * length, width).reshape(-1, width)[: length * (2 * length - 1)]
    matrix_NSD = in_rows_MD.view(length, 2 * length - 1, width)[:, :length]
    with torch.autocast(z_BND.device.type, enabled=False):
        return torch.einsum("nsd,bsd->bnd", matrix_NSD, z_BND)
