"""Log-linear attention against a sum over pairs of tokens, its state, its extremes and its start."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.log_linear_attention import FenwickSSD, LogLinearAttentionConfig
from chomsky_ladder.models.mamba2 import SSD, Mamba2Config
from chomsky_ladder.models.scans import fenwick
from chomsky_ladder.models.scans.chunked import decayed_attention
from chomsky_ladder.models.scans.fenwick import CHUNK, Held, fenwick_attention, fenwick_extend, levels
from support.cases import some
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 64, 65, 130)
DECAYS = (None, 0.0, -300.0, -math.inf)


def inputs(length: int, *, log_decay: float | None = None, numbers: int = 15, shared: bool = False) -> list[Tensor]:
    """Two rows of three heads, K = 4 and V = 5; queries and keys of one head for all, if shared."""
    q_BHLK, k_BHLK = torch.randn(2, 2, 1 if shared else 3, length, 4, dtype=torch.float64)
    v_BHLV, c_BHLE = torch.randn(2, 3, length, 5).double(), torch.rand(2, 3, length, numbers).double()
    log_BHL = torch.rand(2, 3, length).double().log() / 4
    if log_decay is not None:
        log_BHL = torch.full_like(log_BHL, log_decay)
    return [x.detach().requires_grad_() for x in (q_BHLK, k_BHLK, v_BHLV, log_BHL, c_BHLE)]


def empty(numbers: int = 15) -> Held:
    return torch.zeros(2, 3, numbers - 1, 4, 5, dtype=torch.float64), torch.tensor(0)


def stretches(t: int) -> list[tuple[int, int, int]]:
    """Cut the past before t as the paper does, by the largest power of 2 that fits: level, begin and end."""
    cut, begin = [], 0
    for bit in reversed(range(t.bit_length())):
        if begin + (1 << bit) <= t:
            cut.append((bit + 1, begin, begin + (1 << bit)))
            begin += 1 << bit
    return cut


def by_pairs(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, c: Tensor) -> Tensor:
    """A token after the other, each over all before it, whose levels are those of their stretches."""
    outputs = []
    for t in range(v.shape[2]):
        level = torch.zeros(t + 1, dtype=torch.int64)
        for number, begin, end in stretches(t):
            level[begin:end] = min(number, c.shape[-1] - 1)
        log_kept = log_decay[:, :, 1 : t + 1].flip(-1).cumsum(-1).flip(-1)
        weight = nn.functional.pad(log_kept.exp(), (0, 1), value=1.0) * c[:, :, t, level]
        row = (q[:, :, t, None] @ k[:, :, : t + 1].mT)[:, :, 0] * weight
        outputs.append((row[:, :, None] @ v[:, :, : t + 1])[:, :, 0])
    return torch.stack(outputs, 2)


def with_gradients(y: Tensor, given: list[Tensor]) -> list[Tensor]:
    return [y, *gradients(y, given)]


def same(found: Tensor, expected: Tensor, given: list[Tensor]) -> None:
    for one, other in zip(with_gradients(found, given), with_gradients(expected, given), strict=True):
        close(one, other, 1e-9)


def flat(results: tuple[Tensor, Held]) -> Tensor:
    """The outputs and the last sums in one."""
    return torch.cat([results[0].flatten(), results[1][0].flatten()])


def test_a_stretch_is_all_that_differs_first_in_its_bit() -> None:
    for t in range(1, 300):
        every = torch.arange(t + 1)
        found = levels(torch.tensor(t), every, 12)
        assert found[t] == 0
        for level, begin, end in stretches(t):
            assert bool((found[begin:end] == level).all())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("log_decay", DECAYS)
@pytest.mark.parametrize("way", ["start", "state"])
def test_chunks_equal_the_sum_over_pairs(way: str, length: int, log_decay: float | None) -> None:
    numbers = 15 if length % 2 else 4  # the last of few takes all that is older
    given = inputs(length, log_decay=log_decay, numbers=numbers)
    found = fenwick_attention(*given) if way == "start" else fenwick_extend(*given, empty(numbers))[0]
    same(found, by_pairs(*given), given)


@pytest.mark.parametrize("numbers", some([2, 4, 8, 15], always=2))
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_chunks_of_any_size_are_the_same(chunk: int, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs(75, numbers=numbers, shared=True)
    expected = fenwick_attention(*given), flat(fenwick_extend(*given, empty(numbers)))
    monkeypatch.setattr(fenwick, "CHUNK", chunk)
    found = fenwick_attention(*given), flat(fenwick_extend(*given, empty(numbers)))
    for one, other in zip(found, expected, strict=True):
        same(one, other, given)


@pytest.mark.parametrize("numbers", [3, 15])
@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32), (63, 64, 66), (100,), tuple(range(1, 130))])
def test_one_token_after_the_other_and_parts_equal_the_whole(cuts: tuple[int, ...], numbers: int) -> None:
    given = inputs(130, numbers=numbers)
    state, outputs = empty(numbers), []
    for part in zip(*(x.tensor_split(cuts, 2) for x in given), strict=True):
        y_BHLV, state = fenwick_extend(*part, state)
        outputs.append(y_BHLV)
    assert state[1] == 130
    same(flat((torch.cat(outputs, 2), state)), flat(fenwick_extend(*given, empty(numbers))), given)


def test_only_the_stretches_of_the_place_are_held() -> None:
    """After 13 tokens those of 1, 4 and 8, whose bits 13 has."""
    (S_BHEKV, _) = fenwick_extend(*inputs(13), empty())[1]
    held_E = (S_BHEKV != 0).flatten(3).any(-1).all(1).all(0)
    assert held_E.nonzero()[:, 0].tolist() == [0, 2, 3]


def test_with_equal_weights_it_is_linear_attention() -> None:
    *given, c_BHLE = inputs(150)
    expected_BHLV, last_BHKV = decayed_attention(*given, torch.zeros(2, 3, 4, 5).double())
    close(fenwick_attention(*given, torch.ones_like(c_BHLE)), expected_BHLV, 1e-10)
    close(fenwick_extend(*given, c_BHLE, empty())[1][0].sum(2), last_BHKV, 1e-10)


def test_decays_of_any_strength_lose_no_digits_in_fp32() -> None:
    q_BHLK, k_BHLK, v_BHLV, log_BHL, c_BHLE = inputs(260)
    log_BHL = torch.where(torch.rand(2, 3, 260) < 0.2, -3000 * torch.rand(2, 3, 260), -1e-3).double()
    log_BHL[:, :, 100] = -torch.inf
    rounded = [x.detach().float().requires_grad_() for x in (q_BHLK, k_BHLK, v_BHLV, log_BHL, c_BHLE)]
    expected_BHLV = by_pairs(*(x.double() for x in rounded))
    state = empty()
    for y_BHLV in (fenwick_attention(*rounded), fenwick_extend(*rounded, (state[0].float(), state[1]))[0]):
        assert y_BHLV.dtype == torch.float32
        assert (y_BHLV - expected_BHLV).abs().max() < 2e-6 * expected_BHLV.abs().max()
        assert all(bool(gradient.isfinite().all()) for gradient in gradients(y_BHLV, rounded))


def test_memory_grows_little_faster_than_the_length() -> None:
    short, long = (kept_for_backward(lambda n=n: fenwick_attention(*inputs(n))) for n in (4 * CHUNK, 16 * CHUNK))
    assert 3.5 * short < long < 5 * short


def small(*, num_levels: int = 15) -> FenwickSSD:
    config = LogLinearAttentionConfig(d_model=8, head_dim=8, d_state=4, num_levels=num_levels)
    return lively(FenwickSSD(config))


def by_hand(layer: FenwickSSD, x_LD: Tensor) -> Tensor:
    """One row, a token, a head and a stretch at a time."""
    width, channels, heads = layer.parts
    states, dim, taps = (channels - width) // 2, width // heads, layer.convolution.weight.shape[1]
    z_LE, mixed_LF, dt_LH = (x_LD @ layer.gate_value_dt.weight.T).split(layer.parts, -1)
    dt_LH = torch.log(1 + torch.exp(dt_LH + layer.dt_bias))
    last, outputs, written = layer.level_scale.shape[1] - 1, [], []
    for t, x in enumerate(x_LD):
        window = [layer.convolution.weight[:, taps - 1 - i] * mixed_LF[t - i] for i in range(min(taps, t + 1))]
        mixed = torch.stack(window).sum(0) + layer.convolution.bias
        v, B, C = (mixed * torch.sigmoid(mixed)).split([width, states, states])
        c_HE = torch.log(1 + torch.exp(layer.level_scale * (layer.level.weight @ x).view(heads, -1)))
        y = []
        for head in range(heads):
            at = slice(head * dim, (head + 1) * dim)
            A = -layer.A_log[head].exp()
            own = dt_LH[t, head] * torch.outer(B, v[at])
            read = c_HE[head, 0] * C @ own
            for level, begin, end in stretches(t):
                S = sum(written[s][head] * torch.exp(A * dt_LH[s + 1 : t + 1, head].sum()) for s in range(begin, end))
                read = read + c_HE[head, min(level, last)] * C @ S
            y.append(read + layer.D[head] * v[at])
        written.append([dt_LH[t, h] * torch.outer(B, v[h * dim : (h + 1) * dim]) for h in range(heads)])
        y = torch.cat(y) * z_LE[t] * torch.sigmoid(z_LE[t])
        outputs.append(layer.out.weight @ (y / (y.square().mean() + 1e-5).sqrt() * layer.norm.weight))
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "num_levels"), [(1, 15), (2, 2), (17, 4), (33, 15)])
def test_it_is_its_equations_in_value_and_gradient(length: int, num_levels: int) -> None:
    layer = small(num_levels=num_levels)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


def test_with_equal_weights_it_is_mamba2() -> None:
    layer, plain = small(), SSD(Mamba2Config(d_model=8, head_dim=8, d_state=4)).double()
    plain.load_state_dict({name: x for name, x in layer.state_dict().items() if not name.startswith("level")})
    with torch.no_grad():
        layer.level.weight.zero_()
    x_BLD = torch.randn(2, 70, 8, dtype=torch.float64)
    plain.norm.eps = 1e-5 / math.log(2) ** 2  # as all weights are log 2, but for D
    with torch.no_grad():
        plain.D /= math.log(2)
    close(layer(x_BLD, Context()), plain(x_BLD, Context()), 1e-10)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_large_inputs_stay_finite(scale: float) -> None:
    layer = small().float()
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_sizes_and_start_are_those_that_are_told() -> None:
    layer = LogLinearAttentionConfig(d_model=64).block(0).layers[0]
    assert layer.level.weight.shape == (30, 64) and bool((layer.level_scale == 1).all())
    _, (S_BHEKV, _) = layer.init_state(1, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert S_BHEKV.shape == (1, 2, 14, 64, 64) and S_BHEKV.dtype == torch.float32


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^log_linear_attention: num_levels must be at least 2, not 1$"):
        LogLinearAttentionConfig(num_levels=1)
    with pytest.raises(ValueError, match=r"^log_linear_attention: head_dim must be at least 1, not 0$"):
        LogLinearAttentionConfig(head_dim=0)
