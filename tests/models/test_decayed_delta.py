"""The delta rule with any decay in every channel against a loop over tokens, and the layers that are made of it."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.comba import CombaConfig
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig
from chomsky_ladder.models.gated_delta_net2 import GatedDeltaNet2Config
from chomsky_ladder.models.kda import KDAConfig
from chomsky_ladder.models.scans import decayed_delta
from chomsky_ladder.models.scans.decayed_delta import CHUNK, decayed_delta_rule
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
from chomsky_ladder.models.scans.generalised_delta import generalised_delta_rule
from support.layers import close, gradients, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 3, 5, CHUNK, CHUNK + 1, 17, 64, 65, 130)
DECAYS = (None, 0.0, math.log(0.5), math.log(1e-3), -69.0, -2000.0, -math.inf)


def inputs(length: int, log_decay: float | None, *, channels: int = 4) -> list[Tensor]:
    """Two rows of three heads, K = 4 and V = 5: what is taken out lies along keys of length 1."""
    r_BHLK, f_BHLK, g_BHLK, k_BHLK = torch.randn(4, 2, 3, length, 4, dtype=torch.float64)
    f_BHLK, g_BHLK = (nn.functional.normalize(x, dim=-1) for x in (f_BHLK, g_BHLK))
    v_BHLV, state_BHKV = torch.randn(2, 3, length, 5).double(), torch.randn(2, 3, 4, 5).double()
    log_BHLK = 3 * torch.rand(2, 3, length, channels).log().double()
    if log_decay is not None:
        log_BHLK = torch.full_like(log_BHLK, log_decay)
    made = [r_BHLK, f_BHLK * log_BHLK.exp(), g_BHLK, k_BHLK, v_BHLV, log_BHLK, state_BHKV]
    return [x.detach().requires_grad_() for x in made]


def naive(
    r: Tensor, f: Tensor, g: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The equation as it stands, token by token."""
    outputs = []
    for t in range(r.shape[2]):
        taken = torch.einsum("bhk,bhkv->bhv", f[:, :, t], state)
        state = log_decay[:, :, t].exp()[..., None] * state - g[:, :, t, :, None] * taken[:, :, None]
        state = state + k[:, :, t, :, None] * v[:, :, t, None]
        outputs.append(torch.einsum("bhk,bhkv->bhv", r[:, :, t], state))
    return torch.stack(outputs, 2), state


