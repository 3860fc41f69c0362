"""Sizes and settings of all models: parameter counts, the bytes of a state, defaults, and refused settings."""

from typing import Any

import pytest
import torch
from torch import nn

from chomsky_ladder.models.backbone import count_parameters, state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context, Norm, make_norm
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.small_backbones import ALL, STEPWISE, VOCAB, close, start

torch.set_num_threads(1)


EMBEDDING = HEAD = 12 * 128
CELL = 4 * (128 * 128 + 128 * 128 + 128)  # four gates of W, U and b
ATTENTION = 3 * 128 * 128 + 128 * 128  # queries, keys and values, and the way out
SWIGLU = 2 * 128 * 344 + 344 * 128  # 8/3 of 128 is 341.3, and the next multiple of 8 is 344


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (LSTMConfig(d_model=128), EMBEDDING + 2 * CELL + HEAD),
        (LSTMBlockConfig(d_model=128), EMBEDDING + 2 * (128 + CELL + 128 * 128 + 128 + SWIGLU) + 128 + HEAD),
        (TransformerConfig(d_model=128), EMBEDDING + 2 * (128 + ATTENTION + 128 + SWIGLU) + 128 + HEAD),
        (EncoderConfig(d_model=128), EMBEDDING + 2 * (128 + ATTENTION + 128 + SWIGLU) + 128 + HEAD),
        (MoEConfig(d_model=128), EMBEDDING + 2 * (128 + ATTENTION + 128 + 8 * 128 + 8 * SWIGLU) + 128 + HEAD),
        (TransformerConfig(d_model=128, num_blocks=1, d_inner=10, final_norm="layer"),
         EMBEDDING + 128 + ATTENTION + 128 + 3 * 128 * 10 + 2 * 128 + HEAD),
    ],
)  # fmt: skip
def test_parameter_counts_by_hand(config: ModelConfig, parameters: int) -> None:
    assert count_parameters(config.build(12)) == parameters


@pytest.mark.parametrize(("d_model", "inner"), [(16, 48), (24, 64), (48, 128), (64, 176), (128, 344), (192, 512)])
def test_the_default_feed_forward_is_eight_thirds_rounded_up_to_eights(d_model: int, inner: int) -> None:
    for cls in (TransformerConfig, EncoderConfig, MoEConfig):
        assert cls(d_model=d_model).inner_width == inner
        assert cls(d_model=d_model, d_inner=5).inner_width == 5
    for d_inner, width in ((0, inner), (5, 5)):
        behind: Any = LSTMBlockConfig(d_model=d_model, d_inner=d_inner).feed_forward()
        assert behind.out.in_features == width


def test_state_bytes_of_nested_structures() -> None:
    four, ten = torch.zeros(2, 2, dtype=torch.uint8), torch.zeros(5, dtype=torch.bfloat16)
    assert state_bytes(four) == 4
    assert state_bytes(torch.zeros((), dtype=torch.int64)) == 8
    assert state_bytes(None) == state_bytes(()) == state_bytes([]) == state_bytes({}) == 0
    assert state_bytes({"a": (four, [ten, None]), "b": [{"c": torch.zeros(3, 0)}, ten]}) == 4 + 10 + 10
    assert state_bytes(torch.zeros(3, dtype=torch.complex128)) == 48
    with pytest.raises(AssertionError, match="float"):
        state_bytes([four, 1.5])


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
@pytest.mark.parametrize("cls", STEPWISE)
def test_state_bytes_of_the_models_by_formula(cls: type[ModelConfig], dtype: torch.dtype, size: int) -> None:
    """Before the first token and after some."""
    model = cls(d_model=24, num_blocks=3).build(VOCAB).to(dtype)
    batch, max_length = 5, 7
    if cls.state_growth == "constant":
        expected = 3 * 2 * batch * 24 * size  # h and c in each layer
    else:
        expected = 3 * (2 * batch * max_length * 24 * size + 8)  # keys and values, and where to write next
    state = start(model, batch, max_length=max_length, dtype=dtype)
    assert state_bytes(state) == expected
    _, state = model.extend(torch.randint(VOCAB, (batch, 4)), state, Context())
    assert state_bytes(state) == expected
    _, state = model.step(torch.randint(VOCAB, (batch,)), state, Context())
    assert state_bytes(state) == expected


