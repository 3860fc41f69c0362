"""Hyena: transforms against sums, its filters against their formula, and the layer against its equations."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.hyena import Hyena, HyenaConfig, LongFilters
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 17, 63, 64, 65, 130)


def weighted_sum(y: Tensor) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).sin().view_as(y)).sum()


def small(order: int = 2, max_length: int = 50) -> HyenaConfig:
    return HyenaConfig(d_model=4, num_blocks=2, order=order, max_length=max_length, filter_width=6, filter_bands=3)


def lively(module: nn.Module) -> nn.Module:
    """Make weights float64, and large enough that every part shows in the output."""
    for name, parameter in module.double().named_parameters():
        if "frequency" not in name:
            nn.init.normal_(parameter, std=0.4)
    return module


def direct(z_BLD: Tensor, taps_LD: Tensor) -> Tensor:
    """The convolution by its definition, as one matrix a channel."""
    lag_LL = torch.arange(z_BLD.shape[1])[:, None] - torch.arange(z_BLD.shape[1])
    matrix_LLD = torch.where((lag_LL >= 0)[..., None], taps_LD[lag_LL.clamp(min=0)], 0)
    return torch.einsum("tsd,bsd->btd", matrix_LLD, z_BLD)


def tap(filters: LongFilters, config: HyenaConfig, number: int, lag: int, channel: int) -> float:
    """The formula of the docstring, one number at a time."""
    u = lag / config.max_length
    bands = [
        1e-4 + (config.filter_bands - 1 - 1e-4) * k / (config.filter_bands - 1) for k in range(config.filter_bands)
    ]
    x = [u, *(math.cos(2 * math.pi * k * u) for k in bands), *(math.sin(2 * math.pi * k * u) for k in bands)]
    for layer in filters.hidden:
        x = [
            math.sin(f * (b + sum(w * value for w, value in zip(row, x, strict=True))))
            for f, row, b in zip(filters.frequency_I.tolist(), layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]
    row = filters.last.weight[number * config.d_model + channel].tolist()
    value = sum(w * each for w, each in zip(row, x, strict=True))
    slowest, fastest = math.log(100) / 1.5, math.log(100) / 0.3
    rate = slowest + (fastest - slowest) * channel / (config.d_model - 1)
    return value * math.exp(-rate * u) + (filters.present_FD[number, channel].item() if lag == 0 else 0.0)


@pytest.mark.parametrize("order", [2, 3])
def test_filters_follow_their_formula_at_every_lag(order: int) -> None:
    config = small(order, max_length=7)
    filters = lively(LongFilters(config))
    nn.init.uniform_(filters.frequency_I, 0.5, 3)
    taps_FLD = filters(11)
    assert taps_FLD.shape == (order - 1, 11, 4)
    for number in range(order - 1):
        for lag in (0, 1, 6, 7, 10):
            expected = [tap(filters, config, number, lag, channel) for channel in range(4)]
            assert taps_FLD[number, lag].tolist() == pytest.approx(expected, abs=1e-12)


def test_a_filter_does_not_know_how_long_the_batch_is() -> None:
    filters = lively(LongFilters(small(3)))
    longest_FLD = filters(130)
    for length in LENGTHS:
        close(filters(length), longest_FLD[:, :length], 1e-12)
    assert not torch.allclose(lively(LongFilters(small(3, max_length=51)))(130), longest_FLD)


def equations(layer: Hyena, x_BLD: Tensor, order: int) -> Tensor:
    """The docstring's first line, with sums for transforms."""
    mixed_BLE = x_BLD @ layer.project.weight.T + layer.project.bias
    padded_BLE = nn.functional.pad(mixed_BLE, (0, 0, 2, 0))
    length, weight_EW = x_BLD.shape[1], layer.short.weight
    mixed_BLE = sum(padded_BLE[:, w : w + length] * weight_EW[:, w] for w in range(3)) + layer.short.bias
    v, *x = mixed_BLE.chunk(order + 1, -1)
    z, taps_FLD = v, layer.filters(length)
    for n in range(order - 1):
        z = direct(x[n] * z, taps_FLD[n])
    return (x[order - 1] * z) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_layer_equals_its_equations(length: int, order: int) -> None:
    layer = lively(Hyena(small(order)))
    x_BLD = torch.randn(3, length, 4, dtype=torch.float64, requires_grad=True)
    found, expected = layer(x_BLD, Context()), equations(layer, x_BLD, order)
    close(found, expected, 1e-11)
    inputs = [x_BLD, *layer.parameters()]
    for one, other in zip(*(torch.autograd.grad(weighted_sum(y), inputs) for y in (found, expected)), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("room", [33, 50])
@pytest.mark.parametrize("cut", [1, 16, 25])
def test_prefill_steps_and_another_part_equal_the_whole(cut: int, room: int, order: int) -> None:
    layer = lively(Hyena(small(order, max_length=20)))  # beyond which the positions go on
    x_BLD = torch.randn(3, 33, 4, dtype=torch.float64)
    state = layer.init_state(3, max_length=room, device=torch.device("cpu"), dtype=torch.float64)
    head_BLD, state = layer.extend(x_BLD[:, :cut], state, Context())
    stepped = []
    for x_BD in x_BLD[:, cut:30].unbind(1):
        y_BD, state = layer.step(x_BD, state, Context())
        stepped.append(y_BD)
    tail_BLD, _ = layer.extend(x_BLD[:, 30:], state, Context())
    close(torch.cat([head_BLD, torch.stack(stepped, 1), tail_BLD], 1), layer(x_BLD, Context()), 1e-9)


def test_weights_start_as_documented_and_the_filters_are_not_decayed() -> None:
    model = HyenaConfig(d_model=64, num_blocks=2, order=3).build(VOCAB)
    decays = {parameter: decayed for parameter, decayed, _ in declared(model)}
    for block in model.blocks:
        mixer, feed_forward = block.layers
        filters = mixer.filters
        shapes = [tuple(layer.weight.shape) for layer in (*filters.hidden, filters.last)]
        assert shapes == [(64, 33), (64, 64), (64, 64), (128, 64)]
        for layer in (*filters.hidden, filters.last):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
            assert layer.bias is None or bool((layer.bias == 0).all())
        assert filters.last.bias is None and bool((filters.frequency_I == 14).all())
        assert filters.present_FD.shape == (2, 64) and filters.present_FD.std().item() == pytest.approx(1, rel=0.2)
        assert not any(decays[parameter] for parameter in filters.parameters())
        assert decays[mixer.project.weight] and decays[mixer.out.weight]
        assert 0.95 / 16 < mixer.out.weight.abs().max() <= 1 / 16  # torch's 1/8, over the root of 4 writers
        assert mixer.short.weight.shape == (256, 3)
        assert feed_forward.inner.weight.shape == (128, 64)


def test_windows_fall_to_a_hundredth_where_documented() -> None:
    filters = LongFilters(small(max_length=100)).double()
    window_LD = filters._window(torch.arange(151).double() / 100)
    assert window_LD[30, 3].item() == pytest.approx(0.01)
    assert window_LD[150, 0].item() == pytest.approx(0.01)
    assert bool((window_LD[1:, 1:] < window_LD[1:, :-1]).all())


def layer_norm(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_the_block_follows_its_docstring() -> None:
    model = small(3).build(VOCAB).double()
    tokens_BL = torch.randint(VOCAB, (3, 17))
    x_BLD = model.embedding.weight[tokens_BL]
    for block in model.blocks:
        mixer, feed_forward = block.layers
        x_BLD = x_BLD + equations(mixer, layer_norm(x_BLD), 3)
        inner_BLI = layer_norm(x_BLD) @ feed_forward.inner.weight.T + feed_forward.inner.bias
        gelu_BLI = inner_BLI * 0.5 * (1 + torch.erf(inner_BLI / math.sqrt(2)))
        x_BLD = x_BLD + gelu_BLI @ feed_forward.out.weight.T + feed_forward.out.bias
    close(model(tokens_BL, Context()), layer_norm(x_BLD) @ model.head.weight.T, 1e-11)


def test_under_autocast_filters_and_history_stay_in_fp32() -> None:
    layer = Hyena(HyenaConfig(d_model=16))
    x_BLD = torch.randn(2, 70, 16)
    expected_BLD, taps_FLD = layer(x_BLD, Context()), layer.filters(70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = layer.init_state(2, max_length=70, device=torch.device("cpu"), dtype=torch.bfloat16)
        assert torch.equal(state[1], taps_FLD)
        stepped_BD, state = layer.step(x_BLD[:, 0], state, Context())
        tail_BLD, (_, _, past_BFSD) = layer.extend(x_BLD[:, 1:], state, Context())
        whole_BLD = layer(x_BLD, Context())
    assert past_BFSD.dtype == torch.float32
    for found_BLD in (torch.cat([stepped_BD[:, None], tail_BLD], 1), whole_BLD):
        assert (found_BLD - expected_BLD).abs().max() < 0.05 * expected_BLD.abs().max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 1}, "order must be at least 2"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"filter_width": 0}, "filter_width must be at least 1"),
        ({"filter_bands": 0}, "filter_bands must be at least 1"),
        ({"filter_frequency": 0.0}, "filter_frequency must be positive"),
        ({"shortest_window": 2.0}, "shortest_window=2.0 must be positive and at most longest_window=1.5"),
        ({"shortest_window": 0.0}, "shortest_window=0.0 must be positive"),
        ({"d_inner": -1}, "d_inner must not be negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^hyena: .*{message}"):
        HyenaConfig(**settings)
