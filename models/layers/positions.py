"""Positions of tokens: by rotating queries and keys, by a bias on scores, or by a vector added to the stream.

rope         q_t -> R(t) q_t, k_s -> R(s) k_s       Su et al. 2021 (2104.09864)
alibi, t5, kerple, fire      score_ts -> score_ts + bias(t, s)      models/layers/position_bias.py
sinusoidal   x_t -> x_t + (sin, cos)(t / 10000^(2i/D))        Vaswani et al. 2017 (1706.03762)
learnt       x_t -> x_t + P_t

The position of a token is its place in the string, or one of a longer range. In training, `spread` draws a set of
positions as large as the string from that range, for every string in every step, and assigns it in order (Ruoss et al.
2023, 2305.16843). Evaluations do not draw here, while the published code does: positions are spread as a set is on
average, token i of n at (i + 1/2) / n of the range. This depends on n, so it is for models that see the whole string at
once.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.operations.attention.reference import turned

Positions = Literal["rope", "none", "sinusoidal", "learnt", "alibi", "t5", "kerple", "fire"]
ADDED: tuple[Positions, ...] = ("sinusoidal", "learnt")


def positions_of(x_BLD: Tensor, ctx: Context, *, among: int) -> Tensor:
    """Return positions [L], or [B, L] if `among` gives a range; the same in every layer of a pass."""
    if not among:
        return torch.arange(x_BLD.shape[1], device=x_BLD.device)
    if "positions" not in ctx.shared:
        ctx.shared["positions"] = spread(x_BLD, ctx, among=among)
    return ctx.shared["positions"]


def spread(x_BLD: Tensor, ctx: Context, *, among: int) -> Tensor:
    """Return positions [B, L] from 0 .. among - 1, in order inside a string; after it the last."""
    batch, length = x_BLD.shape[:2]
    if length > among:
        raise ValueError(f"position_range={among} has too few positions for length {length}")
    place_L = torch.arange(length, device=x_BLD.device)
    size_B = torch.full((batch,), length, device=x_BLD.device) if ctx.valid_BL is None else ctx.valid_BL.sum(1)
    if ctx.masks is None:
        position_BL = (2 * place_L + 1) * among // (2 * size_B[:, None].clamp(min=1))
    else:
        drawn_BL = ctx.masks.uniform((among,)).argsort(dim=-1, stable=True)[:, :length]
        position_BL = torch.where(place_L < size_B[:, None], drawn_BL, among).sort(-1).values
    return position_BL.clamp(max=among - 1)


def rotate(x_BHLK: Tensor, position_L: Tensor) -> Tensor:
    """Rotate the pairs (x_k, x_{k + K/2}) by position * 10000**(-2k/K), positions [L] or [B, 1, L]."""
    return turned(x_BHLK, *turns(position_L, x_BHLK.shape[-1], dtype=x_BHLK.dtype))


def turns(position_L: Tensor, width: int, *, dtype: torch.dtype, base: float = 10_000.0) -> Tensor:
    """Return cosines and sines [2, L, K/2] of the angles by which positions rotate heads of K numbers."""
    half = width // 2
    # At least fp32: a bf16 angle is off by whole turns at long lengths.
    dtype = torch.promote_types(dtype, torch.float32)
    frequency_K = base ** (-torch.arange(half, device=position_L.device, dtype=dtype) / half)
    angle_LK = position_L[..., None].to(dtype) * frequency_K
    return torch.stack([angle_LK.cos(), angle_LK.sin()])


def slopes(num_heads: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return ALiBi's m_h: 2^(-8/H), 2^(-16/H) .. 2^-8. The published code has others where H is no power of two."""
    return 2 ** (-8 * torch.arange(1, num_heads + 1, device=device, dtype=dtype) / num_heads)


def sinusoids(position_X: Tensor, width: int, *, dtype: torch.dtype) -> Tensor:
    """Return sines at even and cosines at odd coordinates: [..., D]."""
    exact = torch.promote_types(dtype, torch.float32)
    even_D = torch.arange(0, width, 2, device=position_X.device, dtype=exact)
    angle_XD = position_X[..., None].to(exact) * 10_000.0 ** (-even_D / width)
    return torch.stack([angle_XD.sin(), angle_XD.cos()], -1).flatten(-2)[..., :width].to(dtype)


class Positioned(Block):
    """The model's lowest block, whose stream first gets a vector for each position."""

    def __init__(self, block: Block, width: int, *, max_length: int = 0, among: int = 0) -> None:
        """Use learnt vectors for `max_length` positions, of the size of nn.Embedding's tokens; 0 for sinusoids."""
        super().__init__()
        self.block, self.among = block, among
        self.learnt = nn.Embedding(max_length, width) if max_length else None

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        self._refuse_beyond(x_BLD.shape[1])
        return self.block(x_BLD + self._vectors(positions_of(x_BLD, ctx, among=self.among), x_BLD), ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        self._refuse_beyond(max_length)
        position = torch.zeros((), dtype=torch.int64, device=device)
        return position, self.block.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        position, held = state
        x_BD, held = self.block.step(x_BD + self._vectors(position, x_BD), held, ctx)
        return x_BD, (position + 1, held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        (position, held), length = state, x_BLD.shape[1]
        position_L = position + torch.arange(length, device=x_BLD.device)
        x_BLD, held = self.block.extend(x_BLD + self._vectors(position_L, x_BLD), held, ctx)
        return x_BLD, (position + length, held)

    def _vectors(self, position_X: Tensor, x: Tensor) -> Tensor:
        if self.learnt is None:
            return sinusoids(position_X, x.shape[-1], dtype=x.dtype)
        return self.learnt(position_X).to(x.dtype)

    def _refuse_beyond(self, length: int) -> None:
        if self.learnt is not None and length > self.learnt.num_embeddings:
            raise ValueError(
                f"positions='learnt' has max_length={self.learnt.num_embeddings} positions, too few for length {length}"
            )