@pytest.mark.parametrize(("kind", "cls"), [("rms", nn.RMSNorm), ("layer", nn.LayerNorm), ("none", nn.Identity)])
def test_the_final_norm_is_the_one_asked_for(kind: Norm, cls: type[nn.Module]) -> None:
    assert type(make_norm(kind, 8)) is cls
    model = TransformerConfig(d_model=8, final_norm=kind).build(VOCAB)
    assert type(model.norm) is cls
    x_D = 3 * torch.randn(8) + 1
    expected = {"rms": x_D / x_D.square().mean().sqrt(), "none": x_D}
    expected["layer"] = (x_D - x_D.mean()) / x_D.var(correction=0).sqrt()
    close(model.norm(x_D), expected[kind], 1e-4)


def test_defaults_of_the_final_norm() -> None:
    assert {cls.name: cls().final_norm for cls in ALL} == {
        "lstm": "none",
        "lstm_block": "rms",
        "transformer": "rms",
        "moe": "rms",
        "encoder": "rms",
    }


@pytest.mark.parametrize("d_model", [32, 512])
def test_the_head_starts_with_logits_of_unit_order_at_any_width(d_model: int) -> None:
    model = TransformerConfig(d_model=d_model, num_blocks=1).build(500)
    assert model.head.bias is None
    assert model.head.weight.std().item() == pytest.approx(d_model**-0.5, rel=0.05)
    logits_BLV = model(torch.randint(500, (4, 16)), Context())
    assert logits_BLV.std().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    ("cls", "settings", "field"),
    [
        *((cls, {"num_blocks": 0}, "num_blocks") for cls in ALL),
        *((cls, {"dropout": 1.0}, "dropout") for cls in ALL),
        (LSTMConfig, {"dropout": -0.1}, "dropout"),
        (LSTMConfig, {"dropout": float("nan")}, "dropout"),
        (LSTMConfig, {"d_model": 0}, "d_model"),
        (LSTMBlockConfig, {"d_inner": -1}, "d_inner"),
        (TransformerConfig, {"d_inner": -1}, "d_inner"),
        (TransformerConfig, {"d_model": 30, "num_heads": 4}, "d_model"),
        (EncoderConfig, {"d_model": 126}, "d_model"),
        (MoEConfig, {"d_model": 126}, "d_model"),
        (TransformerConfig, {"d_model": 20, "num_heads": 4}, "d_model"),  # heads of dimension 5 cannot turn in pairs
        (TransformerConfig, {"num_heads": 0}, "heads"),
        (MoEConfig, {"top_k": 9}, "top_k"),
        (MoEConfig, {"top_k": 3, "num_experts": 2}, "top_k"),
        (MoEConfig, {"top_k": 0}, "top_k"),
        (MoEConfig, {"balance": -0.01}, "balance"),
        (MoEConfig, {"balance": float("nan")}, "balance"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(
    cls: type[ModelConfig], settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError) as caught:
        cls(**settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{cls.name}: ") and field in message


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (LSTMConfig, {"num_blocks": 1, "dropout": 0.99, "d_model": 1}),
        (TransformerConfig, {"d_model": 8, "num_heads": 4}),
        (MoEConfig, {"d_model": 8, "top_k": 3, "num_experts": 3, "balance": 0.0}),
        (MoEConfig, {"d_model": 8, "top_k": 1, "num_experts": 1}),
    ],
)
def test_the_settings_next_to_them_are_not(cls: type[ModelConfig], settings: dict[str, Any]) -> None:
    logits_BLV = cls(**settings).build(VOCAB)(torch.randint(VOCAB, (2, 3)), Context())
    assert logits_BLV.shape == (2, 3, VOCAB)
