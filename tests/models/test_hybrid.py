"""Hybrids: which architecture lends which block, what they share, capabilities, common modules, refused patterns."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.hybrid import HybridConfig
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.lstm import LSTMBlock
from chomsky_ladder.models.lstm_block import LSTMLayer
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.models.xlstm import MLSTM, SLSTM

torch.set_num_threads(1)

VOCAB = 11


def tiny(pattern: str, num_blocks: int, **changes: object) -> HybridConfig:
    return HybridConfig(d_model=16, num_heads=2, num_blocks=num_blocks, pattern=pattern, **changes)


def first_layers(config: HybridConfig) -> list[type]:
    return [type(block.layers[0]) if hasattr(block, "layers") else type(block) for block in config.blocks()]


def test_the_pattern_repeats_and_members_count_their_own_blocks() -> None:
    expected = [MLSTM, Attention, SLSTM, Attention, MLSTM]
    assert first_layers(tiny("xlstm,transformer", 5)) == expected
    assert first_layers(tiny(" lstm , lstm_block", 3)) == [LSTMBlock, LSTMLayer, LSTMBlock]
    assert first_layers(tiny("lstm,transformer", 1)) == [LSTMBlock]


def test_a_pattern_of_one_is_that_architecture() -> None:
    torch.manual_seed(1)
    hybrid = tiny("transformer", 3, dropout=0.25).build(VOCAB)
    torch.manual_seed(1)
    plain = TransformerConfig(d_model=16, num_heads=2, num_blocks=3, dropout=0.25).build(VOCAB)
    assert hybrid.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert torch.equal(hybrid.state_dict()[name], value), name
    assert all(block.dropout == 0.25 for block in hybrid.blocks)


def test_shared_settings_reach_the_members_that_have_them() -> None:
    members = tiny("lstm,transformer", 6, dropout=0.1).members
    assert {name: member.num_blocks for name, member in members.items()} == {"lstm": 3, "transformer": 3}
    assert all(member.d_model == 16 and member.dropout == 0.1 for member in members.values())
    assert members["transformer"].num_heads == 2


def test_capabilities_are_those_of_all_members() -> None:
    recurrent, mixed = tiny("lstm,lstm_block", 2), tiny("lstm,transformer", 2)
    for config, growth, cost in ((recurrent, "constant", "linear"), (mixed, "length", "quadratic")):
        assert config.stepwise and config.stackable
        assert (config.state_growth, config.cost) == (growth, cost)


class Offset(Block):
    """Adds the common vector, and counts what it was called with."""

    def __init__(self, layer: int, width: int) -> None:
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.randn(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        ctx.add_metric("layer", torch.tensor(float(self.layer)))
        return x_BLD + self.scale * ctx.common.weight

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, 1, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.forward(x_BD, ctx), state + 1


@dataclass(frozen=True, kw_only=True)
class OffsetConfig(ModelConfig):
    name, family, year, paper = "offset", "test", 2024, "none"
    stackable = False

    def block(self, layer: int) -> Block:
        return Offset(layer, self.d_model)

    def common_module(self) -> nn.Module:
        return nn.LayerNorm(self.d_model)


@dataclass(frozen=True, kw_only=True)
class OwnModelConfig(OffsetConfig):
    name = "own_model"

    def build(self, vocab_size: int) -> Backbone:
        return Backbone(self, vocab_size)


@dataclass(frozen=True, kw_only=True)
class SeesAllConfig(OffsetConfig):
    name, sees = "sees_all", "all"


def test_a_common_module_is_found_by_its_own_members_blocks() -> None:
    register(OffsetConfig)
    config = tiny("offset,lstm_block", 4)
    assert not config.stackable
    model = config.build(VOCAB).double()
    nn.init.normal_(model.common["offset"].weight)
    tokens_BL = torch.randint(VOCAB, (3, 7))
    ctx = Context()
    logits_BLV = model(tokens_BL, ctx)
    assert [float(layer) for layer in ctx.metrics["layer"]] == [0.0, 1.0], "its blocks report to the pass they are in"

    x_BLD = model.embedding(tokens_BL)
    for number, block in enumerate(model.blocks):
        if number % 2 == 0:
            x_BLD = x_BLD + block.block.scale * model.common["offset"].weight
        else:
            x_BLD = block(x_BLD, Context())
    torch.testing.assert_close(logits_BLV, model.head(model.norm(x_BLD)))

    state = model.init_state(3, max_length=7, device=torch.device("cpu"), dtype=torch.float64)
    extended_BLV, after = model.extend(tokens_BL, state, Context())
    torch.testing.assert_close(extended_BLV, logits_BLV)
    assert bool((after[0] == 7).all())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pattern": "mmba"}, "hybrid: pattern 'mmba' names no model 'mmba'; there are .*lstm_block.*transformer"),
        ({"pattern": ""}, "hybrid: pattern '' names no model ''"),
        ({"pattern": "lstm,,lstm"}, "names no model ''"),
        ({"pattern": "encoder"}, "encoder sees more than the past; what can stand there: "),
        ({"pattern": "sees_all"}, "sees_all sees more than the past"),
        ({"pattern": "lstm,own_model"}, "own_model is no stack of blocks"),
        ({"pattern": "hybrid,lstm"}, "hybrid is a pattern itself"),
        ({"pattern": "lstm,lstm,transformer"}, "num_blocks=2 leaves no block to transformer; the pattern has 3"),
        ({"pattern": "transformer", "num_heads": 3}, "transformer: d_model=128 does not split into 3 heads"),
    ],
)
def test_what_is_refused(changes: dict[str, object], said: str) -> None:
    register(OwnModelConfig)
    register(SeesAllConfig)
    with pytest.raises(ValueError, match=said) as caught:
        HybridConfig(**changes)
    assert "\n" not in str(caught.value)
    _, _, offered = str(caught.value).partition("there")
    assert not {"encoder", "own_model", "sees_all", "hybrid"} & set(offered.replace(",", "").split())
