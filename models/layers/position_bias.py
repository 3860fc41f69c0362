"""Positions as a bias on the scores of attention, for a query at t and a key at s, in each head.

alibi    -m_h |t - s|                                Press et al. 2021 (2108.12409)
t5       a learnt number for each bucket of t - s    Raffel et al. 2019 (1910.10683)
kerple   -a_h log(1 + b_h |t - s|),  a_h, b_h > 0    Chi et al. 2022 (2205.09921), the logarithmic kernel
fire     f_h(log(1 + |c (t - s)|) / log(1 + |c max(t, l)|)),  f of one hidden layer    Li et al. 2023 (2310.04418)

T5 has 32 buckets. Distances up to 15 have one each. The others are equal in the logarithm up to 128, and all beyond are
in the last. If the future is seen, half of them are for either side. In the paper one table serves all layers, and
scores are not divided by sqrt(K). Here every layer has its own, and the division stays. Kerple's a and b are kept
positive by learning their logarithms, where the published code cuts them off at 0.01. In FIRE the threshold l exempts
short inputs from interpolation. Every bias is computed in fp32 at least.

T5's table starts normal with deviation D^-1/2, a and b uniform in (0, 2) and (0, 1) but at least 0.01, c at 0.1, l at
512 (learnt as a factor on it) and f, 32 wide and of ReLU, as torch.nn.Linear, all as published.
"""

import math

import torch
from torch import Tensor, nn

from chomsky_ladder.models.layers.positions import Positions, slopes

BUCKETS, FARTHEST = 32, 128
HIDDEN = 32
THRESHOLD = 512.0
SMALLEST = 1e-2


class Bias(nn.Module):
    """Map distances t - s [..., M, S] and queries' positions t [..., M] to the bias on scores, [H, ..., M, S]."""

    def forward(self, ahead_MS: Tensor, position_M: Tensor, *, dtype: torch.dtype) -> Tensor:
        with torch.autocast(ahead_MS.device.type, enabled=False):
            return self.of(ahead_MS, position_M, torch.promote_types(dtype, torch.float32))

    def of(self, ahead_MS: Tensor, position_M: Tensor, dtype: torch.dtype) -> Tensor:
        raise NotImplementedError


class ALiBi(Bias):
    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def of(self, ahead_MS: Tensor, position_M: Tensor, dtype: torch.dtype) -> Tensor:
        return -per_head(slopes(self.num_heads, device=ahead_MS.device, dtype=dtype), ahead_MS) * ahead_MS.abs()


class T5Bias(Bias):
    def __init__(self, num_heads: int, *, width: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.table = nn.Embedding(BUCKETS, num_heads)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def of(self, ahead_MS: Tensor, position_M: Tensor, dtype: torch.dtype) -> Tensor:
        return self.table(buckets(ahead_MS, both_ways=self.both_ways)).to(dtype).movedim(-1, 0)


class Kerple(Bias):
    def __init__(self, num_heads: int) -> None:
        super().__init__()
        # In float64, as CPUs differ in the last bit of a logarithm in fp32.
        a_b_2H = torch.rand(2, num_heads, dtype=torch.float64) * torch.tensor([[2.0], [1.0]])
        self.log_a, self.log_b = (nn.Parameter(x.float()) for x in a_b_2H.clamp(min=SMALLEST).log())

    def of(self, ahead_MS: Tensor, position_M: Tensor, dtype: torch.dtype) -> Tensor:
        a_H, b_H = (per_head(x.to(dtype).exp(), ahead_MS) for x in (self.log_a, self.log_b))
        return -a_H * torch.log1p(b_H * ahead_MS.abs())


class FIRE(Bias):
    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.full((1,), 0.1))
        self.threshold = nn.Parameter(torch.ones(1))
        self.hidden, self.out = nn.Linear(1, HIDDEN), nn.Linear(HIDDEN, num_heads)

    def of(self, ahead_MS: Tensor, position_M: Tensor, dtype: torch.dtype) -> Tensor:
        c = self.c.to(dtype).abs()
        longest_M = torch.maximum(position_M.to(dtype), THRESHOLD * self.threshold.to(dtype).abs())
        share_MS = torch.log1p(c * ahead_MS.abs()) / (torch.log1p(c * longest_M) + 1e-6)[..., None]
        parameters = (self.hidden.weight[:, 0], self.hidden.bias, self.out.weight, self.out.bias)
        w_I, b_I, w_HI, b_H = (x.to(dtype) for x in parameters)
        return (torch.relu(share_MS[..., None] * w_I + b_I) @ w_HI.mT + b_H).movedim(-1, 0)


def make_bias(positions: Positions, num_heads: int, *, width: int, both_ways: bool) -> Bias | None:
    if positions == "alibi":
        return ALiBi(num_heads)
    if positions == "t5":
        return T5Bias(num_heads, width=width, both_ways=both_ways)
    if positions == "kerple":
        return Kerple(num_heads)
    return FIRE(num_heads) if positions == "fire" else None


def buckets(ahead_X: Tensor, *, both_ways: bool) -> Tensor:
    """Return T5's bucket of every distance t - s."""
    count = BUCKETS // 2 if both_ways else BUCKETS
    exact = count // 2
    far_X = ahead_X.abs() if both_ways else ahead_X.clamp(min=0)
    # In fp32 as published: where the bucket changes, the rounding of the logarithm decides.
    wide_X = torch.log(far_X.clamp(min=1).float() / exact) / math.log(FARTHEST / exact) * (count - exact)
    bucket_X = torch.where(far_X < exact, far_X, (exact + wide_X.long()).clamp(max=count - 1))
    return bucket_X + count * (ahead_X < 0) if both_ways else bucket_X


def per_head(x_H: Tensor, like_X: Tensor) -> Tensor:
    """Return [H, 1, .., 1], with a 1 for each dimension of the other tensor."""
    return x_H.reshape(-1, *(1 for _ in like_X.shape))
