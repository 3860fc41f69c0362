"""PD-SSM's maps in C where numbers are equal, large or none, and what is kept of them."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.one_hot.reference import Form, one_hot_loop
from support.layers import close, gradients, kept_for_backward
from support.operation_tables import TABLES, Case, drawn

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
(TABLE,) = (table for table in TABLES if table.kernel == "native_one_hot")
native = named("native_one_hot").call


def inputs(length: int, places: int = 5) -> list[Tensor]:
    return drawn(TABLE, Case({"L": length, "V": places}))


def test_the_first_of_equals_is_taken() -> None:
    """Columns that come twice are equal to the last bit: what the later ones would read is never seen."""
    share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2 = (x.detach() for x in inputs(1, 6))
    twice_KNN = maps_KNN[..., :3].repeat(1, 1, 2)
    expected = one_hot_loop(share_BLK, twice_KNN, d_BLN2, b_BLN2, h_BN2, "gather")
    h_BN2[:, 3:] = torch.nan
    close(native(share_BLK, twice_KNN, d_BLN2, b_BLN2, h_BN2, "gather"), expected)


@pytest.mark.parametrize("form", ["gather", "scatter"])
def test_scores_of_any_size_and_of_none(form: Form) -> None:
    """In fp32. Where a score is no number there is a loss to see, not an index out of range."""
    for scale in (1e-30, 1e4, 1e30, torch.nan):
        given = [x.detach().float() for x in inputs(33)]
        given[1] *= scale
        leaves = [x.requires_grad_() for x in given]
        h_BLN2 = native(*leaves, form)
        assert bool(torch.isfinite(h_BLN2).all())
        finite = all(bool(torch.isfinite(x).all()) for x in gradients(h_BLN2, leaves))
        assert finite == (scale == scale)


def test_no_map_is_kept() -> None:
    places, rows, maps = 32, 2, 4
    kept = [kept_for_backward(lambda length=length: native(*inputs(length, places), "gather")) for length in (100, 200)]
    a_token = (kept[1] - kept[0]) / (rows * 100)
    assert a_token == 8 * (2 * places + 2 * places + maps) + 4 * places, "scales, states, shares, and places"
