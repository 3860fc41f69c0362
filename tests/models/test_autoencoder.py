"""The autoencoder against its equations in a loop, what may reach an answer, its members, and what is refused."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.config.protocols import grid, identity_of
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.config.theory import verdict
from chomsky_ladder.harness.conform.model import the_future_never_changes_the_past
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models import _member_settings as member_settings
from chomsky_ladder.models.autoencoder import AutoencoderConfig, Decoder
from chomsky_ladder.models.backbone import Backbone, count_parameters
from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.hybrid import HybridConfig
from chomsky_ladder.models.kda import KDAConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.compression import Compression
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.repetition import Repetition
from support.cases import LOOPS, full, some
from support.layers import close, lively
from support.run_and_refusal import refusal

torch.set_num_threads(1)

VOCAB, WIDTH = 11, 12
DECODERS: tuple[Decoder, ...] = ("plain", "residual")
REFUSED = ("autoencoder", "xlstm_large")
MEMBERS = sorted({*all_models()} - {*REFUSED})
SHOWN = ("lstm", "transformer", "mamba", "encoder", "moe", "encoder_decoder", "hybrid", "looped_transformer")
"""A member of each kind: gates, the past, a scan, the whole prompt, a loss, a prompt of its own, borrowed blocks, and a
single block.
"""


def tiny(member: str = "lstm", **changes: Any) -> AutoencoderConfig:
    return AutoencoderConfig(**({"d_model": WIDTH, "num_heads": 2, "member": member} | changes))


def make(member: str = "lstm", **changes: Any) -> Any:
    return lively(tiny(member, **changes).build(VOCAB))


def as_tiny(member: str, **changes: Any) -> AutoencoderConfig:
    """Return a config whose member is as small as in its own conformance checks."""
    small = all_models()[member][0].tiny()
    of_stack = {field.name for field in fields(ModelConfig)} | {"num_heads"}
    own = {field.name: getattr(small, field.name) for field in fields(small) if field.name not in of_stack}
    settings = member_settings.written({member: own}, {member: type(small)}, usual={})
    heads = getattr(small, "num_heads", 2)
    return tiny(member, d_model=small.d_model, num_heads=heads, settings=settings, **changes)


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(VOCAB, (rows, length))


def rms(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return x / (x.square().mean() + eps) ** 0.5 * norm.weight


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def answer(h_D: Tensor, slot: int, model: Backbone) -> Tensor:
    """The logits of one answer, by the equations."""
    half = torch.arange(0, WIDTH, 2).double() / WIDTH
    angle = slot / 10_000**half
    z_D = h_D + torch.stack([angle.sin(), angle.cos()], 1).flatten()
    decoder = model.blocks[-1].decoder
    if hasattr(decoder, "parts"):
        norm, mlp = decoder.parts
        inner = gelu(mlp.inner.weight @ rms(z_D, norm) + mlp.inner.bias)
        y_D = z_D + mlp.out.weight @ inner + mlp.out.bias
    else:
        y_D = z_D
        for norm, layer in zip(decoder.norms, decoder.layers, strict=True):
            y_D = gelu(layer.weight @ rms(y_D, norm) + layer.bias)
    assert isinstance(model.norm, nn.RMSNorm)
    return model.head.weight @ rms(y_D, model.norm)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("member", [LSTMConfig, EncoderConfig, full(TransformerConfig), full(MambaConfig)])
@pytest.mark.parametrize("length", [1, 2, 17, full(64), 65, full(130)])
def test_it_equals_its_equations_on_the_prompts_alone(length: int, member: type[ModelConfig], decoder: Decoder) -> None:
    """Outputs and gradients; the member, a model of its own, is given each row's prompt and nothing else."""
    model = make(member.name, decoder=decoder)
    own = {"num_heads": 2} if member is not LSTMConfig and member is not MambaConfig else {}
    alone = member(d_model=WIDTH, num_blocks=2, **own).build(VOCAB).double()
    shared = [(model.embedding, alone.embedding)]
    shared += [(ours.block, theirs) for ours, theirs in zip(model.blocks[:-1], alone.blocks, strict=True)]
    for ours, theirs in shared:
        theirs.load_state_dict(ours.state_dict())
    tokens_BL, prompt_B = tokens(3, length), torch.tensor([length, 1, (length + 1) // 2])
    logits_BLV = model(tokens_BL, Context(prompt_B=prompt_B))
    expected, positions = [], []
    for row, prompt in enumerate(prompt_B.tolist()):
        ctx = Context(taps=frozenset({2}))
        alone(tokens_BL[row : row + 1, :prompt], ctx)
        for position in range(length):
            stream_D = ctx.tapped[2][0, min(position, prompt - 1)]
            expected.append(answer(stream_D, max(0, position - prompt + 1), model))
            positions.append((row, position))
    expected_BLV = torch.stack(expected).view_as(logits_BLV)
    close(logits_BLV, expected_BLV)
    weights_BLV = torch.randn_like(logits_BLV)
    names = {name for name, _ in model.named_parameters()}
    of_read_out = [
        parameter for name, parameter in model.named_parameters() if name.startswith(("blocks.2", "head", "norm"))
    ]
    parameters = [parameter for ours, _ in shared for parameter in ours.parameters()]
    theirs = [parameter for _, theirs in shared for parameter in theirs.parameters()]
    assert len(parameters) + len(of_read_out) == len(names)
    found = torch.autograd.grad((logits_BLV * weights_BLV).sum(), [*parameters, *of_read_out])
    wanted = torch.autograd.grad((expected_BLV * weights_BLV).sum(), [*theirs, *of_read_out])
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 1e-9)


def losses(ctx: Context) -> list[Tensor]:
    return [value for values in (*ctx.losses.values(), *ctx.metrics.values()) for value in values]


@pytest.mark.parametrize("member", some(MEMBERS, always=SHOWN))
def test_what_stands_at_answer_slots_reaches_nothing(member: str) -> None:
    """Neither an answer nor a loss of the member's."""
    model, prompt_B = lively(as_tiny(member).build(VOCAB)), torch.tensor([9, 4, 1])
    valid_BL = torch.arange(16) < torch.tensor([[16], [9], [6]])
    first_BL = tokens(3, 16)
    behind_BL = torch.arange(16) >= prompt_B[:, None]
    other_BL = torch.where(behind_BL, (first_BL + 3) % VOCAB, first_BL)
    one, two = (Context(prompt_B=prompt_B, valid_BL=valid_BL) for _ in range(2))
    close(model(other_BL, two), model(first_BL, one), 1e-13)
    for found, expected in zip(losses(two), losses(one), strict=True):
        close(found, expected, 1e-13)
    assert member != "moe" or losses(one)
    changed_BL = first_BL.clone()
    changed_BL[0, 8] = (changed_BL[0, 8] + 1) % VOCAB
    moved_BL = (model(changed_BL, replace(one)) - model(first_BL, replace(one))).abs().amax(-1) > 1e-9
    assert bool(moved_BL[0, 8:].all()) and not bool(moved_BL[1:].any())


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("member", ["lstm", "transformer"])
def test_an_answer_has_the_members_stream_at_the_prompts_end_and_nothing_else(member: str, decoder: Decoder) -> None:
    """The stream that the member hands over is replaced at every other position, or there alone."""
    model, prompt_B = make(member, decoder=decoder), torch.tensor([7, 1, 12])
    tokens_BL, other_BLD = tokens(3, 12), torch.randn(3, 12, WIDTH, dtype=torch.float64)
    end_BL = torch.arange(12) == prompt_B[:, None] - 1
    slot_BL = torch.arange(12) >= prompt_B[:, None] - 1

    def logits(kept_BL: Tensor) -> Tensor:
        edits = {2: lambda x_BLD: torch.where(kept_BL[..., None], x_BLD, other_BLD)}
        return model(tokens_BL, Context(prompt_B=prompt_B, edits=edits))

    plain_BLV = model(tokens_BL, Context(prompt_B=prompt_B))
    assert torch.equal(logits(end_BL)[slot_BL], plain_BLV[slot_BL])
    assert bool((logits(end_BL) != plain_BLV).any(-1)[~slot_BL].all()), "inside the prompt it is one's own position"
    assert bool((logits(~end_BL) != plain_BLV).any(-1)[slot_BL].all())
    assert torch.equal(logits(~end_BL)[~slot_BL], plain_BLV[~slot_BL])


def test_answers_of_one_vector_differ_by_their_places() -> None:
    logits_BLV = make()(tokens(1, 9), Context(prompt_B=torch.tensor([3])))
    assert len({tuple(row.tolist()) for row in logits_BLV[0, 2:]}) == 7


def test_inside_the_prompt_stands_the_first_answer_were_it_read_there() -> None:
    model, tokens_BL = make(), tokens(2, 12)
    whole_BLV = model(tokens_BL, Context(prompt_B=torch.tensor([12, 9])))
    for end in range(1, 9):
        close(model(tokens_BL[:, :end])[:, -1], whole_BLV[:, end - 1])


def test_the_member_starts_as_it_does_alone() -> None:
    torch.manual_seed(1)
    ours = AutoencoderConfig(member="transformer", d_model=16).build(VOCAB)
    torch.manual_seed(1)
    alone = TransformerConfig(d_model=16, num_blocks=2).build(VOCAB)
    for one, other in zip(ours.blocks[:2], alone.blocks, strict=True):
        for name, value in other.state_dict().items():
            assert torch.equal(one.block.state_dict()[name], value), name


def test_sizes_by_hand() -> None:
    """The published MLP does not widen; the residual one is four times as wide inside."""
    member, norm = count_parameters(LSTMConfig(final_norm="rms").build(16)), 128
    plain = 2 * (norm + 128 * 128 + 128)
    residual = norm + 2 * 4 * 128 * 128 + 5 * 128
    for decoder, more in (("plain", plain), ("residual", residual)):
        assert count_parameters(AutoencoderConfig(decoder=decoder).build(16)) == member + more


def test_dropout_is_the_contexts_and_reaches_the_read_out() -> None:
    class Masks:
        def uniform(self, shape: Any) -> Tensor:
            return torch.zeros(tuple(shape), dtype=torch.float64)

    for decoder in DECODERS:
        model = make(decoder=decoder, dropout=0.5)
        ctx = Context(masks=Masks(), taps=frozenset({3}))
        model(tokens(2, 5), ctx)
        assert bool((ctx.tapped[3] == 0).all()) == (decoder == "plain")


class Offset(Block):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        common: Any = ctx.common
        return x_BLD + self.scale * common.weight


@dataclass(frozen=True, kw_only=True)
class CommonConfig(ModelConfig):
    name, family, year, paper = "with_common", "test", 2024, "none"
    stepwise, stackable, cost = False, False, "n log n"

    def block(self, layer: int) -> Block:
        return Offset(self.d_model)

    def common_module(self) -> nn.Module:
        return nn.LayerNorm(self.d_model)

    def unworkable(self) -> str:
        return "it needs more"


def test_a_member_keeps_what_it_declares() -> None:
    register(CommonConfig)
    config = tiny("with_common")
    assert (config.stackable, config.cost, config.unworkable()) == (False, "n log n", "it needs more")
    model = lively(config.build(VOCAB))
    assert model.common.weight.shape == (WIDTH,)
    x_BLD = model.embedding(tokens(2, 5))
    ctx = Context(taps=frozenset({0, 2}))
    model(tokens(2, 5), ctx)
    scales_D = sum(block.block.scale for block in model.blocks[:2])
    close(ctx.tapped[2], ctx.tapped[0] + scales_D * model.common.weight)
    assert ctx.tapped[0].shape == x_BLD.shape
    moe = tiny("moe")
    assert moe.idle_parameters == moe.encoder.idle_parameters > 0 and tiny("transformer").state_growth == "length"
    learnt = tiny("transformer", settings="transformer: positions=learnt, max_length=9")
    assert learnt.longest_input == 9 and tiny().longest_input is None
    with pytest.raises(ValueError, match="autoencoder takes at most 9 positions"):
        Run(task=Compression(), model=learnt)


def test_theory_knows_that_a_vector_holds_no_string_and_else_nothing() -> None:
    for member in ("lstm", "transformer"):
        words = {demand: verdict(tiny(member).transition, demand).word for demand in ("copying", "reversal", "parity")}
        assert words == {"copying": "cannot", "reversal": "cannot", "parity": "open"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("member", "decoder"),
    [
        ("transformer", "residual"),
        ("encoder", "plain"),
        ("moe", "plain"),
        *(full(name, "plain") for name in MEMBERS if name not in ("lstm", "encoder", "moe", *LOOPS)),
    ],
)
def test_members_conform(member: str, decoder: Decoder) -> None:
    """Stacking under vmap, padding, precision: all that any model is held to."""
    outcomes = check(as_tiny(member, decoder=decoder))
    assert [outcome for outcome in outcomes if outcome.verdict == "FAIL"] == []
    assert sum(outcome.verdict == "ok" for outcome in outcomes) > 10


@dataclass(frozen=True, kw_only=True)
class LooksBehindConfig(LSTMConfig):
    name, sees, stepwise = "looks_behind", "prompt_alone", False


def test_a_model_that_says_so_and_sees_more_does_not_conform() -> None:
    with pytest.raises(AssertionError, match="behind the prompt after a change there"):
        the_future_never_changes_the_past(LooksBehindConfig.tiny())


SIGNED = "kda: eigenvalues=signed, expand_v=2"


def test_a_line_and_a_script_make_the_same_run_and_a_record_names_it() -> None:
    words = ["compression", "autoencoder", "--protocol", "mad", "--model.member", "kda", "--model.settings", SIGNED]
    typed, _ = parse_run(words)
    changes = {"model.member": "kda", "model.settings": SIGNED}
    assert typed in grid("compression", "autoencoder", protocol="mad", overrides=changes, seeds=1)
    assert identity_of(typed).settings == {"protocol.version": 2, **changes}
    assert typed.model.encoder == KDAConfig(d_model=128, num_blocks=2, num_heads=4, eigenvalues="signed", expand_v=2)
    assert Run.from_plain(typed.plain()) == typed


def test_equal_settings_are_one_run() -> None:
    texts = (SIGNED, " kda :expand-v=2 ,eigenvalues=signed; ", "kda: d_inner=0, expand_v=2, eigenvalues=signed")
    runs = [Run(task=Parity(), model=tiny("kda", settings=text)) for text in texts]
    assert len({run.run_id for run in runs}) == 1 and {run.model.settings for run in runs} == {SIGNED}
    assert "settings" not in Run(task=Parity(), model=tiny()).identity()["model"]


def test_a_hybrid_is_a_member_and_the_settings_its_own() -> None:
    config = tiny("hybrid", settings="hybrid: pattern=mamba,transformer, settings=transformer: positions=none")
    assert config.encoder == HybridConfig(
        d_model=WIDTH, num_heads=2, pattern="mamba,transformer", settings="transformer: positions=none"
    )
    assert config.settings == "hybrid: pattern=mamba,transformer, settings=transformer: positions=none"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"member": "mmba"}, "autoencoder: there is no member 'mmba'; there are .*mamba"),
        ({"member": ""}, "autoencoder: there is no member ''"),
        ({"member": "xlstm_large"}, "autoencoder: xlstm_large is no stack of blocks; members may be .*xlstm"),
        ({"member": "autoencoder"}, "autoencoder: autoencoder is a read-out itself; members may be "),
        ({"member": "transformer", "num_heads": 3}, "transformer: d_model=128 does not split into 3 heads"),
        ({"num_blocks": 0}, "autoencoder: num_blocks must be at least 1"),
        ({"settings": "lstm"}, "autoencoder: settings: 'lstm' is no MEMBER: SETTING=VALUE"),
        ({"settings": "kda: expand_v=2"}, "autoencoder: settings: 'kda' is no member; there are lstm"),
        ({"settings": "lstm: forget_bia=1"}, "lstm has no setting 'forget_bia'; did you mean forget_bias?"),
        ({"settings": "lstm: forget_bias=much"}, "lstm.forget_bias takes a number, not 'much'"),
        ({"settings": "lstm: num_blocks=3"}, "num_blocks is that of the whole stack, not of lstm alone"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        AutoencoderConfig(**changes)
    assert "\n" not in str(caught.value)
    _, _, offered = str(caught.value).partition("; ")
    assert not {*REFUSED} & set(offered.replace(",", "").split())


def test_it_is_no_block_of_a_hybrid_and_hears_no_teacher() -> None:
    assert "autoencoder is no stack of blocks" in refusal(lambda: HybridConfig(pattern="autoencoder,lstm"))
    assert "cannot do" in refusal(lambda: Run(task=Compression(decode="teacher"), model=tiny()))


def test_the_strings_of_compression_are_those_of_repetition() -> None:
    batches = [
        task.sample(Draw(seed=3, split="test", rows_B=torch.arange(4)), torch.tensor([31, 3, 63, 55]), 70)
        for task in (Compression(), Repetition(num_symbols=15))
    ]
    for one, other in zip(*batches, strict=True):
        assert torch.equal(one, other)
    assert Compression().floors([63]) == pytest.approx((1 / 15,) * 3)
    run, _ = parse_run(["compression", "autoencoder", "--protocol", "mad"])
    assert (run.task.positions(31), run.train.lengths) == (62, (31, 31)), "31 symbols, the marker, 30 blanks"
