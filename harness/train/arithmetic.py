"""A small fixed computation whose bytes show how a machine rounds.

Last bits may depend on an environment variable, on the build of a library or on the processor. Whatever moves the last
bits of training moves some of these bytes, too. The inputs come from a formula, not from a generator. The operations
are those of which models are made, at sizes that fill no vector evenly. It takes some milliseconds, once for each
process and thread count.
"""

import functools
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import chomsky_ladder.models.operations.product  # noqa: F401  # registers the matrix products that models use
from chomsky_ladder.models.scans.products import product

SIZES = ((1, 7, 5), (33, 65, 47), (128, 96, 160))  # of matrix products: rows, inner dimension, columns


@functools.cache
def arithmetic(device: torch.device, threads: int) -> str:
    """Return the digest of the computation's results with this many threads."""
    digest, before = hashlib.sha256(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            for result in _results(device):
                digest.update(result.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    finally:
        torch.set_num_threads(before)
    return digest.hexdigest()[:12]


def _results(device: torch.device) -> Iterator[Tensor]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for rows, inside, columns in SIZES:
            x = _numbers(4, rows, inside, dtype=dtype, device=device)
            W = _numbers(columns, inside, dtype=dtype, device=device)
            yield nn.functional.linear(x, W)
            yield x @ x.mT
    for dtype in (torch.float32, torch.float64):
        x = 4 * _numbers(6, 50, 48, dtype=dtype, device=device)
        yield from (f(x) for f in (torch.exp, torch.tanh, torch.sigmoid, torch.sin, torch.erf, nn.functional.softplus))
        yield from (torch.rsqrt(x.abs() + 0.1), torch.log1p(x.abs()), x.cumsum(1), x.sum((0, 1)), x.mean(-1), x.var(-1))
        yield from (torch.softmax(x, -1), torch.logsumexp(x, -1), nn.functional.layer_norm(x, (48,)))
        yield nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)
        yield nn.functional.conv1d(x.mT, x[:, :4, :1].expand(6, 4, 8).reshape(48, 1, 4), padding=3, groups=48)
        if device.type == "cpu":
            yield _recurrence(x)
            large = _numbers(256, 256, dtype=dtype, device=device)
            yield product(large, large)


def _recurrence(x_BLD: Tensor) -> Tensor:
    """Run torch's own LSTM, which on a CPU is oneDNN's."""
    with torch.random.fork_rng(devices=[]):  # its random weights are replaced below; on `meta` it would import sympy
        lstm = nn.LSTM(48, 24, batch_first=True, dtype=x_BLD.dtype)
    for parameter in lstm.parameters():
        parameter.copy_(_numbers(*parameter.shape, dtype=x_BLD.dtype, device=x_BLD.device))
    return lstm(x_BLD)[0]


def _numbers(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers between -.5 and .5, made by multiplication modulo 2^32. They are the same on every machine."""
    count = torch.Size(shape).numel()
    whole = torch.arange(1, count + 1, dtype=torch.int64) * 2_654_435_761 % 2**32
    return (whole.double() / 2**32 - 0.5).view(shape).to(dtype).to(device)
