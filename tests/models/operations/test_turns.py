"""Turns of NTM's and DNC's memories in C where heads are sure, memories empty and cells used alike."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import missing
from support.layers import as_good_in_single, close, gradients
from support.operation_tables import TABLES, Case, Table, drawn, forms

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
TURING, LINKED = (
    next(table for table in TABLES if table.kernel == kernel) for kernel in ("native_turing", "native_linked")
)


def agree(table: Table, given: list[Tensor]) -> None:
    found, expected = (form(*given) for form in forms(table))
    close(found, expected, 1e-12)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("asked", [-1e3, -50.0, 50.0, 300.0])
@pytest.mark.parametrize("place", [5, 6, 7, 8], ids=["strength", "sharpness", "gate", "shift"])
def test_heads_that_are_sure(place: int, asked: float) -> None:
    """Powers that are 0 in single precision, and gates that are."""
    given = drawn(TURING, Case({"H": 1, "N": 20}))
    given[0].data[:, [place, 11 + place]] = asked
    agree(TURING, given)
    as_good_in_single(*forms(TURING), given)


def test_an_empty_memory_and_heads_at_one_cell() -> None:
    """Make the state at the start of a string: empty cells, equal usage, weightings of zeros and a one."""
    at_0 = torch.eye(9, dtype=torch.float64)[0].expand(2, 4, 9)
    asked, *_ = drawn(TURING)
    agree(TURING, [asked, at_0.clone().requires_grad_(), torch.full((2, 5, 9), 1e-6).double().requires_grad_()])
    asked, *state = drawn(LINKED)
    agree(LINKED, [asked, *(torch.zeros_like(x).requires_grad_() for x in state)])


@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_cells_used_alike_are_filled_in_their_own_order(used: float) -> None:
    for cells in (5, 16, 40):
        given = drawn(LINKED, Case({"H": 1, "N": cells, "W": 3}))
        given[2] = torch.full((2, cells), used, dtype=torch.float64)
        given[2][1, cells // 2 :] = 0.25
        given[3] = torch.zeros_like(given[3])
        given[0].data[:, 4] = -1e3  # nothing is set free
        agree(LINKED, [x.detach().requires_grad_() for x in given])
