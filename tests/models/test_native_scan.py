"""Mamba's scan in C, from its projections to its gate, against the plain form, which stands beside equations elsewhere
(test_mamba.py).
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_scan import CHUNK, native_gated_scan
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.scans.selective import gated_scan
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SIGNS = pytest.mark.parametrize("signed", [False, True])
LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, full(5 * CHUNK + 7))
SCANS = (native_gated_scan, gated_scan)


def inputs(length: int, *, batch: int = 3, channels: int = 19, states: int = 3) -> list[Tensor]:
    """v, dt before its softplus, bias, A, B, C, D, z and h; the channels are a block of sixteen and three more."""
    sequence = (batch, length, channels)
    shapes = [sequence, sequence, (channels,), (states, channels), *[(batch, length, states)] * 2]
    shapes += [(channels,), sequence, (batch, states, channels)]
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    given[3] = -given[3].abs()
    return [x.requires_grad_() for x in given]


def agree(given: list[Tensor], leaves: list[Tensor], signed: bool) -> None:
    for reached in (lambda y, h: y, lambda y, h: h, lambda y, h: y + h.sum()):
        found, expected = (reached(*scan(*given, signed)) for scan in SCANS)
        close(found, expected)
        for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
            close(one, other, 1e-11)


@SIGNS
@pytest.mark.parametrize("length", LENGTHS)
def test_in_c_is_the_plain_form(length: int, signed: bool) -> None:
    given = inputs(length)
    agree(given, given, signed)


@SIGNS
@pytest.mark.parametrize(("channels", "states"), [(1, 1), (16, 16), (33, 2), (17, 5), (3, 7)])
def test_sizes_that_fill_no_block(channels: int, states: int, signed: bool) -> None:
    given = inputs(9, channels=channels, states=states)
    agree(given, given, signed)


def test_what_is_not_contiguous_or_part_of_a_projection() -> None:
    v, dt, bias, A, _, _, D, _, h = inputs(11, states=4)
    parts, both = torch.randn(3, 11, 10).double().requires_grad_(), torch.randn(3, 11, 38).double().requires_grad_()
    turned = [x.mT.contiguous().mT for x in (v, dt, A, h)]
    _, B, C = parts.split([2, 4, 4], -1)
    given = [*turned[:2], bias, turned[2], B, C, D, both.chunk(2, -1)[1], turned[3]]
    agree(given, [v, dt, bias, A, D, h, parts, both], True)
    agree(
        [v, dt, bias, A, B.transpose(0, 1).contiguous().transpose(0, 1), C, D, both[..., ::2], h], [both, parts], False
    )


@SIGNS
def test_it_stacks(signed: bool) -> None:
    """Replicas of everything but v, z and the state, which they share, and which lie on any axis."""
    many = [[x.detach() for x in inputs(CHUNK + 3)] for _ in range(3)]
    shared = {0, 7, 8}
    leaves = [many[0][i] if i in shared else torch.stack(x, -1) for i, x in enumerate(zip(*many, strict=True))]
    leaves = [x.requires_grad_() for x in leaves]
    dims = tuple(None if i in shared else -1 for i in range(len(leaves)))
    together = torch.vmap(partial(native_gated_scan, signed=signed), in_dims=dims)(*leaves)
    each = [[x if i in shared else x[..., r] for i, x in enumerate(leaves)] for r in range(3)]
    alone = [torch.stack(x) for x in zip(*(native_gated_scan(*given, signed) for given in each), strict=True)]
    for one, other in zip(together, alone, strict=True):
        close(one, other, 1e-13)
    for one, other in zip(*(gradients(y[0] + y[1].sum(), leaves) for y in (together, alone)), strict=True):
        close(one, other, 1e-12)


def test_it_carries_gradients_through_the_state_of_a_part() -> None:
    given = inputs(40)
    whole = native_gated_scan(*given, False)
    outputs, h = [], given[8]
    for part in (slice(0, 19), slice(19, 40)):
        v, dt, bias, A, B, C, D, z, _ = given
        y, h = native_gated_scan(v[:, part], dt[:, part], bias, A, B[:, part], C[:, part], D, z[:, part], h, False)
        outputs.append(y)
    parts = torch.cat(outputs, 1), h
    for one, other in zip(parts, whole, strict=True):
        close(one, other)
    for one, other in zip(*(gradients(y[0] + y[1].sum(), given) for y in (parts, whole)), strict=True):
        close(one, other, 1e-11)


@SIGNS
def test_gradients_equal_finite_differences(signed: bool) -> None:
    given = inputs(7, batch=1, channels=2, states=2)
    assert torch.autograd.gradcheck(lambda *x: native_gated_scan(*x, signed), given)


@SIGNS
def test_in_single_precision_it_is_as_near_as_the_plain_form(signed: bool) -> None:
    """Where vectors of sixteen have an exponential of their own; gradients, too."""
    exact = inputs(2 * CHUNK + 5, channels=32, states=6)
    single = [x.detach().float().requires_grad_() for x in exact]

    def all_of(scan: Callable[..., tuple[Tensor, Tensor]], given: list[Tensor]) -> list[Tensor]:
        y, h = scan(*given, signed)
        return [y, h, *gradients(y + h.sum(), given)]

    parts = zip(all_of(gated_scan, exact), all_of(gated_scan, single), all_of(native_gated_scan, single), strict=True)
    for expected, plain, found in parts:
        assert found.dtype == torch.float32
        assert (found - expected).abs().mean() < 2 * (plain - expected).abs().mean() + 1e-7 * expected.abs().mean()


def test_steps_of_any_size_and_of_none() -> None:
    """In fp32: steps that forget everything and steps that keep it; what is no number is seen from there on."""
    for dt in (-1e4, -100.0, 100.0, 1e4):
        given = [x.detach().float() for x in inputs(5)]
        given[1] = torch.full_like(given[1], dt)
        (found, _), (expected, _) = (scan(*given, False) for scan in SCANS)
        torch.testing.assert_close(found, expected, rtol=3e-5, atol=1e-5)
    given = [x.detach().float() for x in inputs(9)]
    given[1][1, 4, 2] = torch.nan
    y_BLE, _ = native_gated_scan(*given, False)
    assert bool(y_BLE[1, 4:, 2].isnan().all()) and int(y_BLE.isnan().sum()) == 5


@pytest.mark.parametrize("eigenvalues", ["positive", "signed"])
def test_the_layer_takes_it(eigenvalues: str) -> None:
    layer = lively(MambaConfig(d_model=6, d_state=4, eigenvalues=eigenvalues).block(0).layers[0])
    x_BLD, ctx = torch.randn(2, 70, 6, dtype=torch.float64), Context()
    plain = layer(x_BLD, Context(backend="reference"))
    close(layer(x_BLD, ctx), plain, 1e-11)
    assert "native_scan" in ctx.backends
    state = layer.init_state(2, max_length=70, device=x_BLD.device, dtype=x_BLD.dtype)
    first_BLD, state = layer.extend(x_BLD[:, :30], state, ctx)
    rest_BLD, _ = layer.extend(x_BLD[:, 30:], state, ctx)
    close(torch.cat([first_BLD, rest_BLD], 1), plain, 1e-11)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = Context()
        layer.float()(x_BLD.float(), half)
    assert "native_scan" in half.backends


def test_under_autocast_it_takes_what_comes_in_less_precision() -> None:
    """The convolution leaves float32, products bfloat16: what it computes is the plain form's, and so are gradients."""
    given = [x.detach().float() for x in inputs(CHUNK + 3)]
    given = [(x.bfloat16() if place in (1, 4, 5, 7) else x).requires_grad_() for place, x in enumerate(given)]
    (y, h), (expected, last) = native_gated_scan(*given, False), gated_scan(*(x.float() for x in given), False)
    assert y.dtype == expected.dtype == torch.float32
    close(y, expected, 1e-5)
    close(h, last, 1e-5)
    for one, other in zip(gradients(y, given), gradients(expected, given), strict=True):
        assert one.dtype == other.dtype
        close(one, other, 1e-5 if one.dtype == torch.float32 else 1e-2)
