"""Comba: a gated delta rule that erases along a shortened key, and reads less along the erased direction.

    S_t = (1 - b_t k_t p_t^T) a_t S_{t-1} + b_t k_t v_t^T        p_t = sigmoid(h) k_t
    y_t = (q_t - m p_t) S_t / sqrt(K)

in each head, with one learned h and m for each head. a, b, q, k, v, norm and output gate are those of
`gated_delta_net`, with values twice as wide as keys. Hu et al. 2025 (2506.02475): the state gets feedback from what is
read, which is closed at the input by p and at the output by m. h and m start at 1, as in the published code, which
notes that small models may want m = .02. `eigenvalues=signed`, b up to 2 as in `delta_net`, is not in the paper.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_delta_net import initial_decay
from chomsky_ladder.models.kda import ConvolvedDelta, Given, KDAConfig
from chomsky_ladder.models.operations.delta.rules import by_channel_delta_rule


class ClosedLoop(ConvolvedDelta):
    def __init__(self, config: "CombaConfig") -> None:
        super().__init__(config)
        self.beta = nn.Linear(config.d_model, self.num_heads, bias=False)
        self.dt = nn.Linear(config.d_model, self.num_heads, bias=False)
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(self.num_heads))
        self.share, self.correction = (nn.Parameter(torch.ones(self.num_heads)) for _ in range(2))
        self.gate = nn.Linear(config.d_model, self.widths[2], bias=False)

    def beside(self) -> list[nn.Module]:
        return [self.gate, self.beta, self.dt]

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state_BHKV: Tensor, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        dtype = k_BHLK.dtype
        _, beta_BLH, dt_BLH = given
        beta_BHL1 = self.largest_beta * self.squashed(beta_BLH)
        dt_BLH = nn.functional.softplus(dt_BLH.to(dtype) + self.dt_bias)
        log_decay_BHL1 = self.heads(-self.A_log.to(dtype).exp() * dt_BLH)
        share_H11, correction_H11 = (x.to(dtype)[:, None, None] for x in (torch.sigmoid(self.share), self.correction))
        less_BHL1 = (correction_H11 * share_H11).expand_as(beta_BHL1)
        ruled = (q_BHLK, k_BHLK, v_BHLV, beta_BHL1, share_H11.expand_as(beta_BHL1), log_decay_BHL1, state_BHKV)
        return by_channel_delta_rule(*ruled, ctx, less_BHL1=less_BHL1)

    def output_gate(self, given: Given) -> Tensor:
        return nn.functional.silu(given[0])


@register
@dataclass(frozen=True, kw_only=True)
class CombaConfig(KDAConfig):
    name, family, year, paper = "comba", "delta rule", 2025, "2506.02475"
    title = "Comba{eigenvalues}"

    expand_v: int = 2
    """Width of values relative to that of queries and keys."""

    @property
    def transition(self) -> str:
        return "projection" if self.eigenvalues == "positive" else "reflection"

    def mixer(self, layer: int) -> ClosedLoop:
        return ClosedLoop(self)

    @classmethod
    def tiny(cls) -> "CombaConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
