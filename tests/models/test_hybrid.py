"""Hybrids: which architecture lends which block, what they share, what a member has alone, published ones, refusals."""

from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.config.protocols import grid, identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.config.theory import verdict
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.backbone import Backbone, count_parameters
from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig
from chomsky_ladder.models.hybrid import PUBLISHED, HybridConfig
from chomsky_ladder.models.kda import KDAConfig, KimiDelta
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.lstm import LSTMBlock
from chomsky_ladder.models.lstm_block import LSTMLayer
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.models.xlstm import MLSTM, SLSTM
from chomsky_ladder.tasks.parity import Parity
from support.cases import full

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


SIGNED = "kda: eigenvalues=signed, expand_v=2; transformer: positions=none"


def test_members_have_settings_of_their_own() -> None:
    config = tiny("kda,transformer", 4, settings=SIGNED)
    kda = KDAConfig(d_model=16, num_heads=2, num_blocks=2, eigenvalues="signed", expand_v=2)
    transformer = TransformerConfig(d_model=16, num_heads=2, num_blocks=2, positions="none")
    assert config.members == {"kda": kda, "transformer": transformer}
    parts = [kda.block(0), transformer.block(0), kda.block(1), transformer.block(1)]
    ends = Backbone(replace(transformer, num_blocks=1), VOCAB)
    alone = count_parameters(ends) - count_parameters(ends.blocks)
    assert count_parameters(config.build(VOCAB)) == alone + sum(map(count_parameters, parts))
    assert tiny("xlstm,lstm", 2, settings="xlstm: ratio=0:1").members["xlstm"].ratio == "0:1"
    assert tiny("kda,lstm", 2, settings="kda: num_heads=4").members["kda"].num_heads == 4


@pytest.mark.parametrize(
    "written",
    [
        SIGNED,
        " transformer :positions = none;kda:expand-v=2 ,eigenvalues=signed; ",
        "kda: d_inner=0, expand_v=2, eigenvalues=signed; transformer: positions=none, norm=rms",
    ],
)
def test_equal_settings_are_one_run(written: str) -> None:
    """Order, blanks and written-out defaults do not matter."""
    runs = [Run(task=Parity(), model=tiny("kda,transformer", 2, settings=text)) for text in (SIGNED, written)]
    assert runs[0].model == runs[1].model and runs[0].run_id == runs[1].run_id
    assert Run.from_plain(runs[1].plain()) == runs[0]
    assert runs[1].model.settings == SIGNED


def test_no_settings_are_the_hybrid_as_it_was() -> None:
    run = Run(task=Parity(), model=HybridConfig())
    assert "settings" not in run.identity()["model"] and HybridConfig(settings=" ; ") == HybridConfig()
    assert run.run_id == "parity-hybrid-s0-ce8c76304c"


def test_a_line_and_a_script_make_the_same_run_and_a_record_names_it() -> None:
    words = ["parity", "hybrid", "--protocol", "quick", "--model.pattern", "kda,transformer", "--model.settings"]
    typed, _ = parse_run([*words, SIGNED])
    changes = {"model.pattern": "kda,transformer", "model.settings": SIGNED}
    (scripted,) = grid("parity", "hybrid", protocol="quick", overrides=changes, seeds=1)
    assert typed == scripted
    assert identity_of(typed).settings == changes


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_hybrids_are_their_pattern_and_settings(name: str) -> None:
    pattern, settings = PUBLISHED[name]
    blocks = len(pattern.split(","))
    one, two = (
        HybridConfig(pattern=written, settings=own, num_blocks=blocks)
        for written, own in ((name, ""), (pattern, settings))
    )
    assert one.members == two.members and one.turns == two.turns and two.settings == settings


def test_what_published_hybrids_are() -> None:
    """Their names are in the identity of runs: none may come to mean another thing."""
    own = {name: HybridConfig(pattern=name, num_blocks=8) for name in PUBLISHED}
    delta, none = ["gated_delta_net"] * 3 + ["transformer"], {"positions": "none"}
    said = {
        "kimi_linear": (["kda"] * 3 + ["transformer"], {}, none),
        "qwen3_next": (delta, {"expand_v": 2}, {"output_gate": "sigmoid"}),
        "olmo_hybrid": (delta, {"expand_v": 2, "eigenvalues": "signed"}, none),
        "samba": (["mamba", "sliding_window"], {}, {}),
        "jamba": (["mamba"] * 4 + ["transformer"] + ["mamba"] * 3, {}, none),
    }
    assert set(said) == set(own)
    for name, (turns, *changes) in said.items():
        assert own[name].turns[: len(turns)] == turns
        for member, other in zip(dict.fromkeys(turns), changes, strict=True):
            found = own[name].members[member]
            assert found == type(found)(num_blocks=found.num_blocks, **other)


