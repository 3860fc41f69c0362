"""The bidirectional Transformer encoder: every position sees every valid one, answer slots included.

Deletang et al. 2022 (2207.02098) use it as their Transformer: with blank answer slots it needs no causal mask. The
block is the causal Transformer's, so the two only differ in the mask. A position depends on later positions of the
string, so there is no step and no teacher-forced decoding.
"""

from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.transformer import TransformerConfig


@register
@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    name, family, year, paper = "encoder", "attention", 2022, "2207.02098"
    title = "Transformer encoder"
    sees, stepwise = "all", False
