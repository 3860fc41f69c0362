"""PaTH: softmax attention in which a key passes a reflection for every token between it and the query.

    y_t = sum over s <= t of softmax_s(q_t . H_t .. H_{s+1} k_s / sqrt(K)) v_s        H_u = 1 - b_u w_u w_u^T
    b_u = 2 sigmoid(a x_u + c)      w = silu(conv(W_2 W_1 x)), of length 1      x = x + W_o y      x = x + SwiGLU(x)

in each head, each layer after an RMSNorm: Yang et al. 2025 (2505.16381), positions that depend on the data in place of
RoPE's rotations. `gate=forget` is their PaTH-FoX: the sums of log f of `fox` are added before everything is divided by
sqrt(K), as in the published code. Weights start as in models/_attentions.py.

The cache holds keys with all reflections so far, in fp32 at least, so each step reflects all of them once. The
attention is models/operations/path.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._attentions import AttentionConfig, CachedAttention, at_least_fp32, kept, positions
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.fox import log_forget
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.operations.path import attended
from chomsky_ladder.models.operations.path.reference import path_scores, read_by
from chomsky_ladder.models.scans.delta import of_length_1


class PaTHAttention(CachedAttention):
    """The attention. Its state: the convolution's; keys with all reflections so far, and values; the next token's
    position; with a gate, as in `fox`, the sums of log f up to each position, and the last of them.
    """

    heeds_asked = True

    def __init__(self, config: "PaTHConfig") -> None:
        width = config.d_model
        super().__init__(width, config.num_heads)
        self.path = nn.Sequential(nn.Linear(width, config.rank, bias=False), nn.Linear(config.rank, width, bias=False))
        self.convolution = ShortConvolution(width, width=config.conv_width, bias=False, silu=True)
        self.beta = nn.Linear(width, config.num_heads)
        self.forget = nn.Linear(width, config.num_heads) if config.gate == "forget" else None

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        q_BHLK, k_BHLK, v_BHLK, w_BHLK, beta_BHL = self._all(x_BLD, self.convolution(self.path(x_BLD), ctx))
        total_BHL = None if self.forget is None else log_forget(self.forget, x_BLD).cumsum(-1)
        y_BHLK = attended(ctx, q_BHLK, k_BHLK, v_BHLK, w_BHLK, beta_BHL, total_BHL)
        return self.out(self.joined(ctx.wanted(y_BHLK, along=2)))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        exact = torch.promote_types(dtype, torch.float32)
        past_BWE = self.convolution.init_state(batch, device=device, dtype=dtype)
        k_BHSK = self.empty(max_length, self.head_dim, batch=batch, device=device, dtype=exact)
        v_BHSK = self.empty(max_length, self.head_dim, batch=batch, device=device, dtype=dtype)
        sizes = (max_length, 1) if self.forget is not None else ()
        totals = tuple(self.empty(size, batch=batch, device=device, dtype=exact) for size in sizes)
        return past_BWE, k_BHSK, v_BHSK, torch.zeros((), dtype=torch.int64, device=device), totals

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, k_BHSK, v_BHSK, start, totals = state
        length, size = x_BLD.shape[1], k_BHSK.shape[2]
        position_L = positions(x_BLD, start)
        mixed_BLE, past_BWE = self.convolution.extend(self.path(x_BLD), past_BWE)
        q_BHLK, k_BHLK, v_BHLK, w_BHLK, beta_BHL = self._all(x_BLD, mixed_BLE)

        scores_BHLX, k_BHXK = path_scores(q_BHLK, k_BHLK, w_BHLK, beta_BHL, k_BHSK.to(k_BHLK.dtype))
        written_X = nn.functional.pad(torch.arange(size, device=x_BLD.device) < start, (0, length), value=True)
        scores_BHLX = torch.where(written_X, scores_BHLX, -inf)
        if self.forget is not None:
            total_BHS, last_BH1 = totals
            total_BHL = last_BH1 + log_forget(self.forget, x_BLD).cumsum(-1)
            scores_BHLX = scores_BHLX + (total_BHL[..., None] - torch.cat([total_BHS, total_BHL], -1)[..., None, :])
            totals = kept(total_BHS, position_L, total_BHL), total_BHL[..., -1:].clone()
        y_BHLK = read_by(scores_BHLX, torch.cat([v_BHSK.to(v_BHLK.dtype), v_BHLK], 2))
        k_BHSK = kept(k_BHXK[:, :, :size].to(k_BHSK.dtype), position_L, k_BHXK[:, :, size:])
        state = past_BWE, k_BHSK, kept(v_BHSK, position_L, v_BHLK), start + length, totals
        return self.out(self.joined(y_BHLK)), state

    def _all(self, x_BLD: Tensor, mixed_BLE: Tensor) -> list[Tensor]:
        """Return q, k, v, w and b, in fp32 at least."""
        q_BHLK, k_BHLK, v_BHLK = at_least_fp32(*self.heads(x_BLD).unbind(0))
        mixed_BLE, beta_BLH = at_least_fp32(mixed_BLE, self.beta(x_BLD))
        w_BHLK = rearrange(mixed_BLE, "b l (h k) -> b h l k", h=self.num_heads)
        return [q_BHLK, k_BHLK, v_BHLK, of_length_1(w_BHLK), 2 * torch.sigmoid(beta_BLH).mT]


@register
@dataclass(frozen=True, kw_only=True)
class PaTHConfig(AttentionConfig):
    name, family, year, paper = "path_attention", "attention", 2025, "2505.16381"
    title = "PaTH"

    rank: int = 32
    """Inner width of the map to w."""
    conv_width: int = 3
    """Width of the convolution that mixes w, in tokens."""
    gate: Literal["none", "forget"] = "none"
    """forget: scores also decay with forget gates on the tokens between."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rank >= 1, f"{self.name}: rank must be at least 1, not {self.rank}")
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")

    def mixer(self, layer: int) -> PaTHAttention:
        return PaTHAttention(self)
