"""Softmax attention: the explicit form, torch's fused one, the banded one of a window, and the cached step.

    y_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s      s over what t may see; positions: models/layers/positions.py

A position t may see the past, the prompt and the past, or every valid position, and with a window only nearer ones.
With fewer heads of keys and values than of queries, neighbouring query heads share them (Ainslie et al. 2023,
2305.13245). A gate multiplies the output of all heads by sigmoid(W x_t), channel by channel (Qiu et al. 2025,
2505.06708).

Over the past and without a bias, everything between the projections may be one kernel, `causal_attention`. In the other
cases the explicit form is the one that stacks under vmap, and the faster one for short inputs
(models/operations/attention). On a CPU the banded form, of explicit blocks, is as fast as torch's fused path over
everything at two to four windows, and 5x as fast at 1024 positions and a window of 16. Blocks below 16 are no faster.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.position_bias import Bias, make_bias
from chomsky_ladder.models.layers.positions import Positions, positions_of, turns
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.attention import FUSED_FROM, causal_attention
from chomsky_ladder.models.operations.attention import explicit_attention as explicit
from chomsky_ladder.models.operations.attention.reference import explicit_attention, in_front, repeated

Sees = Literal["past", "prompt", "all"]

SMALLEST_BLOCK = 16


class Attention(Layer):
    """Multi-head attention from width D to D."""

    heeds_asked = True

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        sees: Sees = "past",
        positions: Positions = "rope",
        window: int = 0,
        num_kv_heads: int = 0,
        gated: bool = False,
        among: int = 0,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.sees: Sees = sees
        self.positions, self.window, self.among = positions, window, among
        self.head_dim = width // num_heads
        self.query_key_value = nn.Linear(width, (num_heads + 2 * self.num_kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.bias = make_bias(positions, num_heads, width=width, both_ways=sees != "past")
        self.gate = nn.Linear(width, width, bias=False) if gated else None

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        position_L = positions_of(x_BLD, ctx, among=self.among)  # [B, L] if they are drawn
        heads_BLXK = self._heads(x_BLD)
        turns_2LK = self._turns(position_L[:, None] if self.among else position_L, heads_BLXK)
        is_plain = self.sees == "past" and self.bias is None and not self.among
        # Without a kernel it takes bands of a window or torch's fused form, other sums than the operation's plain form.
        kernel = causal_attention.chosen(heads_BLXK, ctx) if is_plain else None
        if kernel:
            y_BLHK = kernel(heads_BLXK, turns_2LK, None, num_heads=self.num_heads, window=self.window)
            return self._written(ctx.wanted(x_BLD), ctx.wanted(y_BLHK))
        q_BHLK, k_BHLK, v_BHLK = in_front(heads_BLXK, turns_2LK, num_heads=self.num_heads)
        drawn_BL = position_L if self.among else None
        y_BHLK = attend(
            q_BHLK, k_BHLK, v_BHLK, sees=self.sees, window=self.window, bias=self.bias, drawn_BL=drawn_BL, ctx=ctx
        )
        return self._written(ctx.wanted(x_BLD), ctx.wanted(y_BHLK, along=2).transpose(1, 2))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        """Return keys and values, and the position of the next token. A window holds its own number, oldest first."""
        kept = self.window or max_length
        cache = torch.zeros(2, batch, self.num_kv_heads, kept, self.head_dim, device=device, dtype=dtype)
        return cache, torch.zeros((), dtype=torch.int64, device=device)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        (cache_2BHSK, start), length = state, x_BLD.shape[1]
        position_L = start + torch.arange(length, device=x_BLD.device)
        q_BHLK, k_BHLK, v_BHLK = self._project(x_BLD, position_L)
        new_2BHLK = torch.stack([k_BHLK, v_BHLK]).to(cache_2BHSK.dtype)
        if self.window:
            cache_2BHSK = torch.cat([cache_2BHSK, new_2BHLK], dim=3)
            first = start - self.window
        else:
            cache_2BHSK = cache_2BHSK.index_copy(3, position_L, new_2BHLK)
            first = torch.zeros_like(start)
        k_BHSK, v_BHSK = cache_2BHSK.to(q_BHLK.dtype)
        y_BHLK = self._over_cache(q_BHLK, k_BHSK, v_BHSK, position_L, first, ctx)
        if self.window:  # a copy, or a long prefill would stay in memory behind it
            cache_2BHSK = cache_2BHSK[..., -self.window :, :].contiguous()
        return self._written(x_BLD, y_BHLK.transpose(1, 2)), (cache_2BHSK, start + length)

    def _over_cache(
        self, q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, position_L: Tensor, first: Tensor, ctx: Context
    ) -> Tensor:
        """Attend to keys at the positions from `first` on. Positions below 0 do not exist."""
        if self.window and is_banded(q_BHLK.shape[2], self.window, ctx):
            return banded_attention(q_BHLK, k_BHSK, v_BHSK, window=self.window, bias=self.bias, first=first)
        held_S = first + torch.arange(k_BHSK.shape[2], device=q_BHLK.device)
        may_see = visible(position_L, held_S, sees="past", window=self.window, ctx=ctx) & (held_S >= 0)  # pyright: ignore[reportOptionalOperand]
        mask = biased(may_see, position_L, held_S, self.bias, dtype=q_BHLK.dtype)
        return masked_attention(q_BHLK, k_BHSK, v_BHSK, mask, ctx=ctx)

    def _heads(self, x_BLD: Tensor) -> Tensor:
        """Return queries, keys and values."""
        return self.query_key_value(x_BLD).unflatten(-1, (-1, self.head_dim))

    def _turns(self, position_L: Tensor, heads_BLXK: Tensor) -> Tensor | None:
        return turns(position_L, self.head_dim, dtype=heads_BLXK.dtype) if self.positions == "rope" else None

    def _project(self, x_BLD: Tensor, position_L: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads_BLXK = self._heads(x_BLD)
        return in_front(heads_BLXK, self._turns(position_L, heads_BLXK), num_heads=self.num_heads)

    def _written(self, x_BLD: Tensor, y_BLHK: Tensor) -> Tensor:
        y_BLD = y_BLHK.flatten(2)
        return self.out(y_BLD if self.gate is None else y_BLD * torch.sigmoid(self.gate(x_BLD)))


def attend(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    *,
    sees: Sees,
    ctx: Context,
    window: int = 0,
    bias: Bias | None = None,
    drawn_BL: Tensor | None = None,
) -> Tensor:
    """Attend within a whole sequence. A bias uses the drawn positions, if any; visibility uses the places."""
    length = q_BHLK.shape[2]
    window = 0 if window >= length else window
    if sees == "past" and window and is_banded(length, window, ctx):
        before = (0, 0, window, 0)
        k_BHSK, v_BHSK = nn.functional.pad(k_BHLK, before), nn.functional.pad(v_BHLK, before)
        return banded_attention(q_BHLK, k_BHSK, v_BHSK, window=window, bias=bias, first=-window)
    if sees == "past" and not window and bias is None:
        kernel = explicit.chosen(q_BHLK, ctx)  # it takes no mask for the past, which the plain form is given
        if kernel:
            return kernel(q_BHLK, repeated(k_BHLK, q_BHLK), repeated(v_BHLK, q_BHLK), None, is_causal=True)
    position_L = torch.arange(length, device=q_BHLK.device)
    may_see = visible(position_L, position_L, sees=sees, window=window, ctx=ctx)
    position_L = position_L if drawn_BL is None else drawn_BL
    mask = biased(may_see, position_L, position_L, bias, dtype=q_BHLK.dtype)
    return masked_attention(q_BHLK, k_BHLK, v_BHLK, mask, ctx=ctx)


def is_banded(length: int, window: int, ctx: Context) -> bool:
    return ctx.backend != "reference" and not ctx.stacked and length >= FUSED_FROM and length > 4 * window


def visible(position_M: Tensor, position_L: Tensor, *, sees: Sees, window: int, ctx: Context) -> Tensor | None:
    """Return the keys (at `position_L`) that a query may see: bool, broadcast against [B, H, M, L]; None: all."""
    ahead_ML = position_M[:, None] - position_L
    if sees == "past":
        may_see = ahead_ML >= 0
    else:
        may_see = None if ctx.valid_BL is None else ctx.valid_BL[:, None, None, :]
        if sees == "prompt" and ctx.prompt_B is not None:
            may_see = (ahead_ML >= 0) | (position_L < ctx.prompt_B[:, None, None, None])
    if window:
        near_ML = ahead_ML.abs() < window
        # Always itself: a position of the padding, far from all valid ones, must not divide by zero.
        may_see = near_ML if may_see is None else (may_see & near_ML) | (ahead_ML == 0)
    return may_see


def biased(
    may_see: Tensor | None, position_M: Tensor, position_L: Tensor, bias: Bias | None, *, dtype: torch.dtype
) -> Tensor | None:
    """Return a mask of scores that includes the bias of positions, if there is one. Positions are [L], or [B, L]."""
    if bias is None:
        return may_see
    bias_HML = bias(position_M[..., None] - position_L[..., None, :], position_M, dtype=dtype)
    if position_M.dim() == 2:
        bias_HML = bias_HML.transpose(0, 1)  # [B, H, M, L]
    return bias_HML if may_see is None else torch.where(may_see, bias_HML, float("-inf"))


def masked_attention(q_BHMK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, mask: Tensor | None, *, ctx: Context) -> Tensor:
    return explicit(ctx, q_BHMK, repeated(k_BHLK, q_BHMK), repeated(v_BHLK, q_BHMK), mask)


def banded_attention(
    q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, window: int, bias: Bias | None, first: int | Tensor
) -> Tensor:
    """Attend from each block of queries to its own block of keys and the one before: linear in the length.

    The keys begin at position `first`, `window` before the queries. Positions below 0 do not exist.
    """
    length, size = q_BHLK.shape[2], max(window, SMALLEST_BLOCK)
    before, behind = size - window, -length % size
    q_BHNMK = nn.functional.pad(q_BHLK, (0, 0, 0, behind)).unflatten(2, (-1, size))

    def pairs(x_BHSK: Tensor) -> Tensor:
        x_BHNMK = nn.functional.pad(repeated(x_BHSK, q_BHLK), (0, 0, before, behind)).unflatten(2, (-1, size))
        return torch.cat([x_BHNMK[:, :, :-1], x_BHNMK[:, :, 1:]], dim=3)

    offset_S = torch.arange(2 * size, device=q_BHLK.device)
    ahead_MS = offset_S[size:, None] - offset_S
    start_N = first - before + size * torch.arange(q_BHNMK.shape[2], device=q_BHLK.device)
    mask = (ahead_MS >= 0) & (ahead_MS < window) & (start_N[:, None, None] + offset_S >= 0)
    if bias is not None:
        position_NM = start_N[:, None] + offset_S[size:]
        mask = torch.where(mask, bias(ahead_MS[None], position_NM, dtype=q_BHLK.dtype), float("-inf"))
    y_BHNMK = explicit_attention(q_BHNMK, pairs(k_BHSK), pairs(v_BHSK), mask)
    return y_BHNMK.flatten(2, 3)[:, :, :length]
