"""minGRU: a GRU whose gate and candidate only depend on the input, so that it is a linear recurrence in every channel.

    z = sigmoid(W_z x + b_z)        c = g(W_h x + b_h)        h_t = (1 - z_t) h_{t-1} + z_t c_t        h_0 = g(0)
    x = x + W_o h(conv(x))          x = x + W_2 gelu(W_1 x + b_1) + b_2        each behind an RMSNorm

Feng et al. 2024 (2410.01201). `candidate=linear` is the paper's definition, g(a) = a. `candidate=positive` is its form
for a parallel scan in log-space, which needs every h above 0: g(a) = a + 1/2 for a >= 0, sigmoid(a) below. The scan
here (`_diagonal`) takes no logarithms, and is the same for both. A short convolution precedes the recurrence, as in the
block of the paper's language models. Weights start as torch.nn.Linear's and Conv1d's do.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.diagonal import diagonal_scan


class MinimalRNN(Layer):
    """A weighted mean of the past candidates. The state is the convolution's and h, kept in fp32 at least."""

    heeds_asked = True

    gates: int
    """Numbers computed for each channel besides its candidate."""

    def __init__(self, config: "MinGRUConfig") -> None:
        super().__init__()
        self.width, self.candidate = config.expansion * config.d_model, config.candidate
        self.convolution = ShortConvolution(config.d_model, width=config.conv_width)
        self.gates_candidate = nn.Linear(config.d_model, (self.gates + 1) * self.width)
        self.out = nn.Linear(self.width, config.d_model, bias=False)

    @abstractmethod
    def opening(self, gates_BLG: Tensor) -> Tensor:
        """Return the logit of the candidate's share in the new h, from the gates' numbers."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, h_BE = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self._scan(self.convolution(x_BLD, ctx), h_BE, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        h_BE = self._candidate(torch.zeros(batch, self.width, device=device, dtype=held))
        return self.convolution.init_state(batch, device=device, dtype=dtype), h_BE

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWD, h_BE = state
        mixed_BLD, past_BWD = self.convolution.extend(x_BLD, past_BWD)
        y_BLD, h_BE = self._scan(mixed_BLD, h_BE, ctx)
        return y_BLD, (past_BWD, h_BE)

    def _scan(self, mixed_BLD: Tensor, h_BE: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        numbers_BLF = self.gates_candidate(mixed_BLD)
        numbers_BLF = numbers_BLF.to(torch.promote_types(numbers_BLF.dtype, torch.float32))
        gates_BLG, candidate_BLE = numbers_BLF.split([self.gates * self.width, self.width], dim=-1)
        opening_BLE = self.opening(gates_BLG)
        new_BLE = torch.sigmoid(opening_BLE) * self._candidate(candidate_BLE)
        h_BLE, h_BE = diagonal_scan(torch.sigmoid(-opening_BLE), new_BLE, h_BE, ctx)
        return self.out(ctx.wanted(h_BLE).to(self.out.weight.dtype)), h_BE

    def _candidate(self, x: Tensor) -> Tensor:
        return positive(x) if self.candidate == "positive" else x


def positive(x: Tensor) -> Tensor:
    """Return g of the log-space form: continuous, positive and growing."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


class MinGRU(MinimalRNN):
    gates = 1

    def opening(self, gates_BLG: Tensor) -> Tensor:
        return gates_BLG


@register
@dataclass(frozen=True, kw_only=True)
class MinGRUConfig(MixerConfig):
    name, family, year, paper = "min_gru", "linear recurrence", 2024, "2410.01201"
    title = "minGRU"
    transition = "diagonal"

    candidate: Literal["linear", "positive"] = "linear"
    """The candidate: any number, as in the paper's definition, or a positive one, as in its log-space form."""
    expansion: int = 2
    """Channels of the recurrence, per channel of the stream."""
    conv_width: int = 4
    """Width of the short convolution, in tokens."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for four times the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expansion", "conv_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")

    def mixer(self, layer: int) -> MinimalRNN:
        return MinGRU(self)

    def feed_forward(self) -> Layer:
        return MLP(self.d_model, self.d_inner or 4 * self.d_model, activation="gelu")