def with_gradients(results: tuple[Tensor, Tensor], given: list[Tensor]) -> list[Tensor]:
    return [*results, *gradients(torch.cat([x.flatten() for x in results]), given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("log_decay", DECAYS)
def test_chunks_equal_the_recurrence(length: int, log_decay: float | None) -> None:
    given = inputs(length, log_decay)
    found, expected = with_gradients(decayed_delta_rule(*given), given), with_gradients(naive(*given), given)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-9)


@pytest.mark.parametrize("chunk", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("channels", [1, 4])
def test_chunks_of_any_size_are_the_same(chunk: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs(37, None, channels=channels)
    expected = with_gradients(naive(*given), given)
    monkeypatch.setattr(decayed_delta, "CHUNK", chunk)
    for one, other in zip(with_gradients(decayed_delta_rule(*given), given), expected, strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("part", [0, 1])
def test_gradients_of_the_output_or_the_last_state_alone(part: int) -> None:
    given = inputs(21, None)
    found, expected = (gradients(rule(*given)[part], given) for rule in (decayed_delta_rule, naive))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-9)


def test_it_stacks() -> None:
    """Under vmap, where some inputs are the same for all replicas, as many runs one after the other."""
    many = [torch.stack(given) for given in zip(*(inputs(11, None) for _ in range(3)), strict=True)]
    many = [x.detach().requires_grad_() for x in many]
    many[4], dims = many[4][1].detach().requires_grad_(), (0, 0, 0, 0, None, 0, 0)
    found = torch.func.vmap(decayed_delta_rule, dims)(*many)
    alone = [decayed_delta_rule(*(x if d is None else x[i] for x, d in zip(many, dims, strict=True))) for i in range(3)]
    expected = tuple(torch.stack(x) for x in zip(*alone, strict=True))
    for one, other in zip(with_gradients(found, many), with_gradients(expected, many), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_decay_of_0_forgets_all_and_exactly(length: int, dtype: torch.dtype) -> None:
    """The state before does not matter, nor does the place of the decay in a chunk."""
    for place in range(length):
        *given, state_BHKV = (x.detach().to(dtype) for x in inputs(length, -0.1))
        given[1][:, :, place], given[5][:, :, place] = 0, -torch.inf
        both = [
            decayed_delta_rule(*given, scale * state_BHKV) for scale in (0.0, 1e8 if dtype == torch.float32 else 1e99)
        ]
        (none_BHLV, last_BHKV), (y_BHLV, large_BHKV) = both
        assert torch.equal(last_BHKV, large_BHKV) and torch.equal(none_BHLV[:, :, place:], y_BHLV[:, :, place:])
        assert bool((none_BHLV[:, :, :place] != y_BHLV[:, :, :place]).all())


def test_under_autocast_it_runs_in_single_precision() -> None:
    given = [x.float() for x in inputs(20, None)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = decayed_delta_rule(*given)
    for one, other in zip(found, decayed_delta_rule(*given), strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other)


def test_memory_is_linear_in_the_length() -> None:
    """Elements kept for the backward pass, as autograd packs them."""

    def kept(length: int) -> int:
        seen: dict[int, int] = {}
        given = inputs(length, None)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: (seen.__setitem__(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()), x)[1],
            lambda x: x,
        ):
            y_BHLV, _ = decayed_delta_rule(*given)
        del y_BHLV
        return sum(seen.values())

    assert kept(64 * CHUNK) < 4.2 * kept(16 * CHUNK)


@pytest.mark.parametrize("length", [2, 65, 130])
def test_one_token_after_the_other_and_parts_equal_the_whole(length: int) -> None:
    *given, state_BHKV = inputs(length, None)
    whole_BHLV, last_BHKV = decayed_delta_rule(*given, state_BHKV)
    for cuts in (list(range(1, length)), [length // 2], [1], [length - 1]):
        held_BHKV, parts = state_BHKV, []
        for start, end in zip([0, *cuts], [*cuts, length], strict=True):
            y_BHLV, held_BHKV = decayed_delta_rule(*(x[:, :, start:end] for x in given), held_BHKV)
            parts.append(y_BHLV)
        close(torch.cat(parts, 2), whole_BHLV, 1e-11)
        close(held_BHKV, last_BHKV, 1e-11)


def test_one_channel_of_decays_is_that_of_all() -> None:
    given = inputs(37, None, channels=1)
    wide = [x.expand(2, 3, 37, 4) if place == 5 else x for place, x in enumerate(given)]
    for one, other in zip(decayed_delta_rule(*given), decayed_delta_rule(*wide), strict=True):
        close(one, other, 1e-13)


def test_where_both_rules_can_they_are_one() -> None:
    given = inputs(70, -0.4)
    for one, other in zip(decayed_delta_rule(*given), generalised_delta_rule(*given), strict=True):
        close(one, other, 1e-11)


def test_with_one_decay_a_head_it_is_the_gated_rule() -> None:
    q_BHLK, _, k_BHLK, _, v_BHLV, log_BHL1, state_BHKV = inputs(70, None, channels=1)
    beta_BHL1 = 2 * torch.rand(2, 3, 70, 1).double()
    expected = gated_delta_rule(q_BHLK, k_BHLK, v_BHLV, beta_BHL1[..., 0], log_BHL1[..., 0], state_BHKV)
    found = decayed_delta_rule(
        q_BHLK, log_BHL1.exp() * k_BHLK, beta_BHL1 * k_BHLK, k_BHLK, beta_BHL1 * v_BHLV, log_BHL1, state_BHKV
    )
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_decays_of_any_strength_lose_no_digits_in_fp32(beta: float) -> None:
    """Against the loop in double: some tokens keep all, some nothing; and every gradient is finite."""
    *_, v_BHLV, log_BHLK, state_BHKV = inputs(260, None)
    log_BHLK = torch.where(torch.rand(2, 3, 260, 4) < 0.2, -300 * torch.rand(2, 3, 260, 4), -1e-3).double()
    log_BHLK[:, :, 100] = -torch.inf
    k_BHLK = torch.full((2, 3, 260, 4), 0.5, dtype=torch.float64)
    made = [torch.randn_like(k_BHLK), log_BHLK.exp() * k_BHLK, beta * k_BHLK, k_BHLK, v_BHLV, log_BHLK, state_BHKV]
    rounded = [x.detach().float().requires_grad_() for x in made]
    y_BHLV, last_BHKV = decayed_delta_rule(*rounded)
    expected_BHLV, _ = naive(*(x.double() for x in rounded))
    assert (y_BHLV - expected_BHLV).abs().max() < 2e-5 * expected_BHLV.abs().max()
    for gradient in with_gradients((y_BHLV, last_BHKV), rounded):
        assert bool(gradient.isfinite().all())


def one_layer(config: KDAConfig) -> nn.Module:
    return lively(config.block(0).layers[0])


def test_with_equal_gates_erasing_and_writing_is_kda() -> None:
    """b = e, the same in all channels of a head."""
    one, two = (one_layer(cls(d_model=12, num_heads=3)) for cls in (KDAConfig, GatedDeltaNet2Config))
    weights = {name: value for name, value in one.state_dict().items() if not name.startswith("beta")}
    spread_HD = one.beta.weight.repeat_interleave(4, 0)
    two.load_state_dict(weights | {"erase.weight": spread_HD, "write.weight": spread_HD})
    x_BLD = torch.randn(2, 21, 12, dtype=torch.float64)
    close(two(x_BLD, Context()), one(x_BLD, Context()), 1e-12)


def test_an_open_loop_is_the_gated_delta_net() -> None:
    """Comba with p = k, which its sigmoid reaches in the limit, and m = 0; values as wide as keys."""
    comba = one_layer(CombaConfig(d_model=12, num_heads=3, expand_v=1))
    gated = one_layer(GatedDeltaNetConfig(d_model=12, num_heads=3))  # pyright: ignore[reportArgumentType]
    weights = {name: value for name, value in comba.state_dict().items() if name not in ("share", "correction")}
    gated.load_state_dict(weights)
    gated.norm.eps = 1e-5 * 4  # as Comba divides queries by the root of K
    with torch.no_grad():
        comba.share.fill_(50.0), comba.correction.zero_()
    x_BLD = torch.randn(2, 21, 12, dtype=torch.float64)
    close(comba(x_BLD, Context()), gated(x_BLD, Context()), 1e-9)


@pytest.mark.parametrize("cls", [KDAConfig, GatedDeltaNet2Config, CombaConfig])
def test_a_decay_starts_where_the_paper_has_it(cls: type[KDAConfig]) -> None:
    layer = cls(d_model=64, num_heads=8).block(0).layers[0]
    rate_H, dt_X = layer.A_log.exp(), nn.functional.softplus(layer.dt_bias)
    assert rate_H.min() > 0 and rate_H.max() <= 16.001 and dt_X.min() > 9e-4 and dt_X.max() < 0.11
    assert len(dt_X) == (8 if cls is CombaConfig else 64)


def test_values_may_be_wider() -> None:
    config = KDAConfig(d_model=12, num_heads=3, num_blocks=1, expand_v=3)
    assert config.block(0).layers[0].out.weight.shape == (12, 36)
    with pytest.raises(ValueError, match="kda: expand_v must be at least 1, not 0"):
        KDAConfig(expand_v=0)
