"""A model of the transformers library as a stack: inputs_embeds go in, last_hidden_state comes out.

    --plugin chomsky_ladder.models.bridges.huggingface --model.kind llama --model.args '{"rope_theta": 500.0}'

`kind` is an argument of AutoConfig.for_model. Width, blocks, heads and, where the kind has one, the width inside its
feed-forward are given here. Everything else is the library's default or in `args`, which take precedence. The library
draws the weights at random, from the run's seed. Its token embedding is left out. Its final norm stays in front of ours
unless `final_norm` is none. Its cache is not used: there is no step form. The library reads a value of its mask, so a
step waits for the device, as `ladder check` reports.
"""

import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Norm, require
from chomsky_ladder.models.bridges import needed
from chomsky_ladder.models.layers.feed_forward import swiglu_width
from chomsky_ladder.models.plain import PlainArgsConfig, PlainStackConfig

PACKAGE = "transformers>=5"


class HuggingFace(nn.Module):
    """The library's model without embedding and head."""

    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.model: Any = needed("transformers", install=PACKAGE).AutoModel.from_config(settings)
        self.model.set_input_embeddings(nn.Identity())  # inputs are embedded already

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.model(inputs_embeds=x_BLD, use_cache=False).last_hidden_state


@register
@dataclass(frozen=True, kw_only=True)
class HuggingFaceConfig(PlainArgsConfig, PlainStackConfig):
    name, family, year, paper = "huggingface", "bridge", 2020, "1910.03771"
    exact = False  # norms and softmax are computed in fp32
    packages = ("transformers",)

    final_norm: Norm = "none"
    """The norm between the library's own and the head."""
    kind: str = "llama"
    """The library's name of the architecture: llama, mistral, qwen3, gpt2, gpt_neox, .."""
    num_heads: int = 4
    """Heads."""
    d_inner: int = 0
    """Width inside the feed-forward, if the kind has a setting for it; 0 for 8/3 of the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_model % self.num_heads == 0, f"{self.name}: {self.d_model} does not split into heads")

    def make(self) -> nn.Module:
        return HuggingFace(_settings(self))

    @property
    def cost(self) -> Literal["linear", "quadratic"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "linear" if "mamba" in self.kind or "rwkv" in self.kind else "quadratic"

    @property
    def longest_input(self) -> int | None:
        try:
            return getattr(_settings(self), "max_position_embeddings", None)
        except ValueError:  # the package is missing, which is reported when a run would begin
            return None


@lru_cache(maxsize=256)
def _settings(config: HuggingFaceConfig) -> Any:
    """Return the library's config, with small values where its default is that of a large language model."""
    auto = needed("transformers", install=PACKAGE).AutoConfig
    try:
        kind = type(auto.for_model(config.kind))
    except (KeyError, ValueError):
        raise ValueError(f"{config.name}: transformers knows no kind {config.kind!r}") from None
    ours = {
        "vocab_size": 1,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_blocks,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_heads,
        "head_dim": config.d_model // config.num_heads,
        "intermediate_size": swiglu_width(config.d_model, config.d_inner),
        **dict.fromkeys(("hidden_dropout", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"), 0),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }
    known = {*inspect.signature(kind.__init__).parameters, *getattr(kind, "attribute_map", {})}
    return kind(**({name: value for name, value in ours.items() if name in known} | config.given))
