"""The Transformer whose attention only sees the last few positions, so that time is linear and the cache constant.

    y_t = sum over t - W < s <= t of  softmax_s(q_t . k_s / sqrt(K)) v_s

Beltagy et al. 2020 (2004.05150), causal and in the Llama block as in Mistral, Jiang et al. 2023 (2310.06825). The view
widens layer by layer: block n depends on the last n (W - 1) + 1 tokens. Long sequences are split into blocks of W
queries, each over its own block of keys and the one before.
"""

from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import require
from chomsky_ladder.models.transformer import TransformerConfig


@register
@dataclass(frozen=True, kw_only=True)
class SlidingWindowConfig(TransformerConfig):
    name, family, year, paper = "sliding_window", "attention", 2020, "2004.05150"
    title = "Transformer (window)"

    window: int = 16
    """Positions that a token sees, itself the last of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.window >= 1, "sliding_window: window must be at least 1")
