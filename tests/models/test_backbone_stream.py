"""The stream of all models: averages, dropout, edits and taps, and parameters shared by blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.backbone import Backbone, count_parameters, state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.draw import Draw
from support.small_backbones import ALL, STEPWISE, VOCAB, close, start

torch.set_num_threads(1)


def masks(batch: int = 3, *, seed: int = 0) -> Draw:
    return Draw(seed=seed, split="dropout", rows_B=torch.arange(batch))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_the_mean_over_valid_positions_by_hand(shape: tuple[int, ...]) -> None:
    x_BLX = torch.randn(3, 5, *shape, dtype=torch.float64)
    valid_BL = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [0, 1, 1, 0, 1]]).bool()
    kept = [x_BLX[b, t] for b, t in product(range(3), range(5)) if valid_BL[b, t]]
    assert len(kept) == 9
    close(Context(valid_BL=valid_BL).mean_valid(x_BLX), sum(kept) / 9)
    everything = sum(x_BLX[b, t] for b, t in product(range(3), range(5))) / 15
    close(Context().mean_valid(x_BLX), everything)
    close(Context(valid_BL=valid_BL | True).mean_valid(x_BLX), everything)


def test_the_mean_over_valid_positions_is_as_precise_under_autocast() -> None:
    x_BLX = torch.rand(4, 40, 3)
    valid_BL = torch.arange(40) < torch.tensor([40, 3, 17, 26])[:, None]
    expected_X = sum(x_BLX[b, t] for b, t in product(range(4), range(40)) if valid_BL[b, t]) / valid_BL.sum()
    with torch.autocast("cpu", torch.bfloat16):
        found_X = Context(valid_BL=valid_BL).mean_valid(x_BLX)
    assert found_X.dtype == torch.float32
    close(found_X, expected_X, 1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_and_scales_what_it_keeps(rate: float) -> None:
    x_BLD = 1 + torch.rand(8, 50, 100, dtype=torch.float64)
    y_BLD = Context(masks=masks(8)).dropout(x_BLD, rate)
    kept_BLD = y_BLD != 0
    close(y_BLD[kept_BLD], x_BLD[kept_BLD] / (1 - rate))
    deviation = (rate * (1 - rate) / x_BLD.numel()) ** 0.5
    assert abs(kept_BLD.double().mean() - (1 - rate)) < 5 * deviation
    for dim, others in ((0, 5_000), (1, 800), (2, 400)):  # no row, position or channel is spared
        shares = kept_BLD.double().mean(dim=[d for d in range(3) if d != dim])
        assert bool(((shares - (1 - rate)).abs() < 5 * (rate * (1 - rate) / others) ** 0.5).all())


def test_dropout_masks_come_from_the_draw_alone() -> None:
    x_BLD = 1 + torch.rand(4, 6, 10)
    first = Context(masks=masks(4)).dropout(x_BLD, 0.5)
    torch.manual_seed(99)
    ctx = Context(masks=masks(4))
    assert torch.equal(ctx.dropout(x_BLD, 0.5), first)
    assert not torch.equal(ctx.dropout(x_BLD, 0.5), first)  # the next layer's mask is another
    assert not torch.equal(Context(masks=masks(4, seed=1)).dropout(x_BLD, 0.5), first)
    own = Draw(seed=0, split="dropout", rows_B=torch.tensor([2, 0]))
    assert torch.equal(Context(masks=own).dropout(x_BLD[[2, 0]], 0.5), first[[2, 0]])  # a row's mask goes with it
    assert not torch.equal(first[0] == 0, first[1] == 0)


def test_no_dropout_without_masks_or_rate_and_no_change_of_precision() -> None:
    x_BLD = torch.randn(4, 6, 10)
    assert Context().dropout(x_BLD, 0.9) is x_BLD
    draw = masks(4)
    assert Context(masks=draw).dropout(x_BLD, 0.0) is x_BLD
    assert draw.calls == 0
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert Context(masks=masks(4)).dropout(x_BLD.to(dtype), 0.5).dtype == dtype


@pytest.mark.parametrize("cls", ALL)
def test_every_model_drops_in_every_block_when_told_to(cls: type[ModelConfig]) -> None:
    config = replace(cls.tiny(), dropout=0.4)
    model, tokens_BL = config.build(VOCAB).double(), torch.randint(VOCAB, (3, 7))
    whole = replace(cls.tiny(), dropout=0.0).build(VOCAB).double()
    whole.load_state_dict(model.state_dict())
    plain_BLV = model(tokens_BL, Context())
    assert torch.equal(plain_BLV, whole(tokens_BL, Context()))
    assert torch.equal(plain_BLV, whole(tokens_BL, Context(masks=masks())))
    draw = masks()
    dropped_BLV = model(tokens_BL, Context(masks=draw))
    assert draw.calls >= config.num_blocks
    assert not torch.allclose(dropped_BLV, plain_BLV)
    assert torch.equal(model(tokens_BL, Context(masks=masks())), dropped_BLV)
    for layer in range(config.num_blocks):
        assert moved_by_masks(model, tokens_BL, layer) > 0.01


def moved_by_masks(model: Backbone, tokens_BL: Tensor, layer: int) -> float:
    """Return how far dropout changes the output of the block after `layer`, for a stream without dropout."""
    clean = Context(taps=frozenset({layer, layer + 1}))
    model(tokens_BL, clean)
    ctx = Context(masks=masks(), taps=frozenset({layer + 1}), edits={layer: lambda _: clean.tapped[layer]})
    model(tokens_BL, ctx)
    return (ctx.tapped[layer + 1] - clean.tapped[layer + 1]).abs().mean().item()


@pytest.mark.parametrize("cls", [LSTMBlockConfig, TransformerConfig, MoEConfig, EncoderConfig])
def test_each_norm_stands_before_its_layer_among_the_parameters(cls: type[ModelConfig]) -> None:
    """Clipping sums over the parameters in their order: another one moves the last bits of every published run."""
    (block,) = replace(cls.tiny(), num_blocks=1).build(VOCAB).blocks
    wanted = [
        p for norm, layer in zip(block.norms, block.layers, strict=True) for p in (norm.weight, *layer.parameters())
    ]
    found = list(block.parameters())
    assert len(found) == len(wanted) and all(a is b for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("cls", [LSTMBlockConfig, TransformerConfig, MoEConfig, EncoderConfig])
def test_a_residual_block_drops_each_branch_before_it_is_added(cls: type[ModelConfig]) -> None:
    (block,) = replace(cls.tiny(), num_blocks=1, dropout=0.4).build(VOCAB).double().blocks
    x_BLD = torch.randn(3, 7, 16, dtype=torch.float64)
    draw = masks()
    keep_2BLD = [(draw.uniform((7, 16)) >= 0.4) / 0.6 for _ in range(2)]
    (mixer, feed_forward), (mixer_norm, feed_forward_norm) = block.layers, block.norms
    half_BLD = x_BLD + keep_2BLD[0] * mixer(mixer_norm(x_BLD), Context())
    expected_BLD = half_BLD + keep_2BLD[1] * feed_forward(feed_forward_norm(half_BLD), Context())
    close(block(x_BLD, Context(masks=masks())), expected_BLD, 1e-6)  # the masks are in single precision


def flipped(x: Tensor) -> Tensor:
    return 2 * x.flip(-1) + 1


def steps(model: Backbone, tokens_BL: Tensor, make: Callable[[], Context]) -> tuple[Tensor, list[Context]]:
    state, outputs, contexts = start(model, tokens_BL.shape[0]), [], []
    for tokens_B in tokens_BL.unbind(1):
        contexts.append(make())
        logits_BV, state = model.step(tokens_B, state, contexts[-1])
        outputs.append(logits_BV)
    return torch.stack(outputs, 1), contexts


@pytest.mark.parametrize("layers", [{0}, {1}, {2}, {0, 1, 2}])
@pytest.mark.parametrize("cls", STEPWISE)
def test_edits_and_taps_agree_in_forward_step_and_extend(cls: type[ModelConfig], layers: set[int]) -> None:
    model, tokens_BL = cls.tiny().build(VOCAB).double(), torch.randint(VOCAB, (3, 8))

    def make() -> Context:
        return Context(edits=dict.fromkeys(layers, flipped), taps=frozenset(range(3)))

    ctx, extended = make(), make()
    logits_BLV = model(tokens_BL, ctx)
    assert not torch.allclose(logits_BLV, model(tokens_BL, Context()))
    stepped_BLV, contexts = steps(model, tokens_BL, make)
    extended_BLV, _ = model.extend(tokens_BL, start(model, 3), extended)
    close(stepped_BLV, logits_BLV, 1e-10)
    close(extended_BLV, logits_BLV, 1e-10)
    for layer in range(3):
        close(extended.tapped[layer], ctx.tapped[layer], 1e-10)
        close(torch.stack([one.tapped[layer] for one in contexts], 1), ctx.tapped[layer], 1e-10)


@pytest.mark.parametrize("cls", ALL)
def test_an_edit_replaces_the_stream_for_all_that_follows(cls: type[ModelConfig]) -> None:
    model, tokens_BL = cls.tiny().build(VOCAB).double(), torch.randint(VOCAB, (3, 8))
    patch_BLD = torch.randn(3, 8, 16, dtype=torch.float64)
    for layer in range(3):
        ctx = Context(edits={layer: lambda _: patch_BLD}, taps=frozenset(range(3)))
        logits_BLV = model(tokens_BL, ctx)
        assert sorted(ctx.tapped) == [0, 1, 2]
        x_BLD = patch_BLD
        assert torch.equal(ctx.tapped[layer], patch_BLD)  # a tap sees what the next layer sees
        for block in model.blocks[layer:]:
            x_BLD = block(x_BLD, Context())
        close(logits_BLV, model.norm(x_BLD) @ model.head.weight.T)
    ctx = Context(taps=frozenset({0, 2}))
    model(tokens_BL, ctx)
    assert sorted(ctx.tapped) == [0, 2]
    assert torch.equal(ctx.tapped[0], model.embedding.weight[tokens_BL])


class Scale(Block):
    """y = x, times a weight of the model, plus what the first block left behind."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        assert isinstance(ctx.common, nn.Linear)
        first = ctx.shared.setdefault("first", x_BLD)
        ctx.add_metric("seen", x_BLD.sum())
        return ctx.common(x_BLD) + first

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return None

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self(x_BD, ctx), None

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self(x_BLD, ctx), None


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(ModelConfig):
    name, family, year, paper = "scale", "test", 2026, "none"

    def block(self, layer: int) -> Block:
        return Scale()

    def common_module(self) -> nn.Module:
        return nn.Linear(self.d_model, self.d_model, bias=False)


def test_shared_parameters_and_shared_tensors_reach_every_block() -> None:
    model = ScaleConfig(d_model=4, num_blocks=3).build(VOCAB).double()
    assert count_parameters(model) == 12 * 4 + 4 * 4 + 4 + 12 * 4
    tokens_BL = torch.randint(VOCAB, (2, 5))
    first_BLD = x_BLD = model.embedding.weight[tokens_BL]
    assert model.common is not None
    for _ in range(3):
        x_BLD = x_BLD @ model.common.weight.T + first_BLD
    expected_BLV = model.norm(x_BLD) @ model.head.weight.T
    ctx = Context()
    close(model(tokens_BL, ctx), expected_BLV)
    assert len(ctx.metrics["seen"]) == 3 and not ctx.metrics["seen"][0].requires_grad
    assert state_bytes(start(model, 2)) == 0
    close(model.extend(tokens_BL, start(model, 2), Context())[0], expected_BLV)
    close(steps(model, tokens_BL, Context)[0], expected_BLV)
