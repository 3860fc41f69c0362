"""H3: the product of two state spaces' outputs in every channel, one that shifts and one that sums.

    q, k, v = W_q x + b_q ..        y = q * diag(shift(k) * v)        x = x + W_o y + b_o
    shift(k)_t = sum of c_n k_{t-n} for n < N + d k_t        diag(u)_t = C h_t + D u_t, h_t = Abar h_{t-1} + Bbar u_t
    x = x + W_2 gelu(W_1 x + b_1) + b_2        each behind a LayerNorm

Dao et al. 2022 (2212.14052). The shift is a state space whose A moves every number of the state on by one place and
whose B is the first unit vector: a convolution with N taps, c. The other is the diagonal one of `s4` (S4D-Lin), with
its initial values and learning rates. So the shift of a key meets a value, and the product is held until a query asks
for it. Heads have one channel, as in most published models; in larger ones shift(k) v^T is a matrix. Taps and skips c,
d and D start normal with 1, as published. Biases and matrices start as torch.nn.Linear's do.

Both convolutions are those of models/operations/long_conv. Steps carry the N - 1 last keys and the diagonal system's
state.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, Norm, State, require
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.linear import of_one
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.long_conv import long_convolution
from chomsky_ladder.models.operations.long_conv.reference import convolved
from chomsky_ladder.models.s4 import S4Config, StateSpace, wide


class DiagonalSpace(StateSpace):
    """S4D without the layers after it."""

    def __init__(self, config: "H3Config") -> None:
        super().__init__(
            S4Config(
                d_model=config.d_model,
                d_state=config.d_state,
                form="diagonal",
                init="lin",
                dt_min=config.dt_min,
                dt_max=config.dt_max,
            )
        )
        self.gate = self.out = None

    def _mixed(self, y_BLH: Tensor) -> Tensor:
        return y_BLH


class H3(Layer):
    heeds_asked = True

    def __init__(self, config: "H3Config") -> None:
        super().__init__()
        width = config.d_model
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in "qkv")
        self.shift_ND = nn.Parameter(torch.randn(config.d_state, width))
        self.present_D = nn.Parameter(torch.randn(width))
        self.diagonal = DiagonalSpace(config)
        self.out = nn.Linear(width, width)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        q_BLD, k_BLD, v_BLD = of_one([self.query, self.key, self.value], x_BLD)
        k_BLD = wide(k_BLD)
        with torch.autocast(k_BLD.device.type, enabled=False):
            shifted_BLD = long_convolution(ctx, k_BLD, self._taps(k_BLD))
        return self._out(ctx.wanted(q_BLD), self.diagonal(shifted_BLD * v_BLD, ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        """Return the last N - 1 keys, and the diagonal system's state."""
        taps, width = self.shift_ND.shape
        past_BND = torch.zeros(batch, taps - 1, width, device=device, dtype=torch.promote_types(dtype, torch.float32))
        return past_BND, self.diagonal.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BND, held = state
        q_BLD, k_BLD, v_BLD = of_one([self.query, self.key, self.value], x_BLD)
        keys_BND = torch.cat([past_BND, k_BLD.to(past_BND.dtype)], 1)
        with torch.autocast(keys_BND.device.type, enabled=False):
            shifted_BLD = convolved(wide(keys_BND), self._taps(keys_BND), length=x_BLD.shape[1])
        y_BLD, held = self.diagonal.extend(shifted_BLD * v_BLD, held, ctx)
        return self._out(q_BLD, y_BLD), (keys_BND[:, x_BLD.shape[1] :].clone(), held)

    def _taps(self, keys_BND: Tensor) -> Tensor:
        """Return a tap for each key, in the precision of transforms. d is added to the present key's tap."""
        taps_ND = wide(self.shift_ND[: keys_BND.shape[1]])
        return taps_ND + nn.functional.pad(self.present_D[None], (0, 0, 0, len(taps_ND) - 1))

    def _out(self, q_BLD: Tensor, y_BLD: Tensor) -> Tensor:
        return self.out((q_BLD * y_BLD).to(self.out.weight.dtype))


@register
@dataclass(frozen=True, kw_only=True)
class H3Config(MixerConfig):
    name, family, year, paper = "h3", "state space", 2022, "2212.14052"
    title = "H3"
    cost = "n log n"
    norm = "layer"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    d_state: int = 64
    """States of each of a channel's two systems: the number of tokens the shift sees; an even number."""
    dt_min: float = 0.001
    """The smallest initial time step of the diagonal system, which remembers about 1 / dt tokens."""
    dt_max: float = 0.1
    """The largest initial time step."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for four times the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.d_state >= 2 and self.d_state % 2 == 0,
            f"{self.name}: d_state must be even and at least 2, not {self.d_state}",
        )
        require(
            0 < self.dt_min <= self.dt_max < float("inf"),
            f"{self.name}: dt_min={self.dt_min} must be above 0 and not above dt_max={self.dt_max}",
        )

    def mixer(self, layer: int) -> Layer:
        return H3(self)

    def feed_forward(self) -> Layer:
        return MLP(self.d_model, self.d_inner or 4 * self.d_model, activation="gelu")

    @classmethod
    def tiny(cls) -> "H3Config":
        return cls(d_model=16, num_blocks=2, d_state=8)
