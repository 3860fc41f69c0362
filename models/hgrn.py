"""HGRN: a gated recurrence in every complex channel whose forget gate has a lower bound that rises with the layer.

    h_t = l_t e^(i theta) h_{t-1} + (1 - l_t) c_t        l = bound + (1 - bound) sigmoid(W_l x + b_l)
    c = silu(W_c x + b_c), real and imaginary parts      out = W_o LayerNorm(sigmoid(W_g x + b_g) * [Re h, Im h]) + b_o
    x = x + out        x = x + SwiGLU(x)        each behind an RMSNorm

    bound of layer k = sum of p_2 .. p_k        p = softmax over the layers of a learnt matrix, channel by channel

So the first layer may forget at once, and the last remembers longest. Qin et al. 2023 (2311.04823). The phases theta
are learnt and start at 10000^(-2 d / D), as in the published code. `form=real` has no phase and no imaginary part.

The factor e^(i theta) is the same at every position. So h_t e^(-i theta t) is a recurrence with the real decay l_t, for
inputs turned by the angle minus theta t. Real and imaginary part are scanned as two real channels and then turned back
(`_diagonal`). Angles count from the start of a call, so they lose digits by the length of one sequence at most. Weights
start as torch.nn.Linear's do, the bounds' matrix at 0, which spaces the bounds evenly.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.diagonal import diagonal_scan


class LowerBounds(nn.Module):
    """The lower bounds of forget gates, for all layers at once."""

    no_decay = frozenset({"share_LD"})

    def __init__(self, num_blocks: int, width: int) -> None:
        super().__init__()
        self.share_LD = nn.Parameter(torch.zeros(num_blocks, width))

    def forward(self, layer: int) -> Tensor:
        share_LD = torch.softmax(self.share_LD.to(torch.promote_types(self.share_LD.dtype, torch.float32)), 0)
        return share_LD[1 : layer + 1].sum(0)


def bounds_of(ctx: Context) -> nn.Module:
    """Return the model's bounds, which its config provides as `common_module`."""
    assert ctx.common is not None
    return ctx.common


def shut(gate: Tensor, bound_D: Tensor) -> Tensor:
    """Return 1 - l as a product. As a difference, the slowest decays would lose their digits."""
    return (1 - bound_D) * torch.sigmoid(-gate.to(torch.promote_types(gate.dtype, torch.float32)))


class GatedRecurrence(OneForm):
    """The recurrence of P parts of D channels, real and imaginary or real alone. The state is h [B, P, D]."""

    heeds_asked = True

    def __init__(self, config: "HGRNConfig", layer: int) -> None:
        super().__init__()
        width, self.layer, self.num_parts = config.d_model, layer, 2 if config.form == "complex" else 1
        self.value = nn.Linear(width, self.num_parts * width)
        self.forget = nn.Linear(width, width)
        self.gate = nn.Linear(width, self.num_parts * width)
        self.norm = nn.LayerNorm(self.num_parts * width)
        self.out = nn.Linear(self.num_parts * width, width)
        self.phase_D = nn.Parameter(initial_phases(width)) if config.form == "complex" else None

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.num_parts, self.forget.out_features, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        new_BLD = shut(self.forget(x_BLD), bounds_of(ctx)(self.layer))
        c_BPLD = rearrange(nn.functional.silu(self.value(x_BLD)), "b l (p d) -> b p l d", p=self.num_parts)
        u_BPLD = new_BLD[:, None] * c_BPLD
        keep_BPLD = (1 - new_BLD)[:, None].expand_as(u_BPLD)
        if self.phase_D is None:
            h_BPLD, state = diagonal_scan(keep_BPLD, u_BPLD, state, ctx)
        else:
            count_L = torch.arange(1, x_BLD.shape[1] + 1, device=x_BLD.device, dtype=u_BPLD.dtype)
            angle_LD = count_L[:, None] * self.phase_D
            cos_LD, sin_LD = angle_LD.cos(), angle_LD.sin()
            h_BPLD, _ = diagonal_scan(keep_BPLD, turned(u_BPLD, cos_LD, -sin_LD), state, ctx)
            h_BPLD = turned(h_BPLD, cos_LD, sin_LD)
            state = h_BPLD[:, :, -1]
        h_BLE = rearrange(ctx.wanted(h_BPLD, along=2), "b p l d -> b l (p d)")
        gated_BLE = torch.sigmoid(self.gate(ctx.wanted(x_BLD))) * h_BLE
        return self.out(self.norm(gated_BLE.to(self.norm.weight.dtype))), state


def initial_phases(width: int) -> Tensor:
    channel_D = torch.arange(width, dtype=torch.float64)  # CPUs differ in the last bit of a power in fp32
    return (10000 ** (-2 * channel_D / width)).float()


def turned(z_BPLD: Tensor, cos_LD: Tensor, sin_LD: Tensor) -> Tensor:
    """Return z times cos + i sin."""
    real_BLD, imaginary_BLD = z_BPLD.unbind(1)
    return torch.stack([real_BLD * cos_LD - imaginary_BLD * sin_LD, real_BLD * sin_LD + imaginary_BLD * cos_LD], 1)


@register
@dataclass(frozen=True, kw_only=True)
class HGRNConfig(MixerConfig):
    name, family, year, paper = "hgrn", "linear recurrence", 2023, "2311.04823"
    title = "HGRN"

    form: Literal["complex", "real"] = "complex"
    """The state of a channel. A complex one turns by a learnt angle at every token."""

    @property
    def transition(self) -> str:
        return "diagonal" if self.form == "real" else ""  # complex: the angle does not depend on the token

    def common_module(self) -> nn.Module:
        return LowerBounds(self.num_blocks, self.d_model)

    def mixer(self, layer: int) -> Layer:
        return GatedRecurrence(self, layer)
