"""Convolutions as long as the sequence: by transforms, by matrices and in C they are the sum over all lags."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations import long_conv
from chomsky_ladder.models.operations.long_conv import long_convolution
from chomsky_ladder.models.operations.long_conv.reference import by_matrices, convolved
from support.cases import full
from support.layers import close, gradients

torch.set_num_threads(1)
needs_a_compiler = pytest.mark.skipif(bool(missing()), reason=missing())

native_long_convolution = named("native_long_conv").call
FORMS = [convolved, by_matrices, pytest.param(native_long_convolution, marks=needs_a_compiler)]
LENGTHS = (1, 2, 7, 8, 9, 40, full(70))


def summed(z_BND: Tensor, taps_TD: Tensor) -> Tensor:
    """Compute the convolution by its definition, one product after the other."""
    y_BND = torch.zeros_like(z_BND)
    for t, taps_D in enumerate(taps_TD):
        y_BND = y_BND + torch.cat([torch.zeros_like(z_BND[:, :t]), taps_D * z_BND[:, : z_BND.shape[1] - t]], 1)
    return y_BND


def both(form: Callable[[Tensor, Tensor], Tensor], z_BND: Tensor, taps_TD: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and gradients of a form and of the sum."""
    answers = []
    for act in (form, summed):
        leaves = [z_BND.detach().requires_grad_(), taps_TD.detach().requires_grad_()]
        y_BND = act(*leaves)
        answers.append([y_BND, *gradients(y_BND, leaves)])
    return answers[0], answers[1]


def test_the_convolution_on_plain_numbers() -> None:
    z_BND = torch.tensor([[[1.0], [2.0], [0.0], [-1.0]]], dtype=torch.float64)
    taps_TD = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.float64)
    expected = torch.tensor([[[1.0], [12.0], [120.0], [1199.0]]], dtype=torch.float64)
    close(convolved(z_BND, taps_TD, length=4), expected, 1e-12)
    close(convolved(z_BND, taps_TD, length=2), expected[:, 2:], 1e-12)
    close(convolved(z_BND, taps_TD, length=1), expected[:, 3:], 0)
    close(convolved(z_BND, taps_TD[:2], length=1), torch.tensor([[[-1.0]]], dtype=torch.float64), 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("width", [1, 16, 21])
def test_every_form_is_the_sum_over_lags(form: Callable[[Tensor, Tensor], Tensor], length: int, width: int) -> None:
    for taps in sorted({1, length // 3 + 1, max(1, length - 1), length}):
        z_BND = torch.randn(3, length, width, dtype=torch.float64)
        for one, other in zip(*both(form, z_BND, torch.randn(taps, width, dtype=torch.float64)), strict=True):
            close(one, other, 1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_replicas_with_taps_of_their_own(form: Callable[[Tensor, Tensor], Tensor]) -> None:
    z_RBND, taps_RTD = torch.randn(3, 2, 9, 5, dtype=torch.float64), torch.randn(3, 9, 5, dtype=torch.float64)
    apart = torch.stack([summed(z_BND, taps_TD) for z_BND, taps_TD in zip(z_RBND, taps_RTD, strict=True)])
    close(torch.vmap(form)(z_RBND, taps_RTD), apart, 1e-12)
    shared = torch.stack([summed(z_RBND[0], taps_TD) for taps_TD in taps_RTD])
    close(torch.vmap(form, in_dims=(None, 0))(z_RBND[0], taps_RTD), shared, 1e-12)
    moved = torch.vmap(form, in_dims=(0, 1), out_dims=1)(z_RBND, taps_RTD.movedim(0, 1))
    close(moved.movedim(1, 0), apart, 1e-12)


@needs_a_compiler
def test_parts_of_longer_rows_and_what_is_turned() -> None:
    wide_BNE, taps_DT = torch.randn(2, 11, 12, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    for z_BND in (wide_BNE[..., 3:8], wide_BNE[:, :, :5].mT.contiguous().mT, wide_BNE[:1, :, :5].expand(3, 11, 5)):
        for one, other in zip(*both(native_long_convolution, z_BND, taps_DT.T), strict=True):
            close(one, other, 1e-12)


@needs_a_compiler
def test_nothing_reaches_back_in_time_nor_into_another_string() -> None:
    z_BND, taps_TD = torch.randn(3, 20, 17), torch.randn(20, 17)
    whole = native_long_convolution(z_BND, taps_TD)
    z_BND[1, 7] = torch.nan
    found = native_long_convolution(z_BND, taps_TD)
    assert bool(found[1, 7:].isnan().all())
    assert torch.equal(found[1, :7], whole[1, :7]) and torch.equal(found[[0, 2]], whole[[0, 2]])


@needs_a_compiler
def test_in_single_precision_it_is_as_good_as_transforms() -> None:
    z_BND, taps_TD = torch.randn(4, 200, 16, dtype=torch.float64), torch.randn(200, 16, dtype=torch.float64)
    exact = both(convolved, z_BND, taps_TD)[1]
    theirs, ours = (both(form, z_BND.float(), taps_TD.float())[0] for form in (convolved, native_long_convolution))
    for right, one, other in zip(exact, ours, theirs, strict=True):
        assert (one - right).abs().mean() < 1.5 * (other - right).abs().mean()


@needs_a_compiler
def test_up_to_a_length_and_where_nothing_is_traced_it_is_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    z_BND, taps_TD, ctx = torch.randn(1, 9, 3), torch.randn(9, 3), Context()
    found = long_convolution(ctx, z_BND, taps_TD)
    assert ctx.backends == {"native_long_conv"} and torch.equal(found, native_long_convolution(z_BND, taps_TD))
    monkeypatch.setattr(long_conv, "LONGEST_IN_C", 8)
    ctx = Context()
    assert torch.equal(long_convolution(ctx, z_BND, taps_TD), convolved(z_BND, taps_TD)) and not ctx.backends


def test_a_gpu_multiplies_matrices_up_to_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(long_conv, "by_matrices", lambda *given: taken.append("matrices"))
    monkeypatch.setattr(long_conv, "convolved", lambda *given: taken.append("transforms"))
    with FakeTensorMode():
        for length, backend in ((long_conv.LONGEST, "auto"), (long_conv.LONGEST + 1, "auto")):
            given = torch.empty(1, length, 3, device="cuda"), torch.empty(length, 3, device="cuda")
            long_convolution(Context(backend=backend), *given)
    assert taken == ["matrices", "transforms"]
