"""Gated Slot Attention: softmax attention over a fixed number of slots, each with its own forget gate.

    K_t = diag(a_t) K_{t-1} + (1 - a_t) k_t^T        V_t = diag(a_t) V_{t-1} + (1 - a_t) v_t^T
    y_t = softmax(K_t q_t) V_t        a_t = sigmoid(W_a x_t)^(1/8)
    x = x + W_o RMSNorm(silu(y))        x = x + SwiGLU(x)        each behind an RMSNorm

in each head, with silu on q, k and v and M slots, the rows of K and V. Zhang et al. 2024 (2409.07146): two passes of
gated linear attention, with a softmax between them and one gate for both. The root, of order `temperature`, keeps the
gates near 1. As in the published code the norm is over all heads together, scores are not divided by sqrt(K), and there
is no short convolution. By default there are as many slots as a head has channels; the paper's models have 64. Weights
start as torch.nn.Linear's do.

The first pass is that of models/operations/slots, the second GLA's.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.gla import by_heads, in_heads
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.delta.rules import by_writing_then_reading
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.slots import slots


class SlotAttention(OneForm):
    """The slot attention. Its state is K^T [B, H, K, M] and V [B, H, M, K], kept in fp32 at least."""

    heeds_asked = True

    def __init__(self, config: "GatedSlotAttentionConfig") -> None:
        super().__init__()
        width, self.num_heads, self.temperature = config.d_model, config.num_heads, config.temperature
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in "qkv")
        self.forget = nn.Linear(width, config.num_heads * config.slots, bias=False)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        dim, slots = (layer.out_features // self.num_heads for layer in (self.key, self.forget))
        held = torch.promote_types(dtype, torch.float32)
        return tuple(
            torch.zeros(batch, self.num_heads, *sizes, device=device, dtype=held)
            for sizes in ((dim, slots), (slots, dim))
        )

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        q_BHLK, k_BHLK, v_BHLV = (
            by_heads(nn.functional.silu(project(x_BLD)), self.num_heads)
            for project in (self.query, self.key, self.value)
        )
        decay_BHLM, write_BHLM = kept_and_written(in_heads(self.forget(x_BLD), self.num_heads), self.temperature)
        keys_BHKM, values_BHMV = state
        scores_BHLM, keys_BHKM = slots(ctx, q_BHLK, k_BHLK, write_BHLM, decay_BHLM, keys_BHKM)
        share_BHLM = torch.softmax(scores_BHLM, -1)
        y_BHLV, values_BHMV = by_writing_then_reading(share_BHLM, write_BHLM, v_BHLV, decay_BHLM, values_BHMV, ctx)
        y_BLD = nn.functional.silu(ctx.wanted(rearrange(y_BHLV, "b h l v -> b l (h v)")))
        return self.out(normed(y_BLD.to(self.norm.weight.dtype), self.norm, ctx)), (keys_BHKM, values_BHMV)


def kept_and_written(logit: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return a and 1 - a, the latter with all its digits, as a is near 1."""
    log_decay = nn.functional.logsigmoid(logit) / temperature
    return torch.exp(log_decay), -torch.expm1(log_decay)


@register
@dataclass(frozen=True, kw_only=True)
class GatedSlotAttentionConfig(HeadsConfig):
    name, family, year, paper = "gated_slot_attention", "linear attention", 2024, "2409.07146"
    title = "GSA"
    transition = "diagonal"

    num_slots: int = 0
    """Slots of every head; 0 for as many as it has channels."""
    temperature: float = 8.0
    """Order of the root of the gates' sigmoid. The larger, the longer the memory at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_slots >= 0, f"{self.name}: num_slots must not be negative")
        require(self.temperature > 0, f"{self.name}: temperature must be positive, not {self.temperature}")

    @property
    def slots(self) -> int:
        return self.num_slots or self.d_model // self.num_heads

    def mixer(self, layer: int) -> Layer:
        return SlotAttention(self)