def test_settings_stand_above_those_that_a_name_brings() -> None:
    config = HybridConfig(pattern="olmo_hybrid", num_blocks=4, settings="gated_delta_net: eigenvalues=positive")
    assert config.settings == "gated_delta_net: eigenvalues=positive", "a default, but not of this name"
    assert config.members["gated_delta_net"] == GatedDeltaNetConfig(num_blocks=3, expand_v=2)
    assert config.members["transformer"].positions == "none"
    assert HybridConfig(pattern="olmo_hybrid", num_blocks=4, settings="gated_delta_net: expand_v=2").settings == ""


def test_theory_and_growth_are_those_of_the_members_settings() -> None:
    plain, signed = (tiny("kda,transformer", 2, settings=text) for text in ("", SIGNED))
    assert (plain.transition, signed.transition) == ("attention + generalised delta", "attention + reflection")
    assert verdict(plain.transition, "parity").word == "open" and verdict(signed.transition, "parity").word == "can"
    narrow = tiny("lstm,transformer", 2, settings="transformer: window=4")
    assert (narrow.state_growth, narrow.cost, narrow.transition) == ("constant", "linear", "lstm + window")
    learnt = tiny("lstm,transformer", 2, settings="transformer: positions=learnt, max_length=9")
    assert learnt.longest_input == 9 and plain.longest_input is None
    with pytest.raises(ValueError, match="hybrid takes at most 9 positions"):
        Run(task=Parity(), model=learnt)


@pytest.mark.full
@pytest.mark.parametrize(
    ("pattern", "num_blocks", "settings"),
    [
        ("kda,transformer", 2, SIGNED),
        ("qwen3_next", 4, ""),
        *(full(name, len(PUBLISHED[name].pattern.split(",")), "") for name in ("kimi_linear", "olmo_hybrid", "samba")),
    ],
)
def test_hybrids_with_settings_conform(pattern: str, num_blocks: int, settings: str) -> None:
    """Step form, stacking under vmap, causality, padding: all that any model is held to."""
    outcomes = check(tiny(pattern, num_blocks, settings=settings))
    assert [outcome for outcome in outcomes if outcome.verdict == "FAIL"] == []
    assert sum(outcome.verdict == "ok" for outcome in outcomes) > 10


def test_the_layers_are_those_of_the_settings() -> None:
    kda, transformer = tiny("kda,transformer", 2, settings=SIGNED).blocks()
    assert isinstance(kda.layers[0], KimiDelta) and kda.layers[0].largest_beta == 2
    assert kda.layers[0].norm.weight.shape == (16,) and transformer.layers[0].positions == "none"


@dataclass(frozen=True, kw_only=True)
class ManyKindsConfig(OffsetConfig):
    name = "many_kinds"

    share: float = 0.5
    on: bool = False
    order: Literal[1, 2] = 1
    widths: tuple[int, ...] = ()
    words: str = ""


def test_a_value_is_read_as_what_the_setting_holds() -> None:
    register(ManyKindsConfig)
    text = "many_kinds: share=1, on=true, order=2, widths=[3, 4], words=a,b:c"
    config = tiny("lstm,many_kinds", 2, settings=text)
    member = config.members["many_kinds"]
    assert (member.share, member.on, member.order, member.widths, member.words) == (1.0, True, 2, (3, 4), "a,b:c")
    assert config.settings == "many_kinds: share=1.0, on=true, order=2, widths=[3, 4], words=a,b:c"
    assert replace(config) == config


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
        ({"settings": "transformer"}, "hybrid: settings: 'transformer' is no MEMBER: SETTING=VALUE"),
        ({"settings": "transfomer: norm=rms"}, "'transfomer' is no member; did you mean transformer?"),
        ({"settings": "kda: expand_v=2"}, "'kda' is no member; there are lstm_block, transformer"),
        ({"settings": "transformer: norm=layer; transformer: norm=rms"}, "transformer stands there twice"),
        ({"settings": "transformer: norm=layer, norm=rms"}, "transformer.norm stands there twice"),
        ({"settings": "transformer: position=none"}, "no setting 'position'; did you mean positions?"),
        ({"settings": "transformer: positions"}, "'positions' of transformer is no SETTING=VALUE"),
        ({"settings": "transformer: positions=nope"}, "transformer.positions cannot be 'nope'; did you mean rope?"),
        ({"settings": "transformer: window=few"}, "transformer.window takes a whole number, not 'few'"),
        ({"settings": "transformer: window=true"}, "transformer.window takes a whole number, not 'true'"),
        ({"settings": "transformer: window=1.5"}, "transformer.window takes a whole number, not '1.5'"),
        ({"settings": "transformer: window=-1"}, "transformer: window must not be negative"),
        ({"settings": "transformer: d_model=8"}, "d_model is that of the whole stack, not of transformer alone"),
        ({"pattern": "kimi_liner"}, "names no model 'kimi_liner'; there are .*; and as a whole kimi_linear"),
        ({"pattern": "kimi_linear"}, "num_blocks=2 leaves no block to transformer; the pattern has 4"),
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
