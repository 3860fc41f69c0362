"""Hyena: gates between convolutions as long as the sequence, with filters that a small network computes from the lag.

    v, x_1 .. x_N = shortconv(W x + b)        z = v        z = h_n conv (x_n z) for n < N        y = W_o (x_N z) + b_o
    h_n(t) = window(t) net_n(t / T) + d_n [t = 0]        window(t) = exp(-rate t / T)
    net(u) = W_4 s(W_3 s(W_2 s(W_1 e + b_1) + b_2) + b_3)        s(a) = sin(f a)
    e = u and the cos and sin of 2 pi k u for k = 1e-4 .. bands - 1
    x = x + y        x = x + W_2 gelu(W_1 x + b_1) + b_2        each behind a LayerNorm

Poli et al. 2023 (2302.10866), with the order N counted as in the published code (safari): N gates and N - 1 long
filters, as the first convolution is the short one. Defaults are those of its language models, and so are the network's
initial values: weights normal with 0.02, biases zero, d normal with 1. f is learned, and none of these parameters
decay. Rates, evenly spaced over the channels, and features are fixed; in the code they may be learned. The rest starts
as in torch.

T is a setting. If lags were divided by the batch's length, filters would differ at every length. At lags beyond T the
positions go beyond 1, where the published code cuts off its input.

Convolutions are those of models/operations/long_conv, in at least fp32. The step sums over all inputs so far.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, Norm, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.long_conv import long_convolution
from chomsky_ladder.models.operations.long_conv.reference import convolved

SHORT_WIDTH = 3


class FilterLinear(nn.Linear):
    no_decay = frozenset({"weight"})

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class LongFilters(nn.Module):
    """The taps of F filters in each channel, for any number of lags."""

    no_decay = frozenset({"present_FD"})

    def __init__(self, config: "HyenaConfig") -> None:
        super().__init__()
        filters, width, hidden = config.order - 1, config.d_model, config.filter_width
        self.max_length, self.bands = config.max_length, config.filter_bands
        self.reach = config.shortest_window, config.longest_window
        self.hidden = nn.ModuleList(FilterLinear(inputs, hidden) for inputs in (1 + 2 * self.bands, hidden, hidden))
        self.frequency_I = nn.Parameter(torch.full((hidden,), float(config.filter_frequency)))
        self.last = FilterLinear(hidden, filters * width, bias=False)
        self.present_FD = nn.Parameter(torch.randn(filters, width))

    def forward(self, length: int) -> Tensor:
        """Return the taps [F, L, D]."""
        weight = self.last.weight
        with torch.autocast(weight.device.type, enabled=False):  # the sines would magnify the rounding of bf16
            place_L = torch.arange(length, device=weight.device, dtype=weight.dtype) / self.max_length
            x_LI = self._features(place_L)
            for layer in self.hidden:
                x_LI = torch.sin(self.frequency_I * layer(x_LI))
            taps_FLD = self.last(x_LI).unflatten(1, self.present_FD.shape).transpose(0, 1) * self._window(place_L)
        return taps_FLD + nn.functional.pad(self.present_FD[:, None], (0, 0, 0, length - 1))

    def _features(self, place_L: Tensor) -> Tensor:
        band_K = torch.linspace(1e-4, self.bands - 1, self.bands, device=place_L.device, dtype=place_L.dtype)
        angle_LK = 2 * math.pi * place_L[:, None] * band_K
        return torch.cat([place_L[:, None], angle_LK.cos(), angle_LK.sin()], -1)

    def _window(self, place_L: Tensor) -> Tensor:
        shortest, longest = (math.log(100) / reach for reach in self.reach)
        rate_D = torch.linspace(longest, shortest, self.present_FD.shape[1], device=place_L.device, dtype=place_L.dtype)
        return torch.exp(-place_L[:, None] * rate_D)


class Hyena(Layer):
    """The layer.

    Its state: that of the short convolution, all taps the sequence may need, and the long filters' inputs so far.
    """

    heeds_asked = True

    def __init__(self, config: "HyenaConfig") -> None:
        super().__init__()
        width, self.parts = config.d_model, config.order + 1
        self.project = nn.Linear(width, self.parts * width)
        self.short = ShortConvolution(self.parts * width, width=SHORT_WIDTH)
        self.filters = LongFilters(config)
        self.out = nn.Linear(width, width)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        z_BLD, *gates, last_gate_BLD = self.short(self.project(x_BLD), ctx).chunk(self.parts, dim=-1)
        for gate_BLD, taps_LD in zip(gates, self.filters(x_BLD.shape[1]).unbind(0), strict=True):
            z_BLD = long_convolution(ctx, (gate_BLD * z_BLD).to(taps_LD.dtype), taps_LD)
        return self.out(ctx.wanted(last_gate_BLD) * ctx.wanted(z_BLD))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        taps_FSD = self.filters(max_length).to(device)
        past_BFSD = torch.zeros(batch, *taps_FSD.shape, device=device, dtype=torch.promote_types(dtype, torch.float32))
        return self.short.init_state(batch, device=device, dtype=dtype), taps_FSD, past_BFSD

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        short_BWE, taps_FSD, past_BFSD = state
        if torch.is_grad_enabled():  # every piece of a string trains the filters, not only the first
            taps_FSD = self.filters(taps_FSD.shape[1]).to(taps_FSD.device)
        mixed_BLE, short_BWE = self.short.extend(self.project(x_BLD), short_BWE)
        z_BLD, *gates, last_gate_BLD = mixed_BLE.chunk(self.parts, dim=-1)
        kept = []
        for gate_BLD, taps_SD, past_BSD in zip(gates, taps_FSD.unbind(0), past_BFSD.unbind(1), strict=True):
            inputs_BND = torch.cat([past_BSD, (gate_BLD * z_BLD).to(taps_SD.dtype)], 1)
            kept.append(inputs_BND[:, -past_BSD.shape[1] :])
            z_BLD = convolved(inputs_BND, taps_SD, length=x_BLD.shape[1])
        return self.out(last_gate_BLD * z_BLD), (short_BWE, taps_FSD, torch.stack(kept, 1))


@register
@dataclass(frozen=True, kw_only=True)
class HyenaConfig(MixerConfig):
    name, family, year, paper = "hyena", "convolution", 2023, "2302.10866"
    title = "Hyena"
    state_growth, cost = "length", "n log n"
    norm = "layer"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    order: int = 2
    """Gates in a layer. There is one fewer filter of the length of the sequence."""
    max_length: int = 1024
    """Lag at which a filter's position is 1 and in which windows are measured. Both go on at larger lags."""
    filter_width: int = 64
    """Width of the three hidden layers of the network that computes the filters."""
    filter_bands: int = 16
    """Number of frequencies that encode the lag for the network."""
    filter_frequency: float = 14.0
    """Initial factor on the arguments of the network's sines."""
    shortest_window: float = 0.3
    """Share of max_length over which the fastest-decaying channel falls to a hundredth."""
    longest_window: float = 1.5
    """Share of max_length over which the slowest-decaying channel falls to a hundredth."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for twice the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.order >= 2, f"{self.name}: order must be at least 2, not {self.order}")
        for field in ("max_length", "filter_width", "filter_bands"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(self.filter_frequency > 0, f"{self.name}: filter_frequency must be positive")
        require(
            0 < self.shortest_window <= self.longest_window,
            f"{self.name}: shortest_window={self.shortest_window} must be positive and at most "
            f"longest_window={self.longest_window}",
        )

    def mixer(self, layer: int) -> Layer:
        return Hyena(self)

    def feed_forward(self) -> Layer:
        return MLP(self.d_model, self.d_inner or 2 * self.d_model, activation="gelu")

    @classmethod
    def tiny(cls) -> "HyenaConfig":
        return cls(d_model=16, num_blocks=2, max_length=48, filter_width=8, filter_bands=4)
