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

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.float64)

    share_BLK, maps_KNN = torch.softmax(3 * normal(batch, length, maps), -1), normal(maps, places, places)
    turn_BLN2 = torch.nn.functional.normalize(normal(batch, length, places, 2), dim=-1)
    d_BLN2, b_BLN2 = turn_BLN2 * torch.rand(batch, length, places, 1), normal(batch, length, places, 2)
    return [x.requires_grad_() for x in (share_BLK, maps_KNN, d_BLN2, b_BLN2, normal(batch, places, 2))]


def agree(given: list[Tensor], form: Form) -> None:
    found, expected = (scan(*given, form) for scan in (native_one_hot, one_hot_loop))
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
def test_what_is_not_contiguous_or_shared_by_all_rows(form: Form) -> None:
    leaves = inputs(9)
    *turned, h_BN2 = (x.mT.contiguous().mT for x in leaves)
    for given in ([*turned, h_BN2], [*leaves[:4], h_BN2[:1].expand(3, -1, -1)]):
        found, expected = (scan(*given, form) for scan in (native_one_hot, one_hot_loop))
        close(found, expected)
        for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
            close(one, other, 1e-10)


@FORMS
def test_it_stacks(form: Form) -> None:
    """Replicas of everything but the state, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7)] for _ in range(3)]
    *stacked, _ = (torch.stack(x).requires_grad_() for x in zip(*many, strict=True))
    h_BN2 = many[0][4].requires_grad_()

    def of(*given: Tensor) -> Tensor:
        return native_one_hot(*given, form)

    together = torch.vmap(of, in_dims=(0, 0, 0, 0, None))(*stacked, h_BN2)
    alone = torch.stack([of(*(x[i] for x in stacked), h_BN2) for i in range(3)])
    close(together, alone, 1e-13)
    leaves = [*stacked, h_BN2]
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other, 1e-12)


def test_the_first_of_equals_is_taken() -> None:
    """Columns that come twice are equal to the last bit: what the later ones would read is never seen."""
    share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2 = (x.detach() for x in inputs(1, places=6))
    twice_KNN = maps_KNN[..., :3].repeat(1, 1, 2)
    expected = one_hot_loop(share_BLK, twice_KNN, d_BLN2, b_BLN2, h_BN2, "gather")
    h_BN2[:, 3:] = torch.nan
    close(native_one_hot(share_BLK, twice_KNN, d_BLN2, b_BLN2, h_BN2, "gather"), expected)


@FORMS
def test_scores_of_any_size_and_of_none(form: Form) -> None:
    """In fp32; where nothing is a number there is a loss to see, not an index out of range."""
    for scale in (1e-30, 1e4, 1e30, torch.nan):
        given = [x.detach().float() for x in inputs(33)]
        given[1] *= scale
        leaves = [x.requires_grad_() for x in given]
        h_BLN2 = native_one_hot(*leaves, form)
        assert bool(torch.isfinite(h_BLN2).all())
        finite = all(bool(torch.isfinite(x).all()) for x in gradients(h_BLN2, leaves))
        assert finite == (scale == scale)


@FORMS
def test_single_precision_is_as_good_as_torchs(form: Form) -> None:
    given = [x.detach() for x in inputs(130, places=32, maps=8)]
    found = []
    for scan, dtype in (
        (one_hot_loop, torch.float64),
        (one_hot_scan, torch.float32),
        (native_one_hot, torch.float32),
    ):
        rounded = [x.to(dtype).requires_grad_() for x in given]
        h_BLN2 = scan(*rounded, form)
        found.append([h_BLN2, *gradients(h_BLN2, rounded)])
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
