"""The Transformer with a mixture of experts in place of each feed-forward: top-k routing, dropless.

    y = sum over the k best experts e of  softmax(the k best of W x)_e  SwiGLU_e(x)

Shazeer et al. 2017 (1701.06538), with the routing of Mixtral, Jiang et al. 2024 (2401.04088), and the balance loss of
Fedus et al. 2021 (2101.03961): E sum_e f_e P_e, where f_e is the share of tokens sent to e and P_e its mean
probability, both over valid positions. It is 1 when the load is even. It is the only thing here that couples the rows
of a batch: experts have no capacity, so no token is dropped because of another.

In the reference all experts run on all tokens and the unchosen ones count zero. At 8 experts and width 128 that is
faster on a GPU than sorting tokens by expert, keeps shapes static and stacks under vmap. On a CPU tokens are sorted and
each expert runs on its own: with 2 of 8 chosen, a whole step takes less than half the time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, require
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.scans.products import product
from chomsky_ladder.models.transformer import TransformerConfig


class Experts(Layer):
    heeds_asked = True

    def __init__(self, config: "MoEConfig") -> None:
        super().__init__()
        width, inner, count = config.d_model, config.inner_width, config.num_experts
        self.top_k, self.balance = config.top_k, config.balance
        self.router = nn.Linear(width, count, bias=False)
        # torch.nn.Linear's default, for each expert; the output scaled as in the dense block.
        self.gate_up = nn.Parameter(torch.empty(count, width, 2 * inner).uniform_(-(width**-0.5), width**-0.5))
        bound = (inner * config.num_writers) ** -0.5
        self.out = nn.Parameter(torch.empty(count, inner, width).uniform_(-bound, bound))

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        scores_E = self.router(x).float() if x.dtype != torch.float64 else self.router(x)
        best_k, chosen_k = scores_E.topk(self.top_k, dim=-1)
        if x.dim() == 3:
            self._report(scores_E, torch.zeros_like(scores_E).scatter(-1, chosen_k, 1.0), ctx)
            x, scores_E, best_k, chosen_k = map(ctx.wanted, (x, scores_E, best_k, chosen_k))
        if x.device.type == "cpu" and ctx.backend != "reference" and not ctx.stacked:
            ctx.backends.add("sorted_experts")
            return self._sorted(x, best_k.softmax(-1), chosen_k)
        weight_E = torch.zeros_like(scores_E).scatter(-1, chosen_k, best_k.softmax(-1))
        gate, up = torch.einsum("...d,edi->...ei", x, self.gate_up).chunk(2, dim=-1)
        inner = nn.functional.silu(gate) * up * weight_E[..., None].to(gate.dtype)
        return torch.einsum("...ei,eid->...d", inner, self.out)

    def _sorted(self, x: Tensor, weight_k: Tensor, chosen_k: Tensor) -> Tensor:
        """Run each expert on the tokens sent to it, S in all, a token as often as it is sent."""
        expert_S = chosen_k.flatten()
        order_S = expert_S.argsort(stable=True)
        sent_SD = x.flatten(0, -2).index_select(0, order_S // self.top_k)
        counts = expert_S.bincount(minlength=len(self.out)).tolist()
        parts = []
        for z_SD, gate_up, out in zip(sent_SD.split(counts), self.gate_up.unbind(), self.out.unbind(), strict=True):
            gate_SI, up_SI = product(z_SD, gate_up.mT).chunk(2, dim=-1)
            parts.append(product(nn.functional.silu(gate_SI) * up_SI, out.mT))
        y_SD = torch.cat(parts).index_select(0, order_S.argsort())
        y_kD = y_SD.reshape(*chosen_k.shape, -1)
        return (y_kD * weight_k[..., None].to(y_kD.dtype)).sum(-2)

    def _report(self, scores_BLE: Tensor, chosen_BLE: Tensor, ctx: Context) -> None:
        load_E = ctx.mean_valid(chosen_BLE) / self.top_k
        probability_E = ctx.mean_valid(scores_BLE.softmax(-1))
        count = load_E.shape[0]
        ctx.add_loss("balance", self.balance * count * (load_E * probability_E).sum())
        ctx.add_metric("expert_load_max", load_E.max() * count)  # 1 when even
        ctx.add_metric("expert_load_min", load_E.min() * count)


@register
@dataclass(frozen=True, kw_only=True)
class MoEConfig(TransformerConfig):
    name, family, year, paper = "moe", "attention", 2017, "1701.06538"
    title = "Transformer (MoE)"

    num_experts: int = 8
    """Experts in each block."""
    top_k: int = 2
    """Experts that each token is sent to."""
    balance: float = 0.01
    """Weight of the balance loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            1 <= self.top_k <= self.num_experts,
            f"moe: top_k={self.top_k} must lie in 1..num_experts={self.num_experts}",
        )
        require(self.feed_forward == "swiglu", "moe: feed_forward must be swiglu, of which the experts are made")
        require(self.balance >= 0, "moe: the weight of the balance loss must not be negative")

    @property
    def idle_parameters(self) -> int:
        expert = 3 * self.d_model * self.inner_width
        return self.num_blocks * (self.num_experts - self.top_k) * expert

    def make_feed_forward(self) -> Layer:
        return Experts(self)

    @classmethod
    def tiny(cls) -> "MoEConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2, num_experts=4)
