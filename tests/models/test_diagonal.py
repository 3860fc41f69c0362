"""The diagonal scan: worked numbers, both fast forms against the loop in value and gradient, extremes, stacking."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.diagonal import diagonal_scan
from chomsky_ladder.models.operations.diagonal import reference as _diagonal
from chomsky_ladder.models.operations.diagonal.reference import scan_loop
from support.layers import close, gradients

torch.set_num_threads(1)

FORMS = {"in_place": _diagonal.in_place, "doubled": _diagonal.doubled}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the form that a CPU uses, or use a GPU's form in its place."""
    monkeypatch.setattr(_diagonal, "in_place", FORMS[request.param])
    return request.param


def drawn(*axes: int, length: int, width: int = 3) -> list[Tensor]:
    a_BLD = torch.rand(*axes, length, width, dtype=torch.float64)
    u_BLD, h_BD = torch.randn_like(a_BLD), torch.randn(*axes, width, dtype=torch.float64)
    return [x.requires_grad_() for x in (a_BLD, u_BLD, h_BD)]


def test_the_worked_example(form: str) -> None:
    a, u, h = (torch.tensor(x)[None, ..., None] for x in ([0.5, 0.5, 0.0], [1.0, 1.0, 1.0], 4.0))
    for ctx in (Context(), Context(backend="reference")):
        h_BLD, last_BD = diagonal_scan(a, u, h, ctx)
        assert h_BLD.flatten().tolist() == [3, 2.5, 1] and last_BD.tolist() == [[1]]
    assert u.flatten().tolist() == [1, 1, 1]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 33, 130])
def test_both_forms_are_the_loop_in_value_and_gradient(form: str, length: int) -> None:
    inputs = drawn(2, 2, length=length)
    found, expected = (
        torch.cat([h_BLD, last_BD[..., None, :]], -2)
        for h_BLD, last_BD in (diagonal_scan(*inputs, Context()), scan_loop(*inputs))
    )
    close(found, expected, 1e-13)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-12)


def test_decays_of_0_and_1_are_exact_and_large_inputs_finite(form: str) -> None:
    a_BLD = (torch.rand(4, 300, 5) < 0.9).float().requires_grad_()
    u_BLD, h_BD = (1e4 * torch.randn(4, 300, 5)).requires_grad_(), torch.zeros(4, 5)
    h_BLD, _ = diagonal_scan(a_BLD, u_BLD, h_BD, Context())
    restart_BLD = a_BLD == 0
    assert torch.equal(h_BLD[restart_BLD], u_BLD[restart_BLD])
    close(h_BLD.double() / 1e4, scan_loop(a_BLD.double(), u_BLD.double() / 1e4, h_BD.double())[0], 1e-5)
    assert all(bool(torch.isfinite(x).all()) for x in gradients(h_BLD, [a_BLD, u_BLD]))


def test_stacked_rows_and_shared_decays_are_single_ones(form: str) -> None:
    a_BLD, u_RBLD, h_RBD = *drawn(2, length=7)[:1], *drawn(3, 2, length=7)[1:]
    along_last = u_RBLD.movedim(0, -1)
    stacked = torch.vmap(lambda u, h: diagonal_scan(a_BLD, u, h, Context())[0], in_dims=(-1, 0))(along_last, h_RBD)
    single = torch.stack([scan_loop(a_BLD, u, h)[0] for u, h in zip(u_RBLD, h_RBD, strict=True)])
    close(stacked, single, 1e-13)
    inputs = [a_BLD, u_RBLD, h_RBD]
    for one, other in zip(gradients(stacked, inputs), gradients(single, inputs), strict=True):
        close(one, other, 1e-12)


def test_half_precision_is_carried_in_single() -> None:
    a_BLD, u_BLD, h_BD = (x.detach().bfloat16() for x in drawn(2, length=40))
    h_BLD, last_BD = diagonal_scan(a_BLD, u_BLD, h_BD, Context())
    assert h_BLD.dtype == last_BD.dtype == torch.float32
    close(h_BLD.double(), scan_loop(a_BLD.double(), u_BLD.double(), h_BD.double())[0], 1e-6)
