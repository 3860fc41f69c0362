"""The bidirectional Transformer encoder: every position sees every valid one, answer slots included.

Deletang et al. 2022 (2207.02098) take it as their Transformer: with blank answer slots it needs no causal mask.
The block is the causal Transformer's, so that the two differ in the mask alone. A position inside the string depends
on what stands behind it, so there is no step and no teacher-forced decoding.
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
