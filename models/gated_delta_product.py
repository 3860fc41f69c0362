"""Gated DeltaProduct: Gated DeltaNet with n steps of the delta rule for every token, each with its own key.

    S_t = a_t S_{t-1} (1 - b_1 k_1 k_1^T) .. (1 - b_n k_n k_n^T) + what the n steps write        y_t = S_t q_t

Siems et al. 2025 (2502.10297). With b up to 2 (`eigenvalues=signed`) the product may be any orthogonal matrix made of n
reflections: for n = 2 a rotation in a plane, thus a cycle, and for n = 4 a permutation of five things. The decay a_t
comes before the first step. Keys, values and b of every step are maps of the same token, keys and values through the
short convolution. For n = 1 it is `gated_delta_net`, whose rule it uses on a sequence n times as long.
"""

from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import require
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig, GatedDeltaRule


@register
@dataclass(frozen=True, kw_only=True)
class GatedDeltaProductConfig(GatedDeltaNetConfig):
    name, family, year, paper = "gated_delta_product", "delta rule", 2025, "2502.10297"
    title = "Gated DeltaProduct{eigenvalues}"

    num_householders: int = 2
    """Steps of the delta rule for every token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_householders >= 1,
            f"{self.name}: num_householders must be at least 1, not {self.num_householders}",
        )

    @property
    def transition(self) -> str:
        if self.num_householders == 1:
            return super().transition
        if self.eigenvalues == "signed":
            return "reflections"
        return "projection" if self.num_householders == 2 else ""  # three projections may turn a little

    def mixer(self, layer: int) -> GatedDeltaRule:
        return GatedDeltaRule(self, steps=self.num_householders)

    @classmethod
    def tiny(cls) -> "GatedDeltaProductConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
