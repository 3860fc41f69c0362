"""Gated DeltaNet-2: separate gates for erasing and writing, in every channel.

    S_t = (1 - k_t (b_t * k_t)^T) diag(w_t) S_{t-1} + k_t (e_t * v_t)^T
    b_t = c sigmoid(W_b x_t)        e_t = sigmoid(W_e x_t)

with b in the channels of keys and e in those of values. Decays, reading, norm and output gate are those of `kda`
(models/kda.py), and start like them. 2605.22791. With b = e, the same in all channels, it is KDA. c is 1, or 2 with
`eigenvalues=signed`.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kda import ChannelDelta, Given, KDAConfig
from chomsky_ladder.models.operations.delta.rules import by_channel_delta_rule


class EraseAndWrite(ChannelDelta):
    def __init__(self, config: "GatedDeltaNet2Config") -> None:
        super().__init__(config)
        self.erase = nn.Linear(config.d_model, self.widths[1], bias=False)
        self.write = nn.Linear(config.d_model, self.widths[2], bias=False)

    def beside(self) -> list[nn.Module]:
        return [*super().beside(), self.erase, self.write]

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state_BHKV: Tensor, ctx: Context
    ) -> tuple[Tensor, Tensor]:
        low_BLR, _, erase_BLE, write_BLE = given
        erased_BHLK = self.largest_beta * self.squashed(erase_BLE)
        v_BHLV = self.squashed(write_BLE) * v_BHLV
        log_decay_BHLK = self.log_decay(low_BLR)
        return by_channel_delta_rule(q_BHLK, k_BHLK, v_BHLV, None, erased_BHLK, log_decay_BHLK, state_BHKV, ctx)


@register
@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet2Config(KDAConfig):
    name, family, year, paper = "gated_delta_net2", "delta rule", 2026, "2605.22791"
    title = "Gated DeltaNet-2{eigenvalues}"

    def mixer(self, layer: int) -> EraseAndWrite:
        return EraseAndWrite(self)

    @classmethod
    def tiny(cls) -> "GatedDeltaNet2Config":
        return cls(d_model=16, num_blocks=2, num_heads=2)
