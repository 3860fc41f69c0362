"""DeltaFormer in C against the plain form, which test_deltaformer.py holds to its equation token by token."""

from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.deltaformer import DeltaFormerConfig, over_the_past
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_deltaformer import native_deltaformer
from chomsky_ladder.models.layers.positions import turns
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.parametrize("asks_by_query", [False, True]),
]


class Given:
    def __init__(self, *replicas: int, length: int, width: int = 6, heads: int = 3) -> None:
        self.heads_BLXK = torch.randn(*replicas, 2, length, 3 * heads, width, dtype=torch.float64).requires_grad_()
        self.turns_2LK = turns(torch.arange(length), width, dtype=torch.float64)
        self.beta_BLH = torch.randn(*replicas, 2, length, heads, dtype=torch.float64).requires_grad_()

    @property
    def leaves(self) -> list[Tensor]:
        return [self.heads_BLXK, self.beta_BLH]

    def read(self, *, native: bool, asks_by_query: bool) -> Tensor:
        act = native_deltaformer if native else over_the_past
        return act(self.heads_BLXK, self.turns_2LK, self.beta_BLH, asks_by_query=asks_by_query)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40, 67])
@pytest.mark.parametrize("width", [2, 6, 16, 20])
def test_in_c_is_the_definition(length: int, width: int, asks_by_query: bool) -> None:
    given = Given(length=length, width=width)
    found, expected = (given.read(native=native, asks_by_query=asks_by_query) for native in (True, False))
    assert found.shape == expected.shape
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, given.leaves), gradients(expected, given.leaves), strict=True):
        close(one, other, 1e-9)


def test_it_stacks(asks_by_query: bool) -> None:
    given = Given(3, length=19)
    read = partial(native_deltaformer, asks_by_query=asks_by_query)
    together = torch.vmap(read, in_dims=(0, None, 0))(given.heads_BLXK, given.turns_2LK, given.beta_BLH)
    each = zip(given.heads_BLXK, given.beta_BLH, strict=True)
    alone = torch.stack([read(heads_BLXK, given.turns_2LK, beta_BLH) for heads_BLXK, beta_BLH in each])
    close(together, alone, 1e-13)
    for one, other in zip(gradients(together, given.leaves), gradients(alone, given.leaves), strict=True):
        close(one, other, 1e-12)


def test_single_precision_is_as_good_as_torchs(asks_by_query: bool) -> None:
    given = Given(length=130, width=16)
    given.heads_BLXK = (3 * given.heads_BLXK).detach().requires_grad_()
    given.beta_BLH = given.beta_BLH.sigmoid().detach().requires_grad_()
    expected = given.read(native=False, asks_by_query=asks_by_query)
    expected = [expected, *gradients(expected, given.leaves)]
    given.heads_BLXK, given.beta_BLH = (x.detach().float().requires_grad_() for x in given.leaves)
    given.turns_2LK = given.turns_2LK.float()
    errors = []
    for native in (True, False):
        y_BLHK = given.read(native=native, asks_by_query=asks_by_query)
        found = [y_BLHK, *gradients(y_BLHK, given.leaves)]
        errors.append([float((x - e).abs().mean().detach()) for x, e in zip(found, expected, strict=True)])
    for ours, theirs in zip(*errors, strict=True):
        assert ours < 2 * theirs


def test_the_future_does_not_matter(asks_by_query: bool) -> None:
    given = Given(length=40)
    with torch.no_grad():
        before = given.read(native=True, asks_by_query=asks_by_query)
        given.heads_BLXK[:, 30:] = 1e6
        after = given.read(native=True, asks_by_query=asks_by_query)
    assert torch.equal(after[:, :30], before[:, :30]) and bool((after[:, 30:] != before[:, 30:]).all())


def test_memory_is_linear_in_the_length(asks_by_query: bool) -> None:
    read = partial(Given.read, native=True, asks_by_query=asks_by_query)
    short, long = (kept_for_backward(partial(read, Given(length=length, width=8))) for length in (256, 512))
    assert long < 2.05 * short


def test_a_layer_with_it_is_the_layer_without(asks_by_query: bool) -> None:
    asks = "query" if asks_by_query else "key"
    layer = lively(DeltaFormerConfig(d_model=24, num_heads=3, asks=asks).attention())
    x_BLD = torch.randn(3, 21, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_deltaformer"}
    close(y_BLD, expected_BLD, 1e-11)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-9)
