"""The recurrence of PD-SSM in C against its definition in matrices, which stands beside automata in test_pd_ssm.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_one_hot import native_one_hot
from chomsky_ladder.models.pd_ssm import PDBlock, PDSSMConfig
from chomsky_ladder.models.scans.one_hot import Form, one_hot_loop, one_hot_scan
from support.cases import full
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

FORMS = pytest.mark.parametrize("form", ["gather", "scatter"])
LENGTHS = (1, 2, 7, 33, 40, full(130))
SIZES = (
    (1, 1),
    (1, 9),
    (16, 8),
    (17, 9),
    (40, 17),
    (3, 1),
)  # of places and maps: groups have sixteen tokens, eight maps


def inputs(length: int, *, batch: int = 3, places: int = 5, maps: int = 3) -> list[Tensor]:
    """Shares, maps, scales, inputs and a state."""

    def number(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.complex128)

    share_BLK = torch.softmax(3 * torch.randn(batch, length, maps, dtype=torch.float64), -1)
    maps_KNN, turn_BLN = torch.randn(maps, places, places, dtype=torch.float64), number(batch, length, places)
    d_BLN = turn_BLN / turn_BLN.abs() * torch.rand(batch, length, places)
    b_BLN, h_BN = number(batch, length, places), number(batch, places)
    return [x.requires_grad_() for x in (share_BLK, maps_KNN, d_BLN, b_BLN, h_BN)]


def agree(given: list[Tensor], form: Form) -> None:
    found, expected = (torch.view_as_real(scan(*given, form)) for scan in (native_one_hot, one_hot_loop))
    close(found, expected)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@FORMS
@pytest.mark.parametrize("length", LENGTHS)
def test_in_c_is_the_definition(form: Form, length: int) -> None:
    agree(inputs(length), form)


@FORMS
@pytest.mark.parametrize(("places", "maps"), SIZES)
def test_sizes_that_fill_no_group(form: Form, places: int, maps: int) -> None:
    agree(inputs(11, places=places, maps=maps), form)


@FORMS
def test_what_is_not_contiguous_conjugate_or_shared_by_all_rows(form: Form) -> None:
    share_BLK, maps_KNN, d_BLN, b_BLN, h_BN = inputs(9)
    turned = [x.mT.contiguous().mT for x in (share_BLK, maps_KNN, d_BLN, b_BLN)]
    for given in ([*turned, h_BN], [share_BLK, maps_KNN, d_BLN.conj(), b_BLN, h_BN[:1].expand(3, -1)]):
        found, expected = (torch.view_as_real(scan(*given, form)) for scan in (native_one_hot, one_hot_loop))
        close(found, expected)
        leaves = [share_BLK, maps_KNN, d_BLN, b_BLN, h_BN]
        for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
            close(one, other, 1e-10)


@FORMS
def test_it_stacks(form: Form) -> None:
    """Replicas of everything but the state, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7)] for _ in range(3)]
    *stacked, _ = (torch.stack(x).requires_grad_() for x in zip(*many, strict=True))
    h_BN = many[0][4].requires_grad_()

    def of(*given: Tensor) -> Tensor:
        return torch.view_as_real(native_one_hot(*given, form))

    together = torch.vmap(of, in_dims=(0, 0, 0, 0, None))(*stacked, h_BN)
    alone = torch.stack([of(*(x[i] for x in stacked), h_BN) for i in range(3)])
    close(together, alone, 1e-13)
    leaves = [*stacked, h_BN]
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other, 1e-12)


def test_the_first_of_equals_is_taken() -> None:
    """Columns that come twice are equal to the last bit: what the later ones would read is never seen."""
    share_BLK, maps_KNN, d_BLN, b_BLN, h_BN = (x.detach() for x in inputs(1, places=6))
    twice_KNN = maps_KNN[..., :3].repeat(1, 1, 2)
    expected = one_hot_loop(share_BLK, twice_KNN, d_BLN, b_BLN, h_BN, "gather")
    h_BN[:, 3:] = torch.nan
    found = native_one_hot(share_BLK, twice_KNN, d_BLN, b_BLN, h_BN, "gather")
    close(torch.view_as_real(found), torch.view_as_real(expected))


@FORMS
def test_scores_of_any_size_and_of_none(form: Form) -> None:
    """In fp32; where nothing is a number there is a loss to see, not an index out of range."""
    for scale in (1e-30, 1e4, 1e30, torch.nan):
        given = [x.detach().to(torch.complex64 if x.is_complex() else torch.float32) for x in inputs(33)]
        given[1] *= scale
        leaves = [x.requires_grad_() for x in given]
        h_BLN2 = torch.view_as_real(native_one_hot(*leaves, form))
        assert bool(torch.isfinite(h_BLN2).all())
        finite = all(bool(torch.isfinite(torch.abs(x)).all()) for x in gradients(h_BLN2, leaves))
        assert finite == (scale == scale)


@FORMS
def test_single_precision_is_as_good_as_torchs(form: Form) -> None:
    given = [x.detach() for x in inputs(130, places=32, maps=8)]
    found = []
    for scan, real, complex_ in (
        (one_hot_loop, torch.float64, torch.complex128),
        (one_hot_scan, torch.float32, torch.complex64),
        (native_one_hot, torch.float32, torch.complex64),
    ):
        rounded = [x.to(complex_ if x.is_complex() else real).requires_grad_() for x in given]
        h_BLN2 = torch.view_as_real(scan(*rounded, form))
        found.append([h_BLN2, *(torch.view_as_real(x) if x.is_complex() else x for x in gradients(h_BLN2, rounded))])
    for exact, theirs, ours in zip(*found, strict=True):
        assert (ours - exact).abs().max() < max(3 * (theirs - exact).abs().max(), 1e-6 * exact.abs().max())


@FORMS
def test_the_block_takes_it(form: Form) -> None:
    block = lively(PDBlock(PDSSMConfig(d_model=6, d_state=5, num_maps=3, form=form)))
    x_BLD, outputs = torch.randn(2, 33, 6, dtype=torch.float64), []
    for backend in ("auto", "reference"):
        ctx = Context(backend=backend)
        outputs.append(block(x_BLD, ctx))
        assert ctx.backends == ({"native_one_hot"} if backend == "auto" else set())
    close(*outputs)


def test_memory_is_linear_in_the_length_and_has_no_maps_in_it() -> None:
    places = 32

    def kept(length: int) -> int:
        return kept_for_backward(lambda: native_one_hot(*inputs(length, places=places), "gather"))

    a_token = (kept(200) - kept(100)) / (3 * 100)
    assert a_token == (kept(400) - kept(200)) / (3 * 200)
    assert a_token == 8 * (2 * places + 2 * places + 3) + 4 * places, "scales, states, shares, and places"
