"""Attention in C against the plain form, which test_attention.py holds to loops over floats."""

from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.fox import FoXConfig
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_attention import native_attention
from chomsky_ladder.models.layers.attention import Attention, causal_attention
from chomsky_ladder.models.layers.positions import Positions, turns
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, 15, 16, 17, 40, 67)  # a tile has sixteen queries
WIDTHS = (2, 6, 16, 20, 34)
WINDOWS = (1, 5, 16, 31, 100)


class Given:
    """Heads of three queries, or of four that share two of keys, turns and levels, any of which may be left out."""

    def __init__(
        self, length: int, width: int = 6, *, heads: int = 3, keys: int = 3, turned: bool = True, levels: bool = True
    ) -> None:
        self.heads = heads
        self.heads_BLXK = torch.randn(2, length, heads + 2 * keys, width, dtype=torch.float64).requires_grad_()
        self.turns_2LK = turns(torch.arange(length), width, dtype=torch.float64) if turned else None
        falling_BLH = torch.rand(2, length, heads, dtype=torch.float64).cumsum(1).neg()
        self.level_BLH = falling_BLH.requires_grad_() if levels else None

    @property
    def leaves(self) -> list[Tensor]:
        return [x for x in (self.heads_BLXK, self.level_BLH) if x is not None]

    def read(self, *, native: bool, window: int = 0) -> Tensor:
        act = native_attention if native else causal_attention
        return act(self.heads_BLXK, self.turns_2LK, self.level_BLH, num_heads=self.heads, window=window)

    def agrees(self, *, window: int = 0, tolerance: float = 1e-11) -> None:
        found, expected = (self.read(native=native, window=window) for native in (True, False))
        assert found.shape == expected.shape
        close(found, expected, tolerance)
        for one, other in zip(gradients(found, self.leaves), gradients(expected, self.leaves), strict=True):
            close(one, other, tolerance)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("levels", [False, True])
def test_in_c_is_the_definition(length: int, turned: bool, levels: bool) -> None:
    Given(length, turned=turned, levels=levels).agrees()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("heads", "keys"), [(3, 3), (4, 2), (3, 1)])
def test_widths_that_fill_no_vector_and_shared_keys(width: int, heads: int, keys: int) -> None:
    Given(21, width, heads=heads, keys=keys).agrees()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("length", [17, 67])
def test_a_window(length: int, window: int) -> None:
    Given(length).agrees(window=window)


def test_it_stacks() -> None:
    many = [Given(19) for _ in range(3)]
    heads_RBLXK = torch.stack([each.heads_BLXK for each in many]).detach().requires_grad_()
    level_BLH = many[0].level_BLH  # one for all
    assert level_BLH is not None

    def read(heads_BLXK: Tensor, level_BLH: Tensor) -> Tensor:
        return native_attention(heads_BLXK, many[0].turns_2LK, level_BLH, num_heads=3, window=7)

    together = torch.func.vmap(read, in_dims=(0, None))(heads_RBLXK, level_BLH)
    alone = torch.stack([read(heads_BLXK, level_BLH) for heads_BLXK in heads_RBLXK])
    leaves = [heads_RBLXK, level_BLH]
    close(together, alone, 1e-13)
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other, 1e-12)


def test_sharp_scores_in_single_precision() -> None:
    """Scores in the hundreds, and shares that would overflow without the largest score."""
    given = Given(130, 16)
    given.heads_BLXK = (40 * given.heads_BLXK).detach().requires_grad_()
    expected = given.read(native=False)
    d_expected = gradients(expected, given.leaves)
    given.heads_BLXK, given.level_BLH = (x.detach().float().requires_grad_() for x in given.leaves)
    given.turns_2LK = turns(torch.arange(130), 16, dtype=torch.float32)
    errors = []
    for native in (True, False):
        y = given.read(native=native)
        found = [y, *gradients(y, given.leaves)]
        assert all(bool(torch.isfinite(x).all()) for x in found)
        errors.append(
            [float((x - e).abs().mean().detach()) for x, e in zip(found, (expected, *d_expected), strict=True)]
        )
    for ours, theirs in zip(*errors, strict=True):
        assert ours < 3 * theirs


def test_the_future_and_what_is_outside_a_window_do_not_matter() -> None:
    given = Given(40)
    with torch.no_grad():
        before = given.read(native=True, window=8)
        given.heads_BLXK[:, 30:] = 1e6
        given.heads_BLXK[:, :10] = -1e6
        after = given.read(native=True, window=8)
    close(after[:, 17:30], before[:, 17:30], 0.0)
    assert bool((after[:, 30:] != before[:, 30:]).all())


def test_what_is_not_seen_gives_and_gets_nothing_at_all() -> None:
    """Not a number too small to be normal, with which some processors take fifty times as long."""
    heads_BLXK = torch.randn(2, 20, 9, 6, requires_grad=True)
    y_BLHK = native_attention(heads_BLXK, None, None, num_heads=3, window=0)
    y_BLHK[:, 3].square().sum().backward()
    grad_BLXK = heads_BLXK.grad
    assert grad_BLXK is not None and grad_BLXK[:, :4, 3:].abs().min() > 0 == grad_BLXK[:, 4:].abs().max()


def test_memory_is_linear_in_the_length() -> None:
    short, long = (kept_for_backward(partial(Given(length, 8).read, native=True)) for length in (256, 512))
    assert long < 2.05 * short


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("positions", ["rope", "none"])
def test_a_layer_with_it_is_the_layer_without(positions: Positions, gated: bool) -> None:
    layer = lively(Attention(24, 4, num_kv_heads=2, positions=positions, window=9, gated=gated))
    x_BLD = torch.randn(3, 21, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_attention"}
    close(y_BLD, expected_BLD)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("variant", ["plain", "pro"])
def test_forgetting(variant: Literal["plain", "pro"]) -> None:
    layer = lively(FoXConfig(d_model=24, num_heads=3, variant=variant).attention())
    x_BLD = torch.randn(3, 37, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_attention"}
    close(y_BLD, expected_BLD, 1e-11)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-9)


def test_what_sees_ahead_or_has_a_bias_goes_without() -> None:
    for layer in (Attention(8, 2, sees="all"), Attention(8, 2, positions="alibi")):
        ctx = Context()
        layer(torch.randn(2, 5, 8), ctx)
        assert ctx.backends == set()
    ctx = Context()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Attention(8, 2)(torch.randn(2, 5, 8), ctx)
    assert ctx.backends == set()
