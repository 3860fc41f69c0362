"""Gates and norms in C against torch's: values and gradients, on widths that fill no vector."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import FEW, missing
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.operations.gate.in_c import native_gated
from chomsky_ladder.models.operations.gate.reference import plain_gated
from chomsky_ladder.models.operations.norm import normed, rms_norm
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

EPS = 1e-3
WIDTHS = pytest.mark.parametrize("width", [1, 3, 16, 17, 50])
Pair = tuple[Callable[..., Tensor], Callable[..., Tensor]]
GATES: Pair = (native_gated, plain_gated)
GELUS: Pair = (partial(native_gated, activation="gelu"), partial(plain_gated, activation="gelu"))
native_rms_norm = named("native_norm").call
NORMS: Pair = (lambda x, w: native_rms_norm(x, w, EPS), lambda x, w: rms_norm.reference(x, w, EPS))


def numbers(*sizes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (3 * torch.randn(*sizes, dtype=dtype)).requires_grad_()


def agree(pair: Pair, leaves: list[Tensor], *given: Tensor | None) -> None:
    found, expected = (act(*given) for act in pair)
    close(found, expected)
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        close(one, other, 1e-12)


@WIDTHS
@pytest.mark.parametrize("pair", [GATES, GELUS])
def test_a_gate_and_the_halves_of_a_projection(width: int, pair: Pair) -> None:
    z, y, both = numbers(2, 70, width), numbers(2, 70, width), numbers(70, 2 * width)
    agree(pair, [z, y], z, y)
    agree(pair, [both], both, None)


@WIDTHS
def test_a_norm(width: int) -> None:
    """Of more rows than are summed together, and of one."""
    weight = numbers(width)
    for x in (numbers(3, 47, width), numbers(1, width), numbers(2, 2, 65, width)):
        agree(NORMS, [x, weight], x, weight)


def test_what_is_not_contiguous() -> None:
    z, y, x, weight = numbers(6, 5, 7), numbers(5, 6, 7), numbers(7, 10), numbers(14)
    agree(GATES, [z, y], z.transpose(0, 1), y)
    agree(GATES, [x], x.mT[:, :6], None)
    agree(NORMS, [x, weight], x.mT, weight[::2])
    found = native_gated(z, y.transpose(0, 1))
    twice = (torch.autograd.grad(found, (z, y), torch.ones(()).double().expand_as(found)),)
    expected = torch.autograd.grad(plain_gated(z, y.transpose(0, 1)).sum(), (z, y))
    for one, other in zip(twice[0], expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("shared", [False, True])
def test_they_stack(shared: bool) -> None:
    """Replicas give what each gives alone, gradients too; a second part may be common to all."""
    z, y, weight = numbers(3, 4, 6), numbers(*([] if shared else [3]), 4, 6), numbers(*([] if shared else [3]), 6)
    dims = (0, None if shared else 0)
    for act, reference, first, second in ((*GATES, z, y), (*GELUS, z, y), (*NORMS, z, weight)):
        together, expected = (torch.vmap(each, in_dims=dims)(first, second) for each in (act, reference))
        close(together, expected)
        for one, other in zip(gradients(together, [first, second]), gradients(expected, [first, second]), strict=True):
            close(one, other, 1e-12)
    for act, reference in (GATES, GELUS):
        close(torch.vmap(act, in_dims=1)(z), torch.vmap(reference, in_dims=1)(z))


@pytest.mark.parametrize(("pair", "largest"), [(GATES, torch.inf), (GELUS, 1e30)])  # of infinity torch's gelu is none
def test_gates_of_any_size_and_what_is_no_number(pair: Pair, largest: float) -> None:
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor([0.0, -0.0, 1e-30, 90.0, -90.0, 1e4, -1e4, largest, torch.nan, 1.0], dtype=dtype)
        y = torch.ones_like(z).requires_grad_()
        found, expected = (act(z, y) for act in pair)
        torch.testing.assert_close(found, expected, equal_nan=True, atol=1e-30, rtol=1e-6)
        of_y, expected_of_y = (torch.autograd.grad(each[:7].sum(), y)[0][:7] for each in (found, expected))
        assert bool(of_y.isfinite().all())
        close(of_y, expected_of_y, 1e-6)
    x = torch.ones(3, 4)
    x[1, 2] = torch.nan
    assert native_rms_norm(x, torch.ones(4), EPS).isnan().any(1).tolist() == [False, True, False]
    assert bool((native_rms_norm(torch.zeros(2, 4), torch.ones(4), EPS) == 0).all())


def test_single_precision_is_as_good_as_torchs() -> None:
    given = [z.detach() for z in (numbers(300, 33), numbers(300, 33), numbers(33))]
    for pair, (i, j) in ((GATES, (0, 1)), (GELUS, (0, 1)), (NORMS, (0, 2))):
        found = []
        for act, dtype in ((pair[1], torch.float64), (pair[1], torch.float32), (pair[0], torch.float32)):
            leaves = [given[i].to(dtype).requires_grad_(), given[j].to(dtype).requires_grad_()]
            y = act(*leaves)
            found.append([y, *torch.autograd.grad((y * y).sum(), leaves)])
        for exact, theirs, ours in zip(*found, strict=True):
            assert (ours - exact).abs().max() <= 3 * (theirs - exact).abs().max()
            assert (ours - exact).abs().mean() <= 2 * (theirs - exact).abs().mean()


def test_layers_take_them_where_they_can() -> None:
    """And leave a decoded token, other precisions, and inputs of two shapes or precisions to torch."""
    norm, x = torch.nn.RMSNorm(16), torch.randn(FEW // 16, 16)
    for z, y, w, taken in (
        (x, None, x, {"native_gate", "native_norm"}),
        (x, x, x, {"native_gate", "native_norm"}),
        (x[1:], None, x[1:], set()),
        (x.bfloat16(), None, x.double(), set()),
        (x, x.double(), x[1:], set()),
        (x, x[:1], x[1:], set()),
    ):
        ctx = Context()
        close(gated(z, y, ctx=ctx), plain_gated(z, y), 1e-6 if z.dtype == torch.float32 else 0)
        if w.dtype == torch.float32:
            close(normed(w, norm, ctx), norm(w), 1e-6)
        assert ctx.backends == taken
    ctx = Context(backend="reference")
    assert bool((normed(x, norm, ctx) == norm(x)).all()) and bool((gated(x, ctx=ctx) == plain_gated(x)).all())
    ctx, other = Context(), torch.nn.LayerNorm(16)
    assert bool((normed(x, other, ctx) == other(x)).all()) and not ctx.backends
