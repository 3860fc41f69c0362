"""The Transformer that sees its whole prompt at once, and after the prompt only the past.

    t sees s  if  s <= t  or  s is in the prompt

The prefix language model of Raffel et al. 2020 (1910.10683) in the block of `transformer`, between it and `encoder`.
The prompt ends at the position where the first answer is read. Inside it a position depends on later ones, so there is
no step.
"""

from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.transformer import TransformerConfig


@register
@dataclass(frozen=True, kw_only=True)
class PrefixLMConfig(TransformerConfig):
    name, family, year, paper = "prefix_lm", "attention", 2019, "1910.10683"
    title = "Prefix LM"
    sees, stepwise = "prompt", False
