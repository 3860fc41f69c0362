"""The encoder-decoder against torch's encoder and decoder layers, a row at a time, and what may reach an answer."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.backbone import Backbone, count_parameters
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.encoder_decoder import Decoder, Encoder, EncoderDecoderConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS = 11, 12, 3
BACKENDS: tuple[Backend, ...] = ("auto", "reference")


def make(**settings: int) -> Backbone:
    """A small model whose norms and biases are not the trivial ones."""
    model = EncoderDecoderConfig(d_model=WIDTH, num_heads=HEADS, **settings).build(VOCAB).double()
    for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
    return model


Pair = tuple[Tensor, list[Tensor]]  # a parameter of torch's layer and ours, which together are the same


def attention_pairs(theirs: nn.MultiheadAttention, packed: list[Tensor], out: Tensor) -> list[Pair]:
    nn.init.zeros_(theirs.in_proj_bias)
    nn.init.zeros_(theirs.out_proj.bias)
    return [(theirs.in_proj_weight, packed), (theirs.out_proj.weight, [out])]


def torchs(block: nn.Module) -> tuple[nn.Module, list[Pair]]:
    """torch's layer with a block's weights."""
    cls = nn.TransformerEncoderLayer if isinstance(block, Encoder) else nn.TransformerDecoderLayer
    theirs = cls(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="relu", batch_first=True, dtype=torch.float64)
    own, *cross, mlp = block.layers
    pairs = attention_pairs(theirs.self_attn, [own.query_key_value.weight], own.out.weight)
    for layer in cross:
        packed = [layer.query.weight, layer.key_value.weight]
        pairs += attention_pairs(theirs.multihead_attn, packed, layer.out.weight)
    modules = [(theirs.linear1, mlp.inner), (theirs.linear2, mlp.out)]
    modules += [(getattr(theirs, f"norm{number}"), norm) for number, norm in enumerate(block.norms, start=1)]
    for their, our in modules:
        pairs += [(one, [other]) for one, other in zip(their.parameters(), our.parameters(), strict=True)]
    with torch.no_grad():
        for one, others in pairs:
            one.copy_(torch.cat(others))
    return theirs, pairs


def sinusoid(length: int) -> Tensor:
    angle = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, WIDTH, 2).double() / WIDTH)
    vectors_LD = torch.zeros(length, WIDTH, dtype=torch.float64)
    vectors_LD[:, 0::2], vectors_LD[:, 1::2] = angle.sin(), angle.cos()
    return vectors_LD


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("depth", "encoder_depth"), [(1, 0), (2, 3)])
@pytest.mark.parametrize("length", [1, 2, 17, 70])
def test_the_model_equals_torchs_layers_row_by_row(
    length: int, depth: int, encoder_depth: int, backend: Backend
) -> None:
    model = make(num_blocks=depth, num_encoder_blocks=encoder_depth)
    blocks = [torchs(block) for block in model.blocks]
    assert [type(block) for block in model.blocks] == [Encoder] * (encoder_depth or depth) + [Decoder] * depth
    tokens_BL, prompt_B = torch.randint(VOCAB, (3, length)), [length, 1, (length + 1) // 2]
    embedding, head = (
        weight.detach().clone().requires_grad_() for weight in (model.embedding.weight, model.head.weight)
    )
    logits_BLV = model(tokens_BL, Context(prompt_B=torch.tensor(prompt_B), backend=backend))
    assert bool(torch.isfinite(logits_BLV).all())
    losses: list[Tensor] = []
    expected_losses: list[Tensor] = []
    for row, prompt in enumerate(prompt_B):
        x = (embedding[tokens_BL[row, :prompt]] + sinusoid(prompt))[None]
        slots = length - prompt + 1
        y = (embedding[tokens_BL[row, prompt - 1 :]] + sinusoid(slots))[None]
        for (theirs, _), block in zip(blocks, model.blocks, strict=True):
            if isinstance(block, Encoder):
                x = theirs(x)
            else:
                y = theirs(y, x, tgt_mask=torch.ones(slots, slots, dtype=torch.bool).triu(1))
        expected_LV = y[0] @ head.T
        close(logits_BLV[row, prompt - 1 :], expected_LV)
        weights_LV = torch.randn_like(expected_LV)
        losses.append((logits_BLV[row, prompt - 1 :] * weights_LV).sum())
        expected_losses.append((expected_LV * weights_LV).sum())
    pairs = [(embedding, [model.embedding.weight]), (head, [model.head.weight])]
    pairs += [pair for _, block_pairs in blocks for pair in block_pairs]
    expected = torch.autograd.grad(sum(expected_losses), [one for one, _ in pairs])
    for (_, others), gradient in zip(pairs, expected, strict=True):
        close(torch.cat(torch.autograd.grad(sum(losses), others, retain_graph=True)), gradient, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_reaches_an_answer(backend: Backend) -> None:
    """The whole prompt, and of the slots those up to its own; inside the prompt, the prompt alone."""
    model, length, prompt = make(), 70, 30
    ctx = Context(prompt_B=torch.tensor([prompt]), backend=backend)
    tokens_BL = torch.randint(1, VOCAB, (1, length))
    before_BLV = model(tokens_BL, ctx)
    for changed in (0, 12, prompt - 1, prompt, 50, length - 1):
        other_BL = tokens_BL.clone()
        other_BL[0, changed] = 0
        moved_L = (model(other_BL, ctx) != before_BLV).any(-1)[0]
        first = 0 if changed < prompt else changed
        assert moved_L.nonzero().flatten().tolist() == list(range(first, length))


@pytest.mark.parametrize("backend", BACKENDS)
def test_inside_the_prompt_stands_the_first_answer_were_it_read_there(backend: Backend) -> None:
    """A decoder over that one token, beside an encoder over the whole prompt."""
    model, prompt_B = make(), torch.tensor([20, 65])
    tokens_BL = torch.randint(VOCAB, (2, 80))
    logits_BLV = model(tokens_BL, Context(prompt_B=prompt_B, backend=backend))
    for row, prompt in enumerate(prompt_B.tolist()):
        for position in (0, 7, prompt - 2):
            one = tokens_BL[row : row + 1, :prompt]
            ctx = Context(taps=frozenset({2}))
            model(one, ctx)
            memory_BLD = ctx.tapped[2]
            swapped = torch.cat([one[:, :-1], one[:, position, None]], 1)
            again = Context(edits={2: lambda _, memory_BLD=memory_BLD: memory_BLD})
            close(model(swapped, again)[0, -1], logits_BLV[row, position])


def test_without_a_prompts_end_all_valid_positions_are_the_prompt() -> None:
    model, length_B = make(), torch.tensor([9, 4])
    tokens_BL, valid_BL = torch.randint(VOCAB, (2, 9)), torch.arange(9) < length_B[:, None]
    for valid, prompt_B in ((valid_BL, length_B), (None, torch.tensor([9, 9]))):
        found = model(tokens_BL, Context(valid_BL=valid))
        expected = model(tokens_BL, Context(valid_BL=valid, prompt_B=prompt_B))
        assert torch.equal(found, expected)


def test_edits_of_the_encoders_stream_reach_the_decoder_and_its_tokens_are_the_embeddings() -> None:
    model, tokens_BL = make(), torch.randint(VOCAB, (2, 9))
    ctx = Context(prompt_B=torch.tensor([5, 6]), taps=frozenset(range(5)))
    logits_BLV = model(tokens_BL, ctx)
    assert model.num_layers == 4 and torch.equal(ctx.tapped[0], model.embedding.weight[tokens_BL])
    for layer in (0, 2, 3):
        edited = Context(prompt_B=ctx.prompt_B, edits={layer: torch.zeros_like})
        assert not torch.allclose(model(tokens_BL, edited), logits_BLV)


def test_sizes_by_hand() -> None:
    attention, mlp, norm = 4 * 128 * 128, 2 * 128 * 512 + 512 + 128, 2 * 128
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    ends = 2 * VOCAB * 128
    assert count_parameters(EncoderDecoderConfig().build(VOCAB)) == ends + 2 * encoder + 2 * decoder
    deep = EncoderDecoderConfig(num_blocks=1, num_encoder_blocks=3)
    assert count_parameters(deep.build(VOCAB)) == ends + 3 * encoder + decoder


@pytest.mark.full
@pytest.mark.parametrize("settings", [{"num_encoder_blocks": 1}, {"num_blocks": 1, "num_encoder_blocks": 3}])
def test_other_depths_conform(settings: dict[str, int]) -> None:
    outcomes = check(replace(EncoderDecoderConfig.tiny(), **settings))
    assert [outcome for outcome in outcomes if outcome.verdict == "FAIL"] == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"num_heads": 3}, "d_model"),
        ({"num_heads": 0}, "heads"),
        ({"num_encoder_blocks": -1}, "num_encoder_blocks"),
        ({"d_inner": -1}, "d_inner"),
        ({"num_blocks": 0}, "num_blocks"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError) as caught:
        EncoderDecoderConfig(**settings)
    assert str(caught.value).startswith("encoder_decoder: ") and field in str(caught.value)
