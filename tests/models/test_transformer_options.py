"""The Transformer's settings: masks and biases against a loop over queries, positions by formula, whole layers against
torch.nn.TransformerEncoderLayer, and the conformance of what the settings make of each architecture."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Backend, Context, State
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.layers.attention import Attention, Sees, attend
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.position_bias import FIRE, ALiBi, Bias, Kerple, T5Bias, make_bias
from chomsky_ladder.models.layers.positions import Positioned, Positions, sinusoids, slopes
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.prefix_lm import PrefixLMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.cases import full, some
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
BACKENDS: tuple[Backend, ...] = ("auto", "reference")


def seen_by(here: int, *, sees: Sees, window: int, valid: int, prompt: int, length: int) -> list[int]:
    """The definition: which of `length` positions `here` looks at."""
    seen = {"past": range(here + 1), "prompt": range(max(here + 1, prompt)), "all": range(valid)}[sees]
    return [there for there in range(length) if there in seen and (not window or abs(here - there) < window)]


REACHES = ((0, 1), (3, 2), (0, 17), (3, 17), (40, 65), (0, 130), (40, 130))
"""Windows, none and within and over the blocks of the fast paths, and lengths that are looked at each time."""


def added(bias: Bias | None, head: int, here: int, there: int) -> Tensor:
    """The formulas of the papers, for one pair of positions."""
    apart = abs(here - there)
    if isinstance(bias, ALiBi):
        return torch.tensor(-(2 ** (-8 * (head + 1) / bias.num_heads)) * apart, dtype=torch.float64)
    if isinstance(bias, Kerple):
        return -bias.log_a[head].exp() * (1 + bias.log_b[head].exp() * apart).log()
    if isinstance(bias, FIRE):
        longest = torch.clamp(512 * bias.threshold.abs(), min=here)
        share = (1 + bias.c.abs() * apart).log() / ((1 + bias.c.abs() * longest).log() + 1e-6)
        return bias.out(bias.hidden(share).relu())[head]
    if isinstance(bias, T5Bias):
        half = bias.table.num_embeddings // (2 if bias.both_ways else 1)
        bucket = apart
        if apart >= half // 2:  # the others grow by one factor from bucket to bucket, 128 being the first too far
            factor = (128 / (half // 2)) ** (2 / half)
            bucket = half // 2 + sum(apart >= half // 2 * factor**step * (1 - 1e-9) for step in range(1, half // 2))
        return bias.table.weight[bucket + half * (there > here), head]
    return torch.zeros((), dtype=torch.float64)


def loop(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    sees: Sees,
    window: int,
    bias: Bias | None,
    valid_B: list[int],
    prompt_B: list[int],
) -> Tensor:
    """One query at a time, over what it sees alone; nan where that is nothing."""
    table: dict[tuple[int, int, int], Tensor] = {}
    batch, heads, length, width = q.shape
    rows = []
    for row, head, here in product(range(batch), range(heads), range(length)):
        seen = seen_by(here, sees=sees, window=window, valid=valid_B[row], prompt=prompt_B[row], length=length)
        own = head * k.shape[1] // heads
        scores = k[row, own, seen] @ q[row, head, here] / math.sqrt(width)
        for there in seen:
            if (head, here, there) not in table:
                table[head, here, there] = added(bias, head, here, there)
        if bias is not None and seen:
            scores = scores + torch.stack([table[head, here, there] for there in seen])
        rows.append(torch.softmax(scores, 0) @ v[row, own, seen] if seen else torch.full((width,), math.nan))
    return torch.stack(rows).reshape(q.shape)


@pytest.mark.parametrize(("window", "length"), some(product((0, 1, 3, 16, 40), (1, 2, 17, 65, 130)), always=REACHES))
@pytest.mark.parametrize("sees", ["past", "prompt", "all"])
def test_attention_over_what_may_be_seen_equals_the_loop(sees: Sees, window: int, length: int) -> None:
    hold_to_the_loop("none", (1, 1), sees=sees, window=window, length=length)
    hold_to_the_loop("alibi", (4, 2), sees=sees, window=window, length=length)


BIASES = [
    *((kind, sees) for kind in ("t5", "kerple") for sees in ("past", "prompt", "all")),
    ("fire", "past"),
]


@pytest.mark.parametrize(
    ("window", "length"),
    [(0, 1), (3, 17), *(full(*each) for each in ((0, 17), (16, 70), (0, 2), (3, 65), (40, 170), (0, 140)))],
)
@pytest.mark.parametrize(("kind", "sees"), BIASES)
def test_attention_with_a_learnt_bias_equals_the_loop(kind: Positions, sees: Sees, window: int, length: int) -> None:
    hold_to_the_loop(kind, (2, 1), sees=sees, window=window, length=length)


def hold_to_the_loop(kind: Positions, heads: tuple[int, int], *, sees: Sees, window: int, length: int) -> None:
    """Outputs and gradients, those of the bias too."""
    valid_B, prompt_B = [length, (length + 1) // 2], [(length + 2) // 3, (length + 3) // 4]
    valid_BL = torch.arange(length) < torch.tensor(valid_B)[:, None]
    q, k, v = (torch.randn(2, own, length, 4, dtype=torch.float64) for own in (heads[0], heads[1], heads[1]))
    q, k, v = (x.requires_grad_() for x in (2 * q, k, v))
    bias = make_bias(kind, heads[0], width=4, both_ways=sees != "past")
    if isinstance(bias, FIRE):
        bias.threshold.data.fill_(9 / 512)  # some positions are past it
    inputs = [q, k, v, *(() if bias is None else lively_bias(bias).parameters())]
    expected = loop(q, k, v, sees=sees, window=window, bias=bias, valid_B=valid_B, prompt_B=prompt_B)
    weights = torch.where(valid_BL[:, None, :, None], torch.randn_like(q), 0)

    def of_inputs(y: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((weights * y.nan_to_num()).sum(), inputs, allow_unused=True, materialize_grads=True)

    expected_gradients = of_inputs(expected)
    for backend in BACKENDS:
        ctx = Context(valid_BL=valid_BL, prompt_B=torch.tensor(prompt_B), backend=backend)
        y = attend(q, k, v, sees=sees, window=window, bias=bias, ctx=ctx)
        assert bool(torch.isfinite(y).all())
        close(torch.where(valid_BL[:, None, :, None], y, 0), torch.where(valid_BL[:, None, :, None], expected, 0))
        for one, other in zip(of_inputs(y), expected_gradients, strict=True):
            close(one, other, 1e-10)


def lively_bias(bias: Bias) -> Bias:
    for parameter in bias.double().parameters():
        parameter.data += 0.2 * torch.rand_like(parameter)
    return bias


@pytest.mark.parametrize("window", [0, 5, 20])
@pytest.mark.parametrize("positions", some(["rope", "fire", "t5", "alibi", "kerple"], always=["rope", "fire"]))
def test_cached_steps_and_prefills_equal_the_whole_pass(window: int, positions: Positions) -> None:
    """Through every path: banded, fused and explicit, from an empty cache and from a full one."""
    settings: dict[str, Any] = {"positions": positions, "window": window, "num_kv_heads": 2}
    attention = Attention(16, 4, **settings).double()
    if isinstance(attention.bias, FIRE):
        attention.bias.threshold.data.fill_(100 / 512)
    x_BLD = torch.randn(2, 230, 16, dtype=torch.float64)
    y_BLD = attention(x_BLD, Context(backend="reference"))
    close(attention(x_BLD, Context()), y_BLD)
    for sizes in ([230], [3, 1, 96, 130], [140, 1, 2, 87], [*[1] * 70, 160]):
        state, outputs = start(attention, 2, 240), []
        for part_BLD in x_BLD.split(sizes, dim=1):
            before = [tensor.clone() for tensor in state]
            y_part_BLD, after = attention.extend(part_BLD, state, Context())
            assert all(torch.equal(one, other) for one, other in zip(before, state, strict=True))
            outputs.append(y_part_BLD)
            state = after
        close(torch.cat(outputs, 1), y_BLD)
        assert int(state[1]) == 230


def start(layer: Attention | Positioned, batch: int, max_length: int) -> State:
    return layer.init_state(batch, max_length=max_length, device=torch.device("cpu"), dtype=torch.float64)


@pytest.mark.parametrize("window", [0, 5])
def test_a_gate_multiplies_what_is_read(window: int) -> None:
    gated = Attention(16, 4, window=window, gated=True).double()
    plain = Attention(16, 4, window=window).double()
    plain.query_key_value.weight.data = gated.query_key_value.weight.data
    plain.out = nn.Identity()
    x_BLD = torch.randn(2, 130, 16, dtype=torch.float64)
    expected_BLD = (plain(x_BLD, Context()) / (1 + torch.exp(-x_BLD @ gated.gate.weight.T))) @ gated.out.weight.T
    close(gated(x_BLD, Context()), expected_BLD)
    close(gated.extend(x_BLD, start(gated, 2, 130), Context())[0], expected_BLD)
    assert plain.gate is None and "gate.weight" not in plain.state_dict()


@pytest.mark.parametrize("width", [8, 7])
def test_sinusoids_by_hand(width: int) -> None:
    found = sinusoids(torch.tensor([[0, 1], [5, 4000]]), width, dtype=torch.float64)
    for row, position in ((found[0, 0], 0), (found[0, 1], 1), (found[1, 0], 5), (found[1, 1], 4000)):
        for column, value in enumerate(row.tolist()):
            angle = position / 10_000 ** ((column - column % 2) / width)
            assert value == pytest.approx((math.cos if column % 2 else math.sin)(angle), abs=1e-12)


def test_slopes_of_eight_heads_are_the_published_ones() -> None:
    found = slopes(8, device=torch.device("cpu"), dtype=torch.float64).tolist()
    assert found == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.parametrize("positions", ["sinusoidal", "learnt"])
def test_vectors_are_added_below_the_first_block_alone(positions: str) -> None:
    config = replace(TransformerConfig.tiny(), positions=positions, max_length=9 * (positions == "learnt"))
    model = config.build(VOCAB).double()
    first, second = model.blocks
    assert isinstance(first, Positioned) and not isinstance(second, Positioned)
    vectors_LD = sinusoids(torch.arange(9), 16, dtype=torch.float64)
    if positions == "learnt":
        assert first.learnt.weight.std().item() == pytest.approx(1, rel=0.3)  # as the tokens'
        vectors_LD = first.learnt.weight
    x_BLD = torch.randn(2, 9, 16, dtype=torch.float64)
    expected_BLD = first.block(x_BLD + vectors_LD, Context())
    close(first(x_BLD, Context()), expected_BLD)
    head_BLD, state = first.extend(x_BLD[:, :4], start(first, 2, 9), Context())
    mid_BD, state = first.step(x_BLD[:, 4], state, Context())
    tail_BLD, _ = first.extend(x_BLD[:, 5:], state, Context())
    close(torch.cat([head_BLD, mid_BD[:, None], tail_BLD], 1), expected_BLD)


def test_an_input_longer_than_the_learnt_positions_is_refused() -> None:
    model = replace(TransformerConfig.tiny(), positions="learnt", max_length=9).build(VOCAB)
    for call in (
        lambda: model(torch.zeros(2, 10, dtype=torch.int64), Context()),
        lambda: model.init_state(2, max_length=10, device=torch.device("cpu"), dtype=torch.float32),
    ):
        with pytest.raises(ValueError, match=r"^positions='learnt' has max_length=9 positions, too few for length 10$"):
            call()


def test_without_positions_the_encoder_cannot_tell_an_order() -> None:
    model = replace(EncoderConfig.tiny(), positions="none").build(VOCAB).double()
    tokens_BL, order_L = torch.randint(VOCAB, (2, 9)), torch.randperm(9)
    close(model(tokens_BL[:, order_L], Context()), model(tokens_BL, Context())[:, order_L])


@pytest.mark.parametrize(("place", "kind"), list(product(["pre", "post"], ["relu", "gelu"])))
@pytest.mark.parametrize("cls", [TransformerConfig, EncoderConfig])
def test_a_block_equals_torchs_encoder_layer(cls: type[TransformerConfig], place: str, kind: str) -> None:
    settings: dict[str, Any] = {"norm": "layer", "norm_place": place, "feed_forward": kind, "positions": "none"}
    (block,) = cls(d_model=12, num_blocks=1, num_heads=3, **settings).build(VOCAB).double().blocks
    theirs = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0.0, activation=kind, batch_first=True, norm_first=place == "pre", dtype=torch.float64
    )
    (attention, mlp), norms = block.layers, block.norms
    assert isinstance(mlp, MLP)
    pairs = [
        (theirs.self_attn.in_proj_weight, attention.query_key_value.weight),
        (theirs.self_attn.out_proj.weight, attention.out.weight),
        *zip(theirs.linear1.parameters(), mlp.inner.parameters(), strict=True),
        *zip(theirs.linear2.parameters(), mlp.out.parameters(), strict=True),
        *zip(theirs.norm1.parameters(), norms[0].parameters(), strict=True),
        *zip(theirs.norm2.parameters(), norms[1].parameters(), strict=True),
    ]
    with torch.no_grad():
        for bias in (theirs.self_attn.in_proj_bias, theirs.self_attn.out_proj.bias):
            bias.zero_()
        for norm in norms:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
        for their, our in pairs:
            their.copy_(our)
    x_BLD, length_B = torch.randn(2, 70, 12, dtype=torch.float64), torch.tensor([70, 31])
    valid_BL = torch.arange(70) < length_B[:, None]
    causal_LL = torch.ones(70, 70, dtype=torch.bool).triu(1) if cls is TransformerConfig else None
    expected_BLD = theirs(x_BLD, src_mask=causal_LL, src_key_padding_mask=~valid_BL)
    weights_BLD = torch.where(valid_BL[..., None], torch.randn_like(x_BLD), 0)
    expected = torch.autograd.grad((expected_BLD * weights_BLD).sum(), [their for their, _ in pairs])
    for backend in BACKENDS:
        y_BLD = block(x_BLD, Context(valid_BL=valid_BL, backend=backend))
        close(y_BLD[valid_BL], expected_BLD[valid_BL])
        found = torch.autograd.grad((y_BLD * weights_BLD).sum(), [our for _, our in pairs])
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-10)


@pytest.mark.parametrize("cls", [TransformerConfig, MoEConfig])
def test_nothing_is_scaled_down_behind_a_post_norm(cls: type[TransformerConfig]) -> None:
    for block in cls(d_model=64, num_blocks=8, d_inner=96, norm_place="post").build(VOCAB).blocks:
        mixer, behind = block.layers
        behind_out = behind.out.weight if isinstance(behind.out, nn.Linear) else behind.out
        for weight, fan_in in ((mixer.out.weight, 64), (behind_out, 96)):
            assert 0.98 * fan_in**-0.5 < weight.abs().max() <= fan_in**-0.5 * (1 + 1e-6)


def test_ungated_feed_forwards_are_four_times_as_wide_and_cost_as_much() -> None:
    for kind, inner, weights in (("swiglu", 512, 3 * 512 * 192), ("relu", 768, 2 * 768 * 192)):
        config = TransformerConfig(d_model=192, feed_forward=kind)
        assert config.inner_width == inner
        layer = config.make_feed_forward()
        assert sum(parameter.numel() for parameter in layer.parameters() if parameter.ndim == 2) == weights
    assert TransformerConfig(feed_forward="gelu", d_inner=5).inner_width == 5


@pytest.mark.parametrize(
    ("settings", "bytes_at_20", "growth", "cost"),
    [
        ({}, 2 * 2 * 20 * 16, "length", "quadratic"),
        ({"num_kv_heads": 1}, 2 * 2 * 20 * 8, "length", "quadratic"),
        ({"window": 6, "num_kv_heads": 1}, 2 * 2 * 6 * 8, "constant", "linear"),
        ({"window": 30}, 2 * 2 * 30 * 16, "constant", "linear"),
    ],
)
def test_a_state_is_as_large_as_it_must_be(settings: dict[str, Any], bytes_at_20: int, growth: str, cost: str) -> None:
    config = replace(TransformerConfig.tiny(), **settings)
    state = config.build(VOCAB).init_state(1, max_length=20, device=torch.device("cpu"), dtype=torch.float64)
    assert sum(cache.nbytes for block in state for cache, _ in block[:1]) == 8 * bytes_at_20
    assert (config.state_growth, config.cost) == (growth, cost)
    assert replace(EncoderConfig.tiny(), **settings).cost == "quadratic"


@pytest.mark.parametrize(
    "settings",
    [{}, {"window": 7}, {"positions": "alibi"}, {"norm_place": "post"}]
    + [{"positions": kind} for kind in ("t5", "kerple", "fire")],
)
def test_extreme_inputs_stay_finite(settings: dict[str, Any]) -> None:
    (block,) = TransformerConfig(d_model=16, num_blocks=1, num_heads=2, **settings).build(VOCAB).blocks
    # Torch's fused backward pass takes exp(score - log sum exp) afresh: past 1e9 the rounding of a score overflows it.
    for scale, backend in ((1e-20, "auto"), (1e4, "auto"), (1e4, "reference"), (1e8, "reference")):
        x_BLD = (scale * torch.randn(2, 90, 16)).requires_grad_()
        y_BLD = block(x_BLD, Context(backend=backend))
        (gradient_BLD,) = torch.autograd.grad(y_BLD.sum(), x_BLD)
        assert bool(torch.isfinite(y_BLD).all()) and bool(torch.isfinite(gradient_BLD).all())


@pytest.mark.parametrize(
    "settings",
    [
        {"window": 7},
        {"positions": "learnt", "max_length": 90},
        *({"positions": kind} for kind in ("alibi", "t5", "kerple", "fire")),
    ],
)
def test_models_in_half_precision_agree_with_double(settings: dict[str, Any]) -> None:
    model = TransformerConfig(d_model=16, num_blocks=1, num_heads=2, **settings).build(VOCAB).bfloat16()
    tokens_BL = torch.randint(VOCAB, (2, 90))
    for length in (30, 90):
        found = model(tokens_BL[:, :length], Context())
        expected = model.double()(tokens_BL[:, :length], Context())
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.1)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(
                model.float()(tokens_BL, Context())[:, :length].double(), expected, rtol=0.1, atol=0.1
            )
        model.bfloat16()


@pytest.mark.parametrize(
    ("cls", "settings", "field"),
    [
        (TransformerConfig, {"num_kv_heads": 3}, "num_kv_heads"),
        (TransformerConfig, {"num_kv_heads": -1}, "num_kv_heads"),
        (TransformerConfig, {"num_kv_heads": 8}, "num_kv_heads"),
        (EncoderConfig, {"window": -1}, "window"),
        (TransformerConfig, {"positions": "learnt"}, "max_length"),
        (PrefixLMConfig, {"max_length": 100}, "max_length"),
        (TransformerConfig, {"positions": "alibi", "d_model": 30}, "d_model"),
        (EncoderConfig, {"positions": "fire"}, "positions='fire'"),
        (PrefixLMConfig, {"positions": "fire"}, "positions='fire'"),
        (MoEConfig, {"feed_forward": "relu"}, "feed_forward"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(
    cls: type[TransformerConfig], settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError) as caught:
        cls(**settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{cls.name}: ") and field in message


GRID: list[tuple[type[TransformerConfig], dict[str, Any]]] = [
    (TransformerConfig, {"output_gate": "sigmoid"}),
    *((TransformerConfig, {"positions": positions, "window": 5, "num_kv_heads": 1})
      for positions in ("rope", "none", "sinusoidal", "alibi", "t5", "kerple", "fire")),
    *((TransformerConfig, {"norm": norm, "norm_place": place, "feed_forward": kind})
      for norm, place, kind in product(["rms", "layer"], ["pre", "post"], ["swiglu", "relu", "gelu"])),
    *((cls, {"positions": positions})
      for cls in (TransformerConfig, EncoderConfig, PrefixLMConfig, MoEConfig)
      for positions in ("none", "sinusoidal", "alibi", "t5", "kerple")),
    (TransformerConfig, {"positions": "fire"}),
    (MoEConfig, {"positions": "fire"}),
    *((cls, {"positions": "learnt", "max_length": 256})
      for cls in (TransformerConfig, EncoderConfig, PrefixLMConfig, MoEConfig)),
    *((cls, {"window": window, "positions": "alibi", "norm_place": "post"})
      for cls in (EncoderConfig, PrefixLMConfig, MoEConfig) for window in (3, 40)),
    (TransformerConfig, {"num_heads": 1, "d_model": 7, "positions": "sinusoidal", "d_inner": 3}),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("cls", "settings"), some(GRID, always=12), ids=lambda value: getattr(value, "name", str(value))
)
def test_every_setting_conforms(cls: type[TransformerConfig], settings: dict[str, Any]) -> None:
    failed = [outcome for outcome in check(replace(cls.tiny(), **settings)) if outcome.verdict == "FAIL"]
    assert failed == []
