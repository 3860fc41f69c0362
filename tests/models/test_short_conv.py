"""A short convolution in front of any model's layers: where it stands, how far it reaches, and what stays as ever."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.protocols import find_protocol, matched, preset_run
from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.layers.canon import Convolved
from chomsky_ladder.models.layers.feed_forward import SwiGLU
from chomsky_ladder.models.layers.residual import Layer, Residual
from chomsky_ladder.models.xlstm import XLSTMConfig
from support.around_layers import FORMS, SHAPES
from support.cases import full

VOCAB, WIDTH = 7, 8


@dataclass(frozen=True, kw_only=True)
class EachAlone(ModelConfig):
    """Feed-forwards alone: no position sees another."""

    name, family, year, paper = "each_alone", "none", 2026, "none"
    num_blocks: int = 1
    layers: int = 2

    def block(self, layer: int) -> Block:
        return Residual(self.d_model, [SwiGLU(self.d_model, 16) for _ in range(self.layers)])


def made(config: ModelConfig) -> Any:
    torch.manual_seed(0)
    return config.build(VOCAB).double()


def reached(config: ModelConfig) -> list[int]:
    """Return how far back lie the positions that the last one sees."""
    model, x_BL = made(config), torch.zeros(1, 12, dtype=torch.int64)
    last = model(x_BL)[0, -1]
    others = [x_BL.index_fill(1, torch.tensor(11 - back), 1) for back in range(12)]
    return [back for back, other in enumerate(others) if not torch.equal(model(other)[0, -1], last)]


@pytest.mark.parametrize(
    ("settings", "back"),
    [
        ({}, 0),
        ({"short_conv": 4, "conv_places": "A"}, 3),
        ({"short_conv": 4, "conv_places": "C"}, 3),
        ({"short_conv": 3}, 4),
        ({"short_conv": 2, "conv_places": "A", "num_blocks": 2}, 2),
    ],
)
def test_a_model_of_feed_forwards_sees_as_far_as_its_convolutions_reach(settings: dict[str, Any], back: int) -> None:
    assert reached(EachAlone(d_model=WIDTH, **settings)) == list(range(back + 1))


def test_a_layer_reads_its_input_plus_a_weighted_sum_of_the_last_inputs() -> None:
    class Same(Layer):
        def forward(self, x_BLD: torch.Tensor, ctx: Context) -> torch.Tensor:
            return x_BLD

    layer, x_BLD = Convolved(Same(), 3, width=2), torch.randn(2, 5, 3)
    before_BLD = torch.cat([torch.zeros(2, 1, 3), x_BLD[:, :-1]], 1)
    of_before, of_now = layer.convolution.weight.unbind(1)
    torch.testing.assert_close(layer(x_BLD, Context()), x_BLD + of_before * before_BLD + of_now * x_BLD)


@pytest.mark.parametrize("name", SHAPES)
def test_all_else_starts_as_without(name: str) -> None:
    usual = replace(find_model(name).tiny(), **SHAPES[name])
    without, with_one = (dict(made(config).named_parameters()) for config in (usual, replace(usual, short_conv=4)))
    own = {key.replace(".inner", ""): value for key, value in with_one.items() if ".convolution.weight" not in key}
    own |= {key: with_one[key] for key in with_one.keys() & without.keys()}
    assert own.keys() == without.keys() and len(with_one) > len(own)
    assert all(torch.equal(own[key], without[key]) for key in without)


@pytest.mark.parametrize("name", SHAPES)
def test_its_forms_agree(name: str) -> None:
    for form in FORMS:
        form(replace(find_model(name).tiny(), **SHAPES[name], short_conv=4))


@pytest.mark.parametrize("name", [full(name) for name in sorted(all_models())])
def test_every_model_conforms_with_one(name: str) -> None:
    config = find_model(name).tiny()
    if not config.convolves:
        pytest.skip("short_conv stands in front of no block of it")
    found = check(replace(config, **SHAPES.get(name, {}), short_conv=4))
    assert {outcome.check: outcome.reason for outcome in found if outcome.verdict == "FAIL"} == {}


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("lstm", {"short_conv": 1}, "short_conv is 0, or 2 to 64, not 1"),
        ("lstm", {"conv_places": "A"}, "conv_places=A needs a short_conv"),
        ("encoder_decoder", {"short_conv": 4}, "encoder_decoder: short_conv stands in front of no block of it"),
        ("mamba", {"short_conv": 4, "conv_places": "C"}, "no block has a feed-forward, whose place C is"),
    ],
)
def test_what_cannot_be_is_refused(name: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(find_model(name).tiny(), **settings).build(VOCAB)


def test_a_place_that_no_block_has_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "mqar", "mamba", "--model.short-conv", "4", "--model.conv-places", "C", "--train.steps", "1"]
    assert main(words) == 2
    assert "ladder: conv_places=C: no block has a feed-forward" in capsys.readouterr().err


def test_a_climber_is_as_wide_with_it_as_without() -> None:
    protocol, usual = find_protocol("climb-v1"), preset_run("mqar", "gla", protocol="climb-v1").model
    assert matched(replace(usual, short_conv=4), protocol) == replace(usual, short_conv=4)


def test_an_mlstm_without_its_convolution_has_a_factor_on_each_channel() -> None:
    weights = dict(XLSTMConfig(d_model=WIDTH, num_blocks=1, ratio="1:0", conv_width=1).block(0).named_parameters())
    assert weights["parts.1.conv.weight"].shape == (64, 1)
    with pytest.raises(ValueError, match="conv_width is the mLSTM's, of which ratio=0:1 has none"):
        XLSTMConfig(ratio="0:1", conv_width=1)
