"""Mini-batches of fast weights in C against plain torch, which is held to training steps in test_ttt_linear.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_fast_weights import native_fast_weights
from chomsky_ladder.models.scans.fast_weights import Norm, fast_weights_from
from chomsky_ladder.models.ttt_linear import TTTLinearConfig
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def inputs(length: int, *, size: int = 16, width: int = 4) -> list[Tensor]:
    """Two rows of three heads: q, k, v, rates of tokens and places, the scale and shift of the norm, and M."""
    q_BHLK, k_BHLK, v_BHLK = torch.randn(3, 2, 3, length, width, dtype=torch.float64)
    rates = (torch.rand(2, 3, length).double() / width, torch.rand(size).double())
    norm = (1 + torch.randn(3, 1, width).double() / 3, torch.randn(3, 1, width).double())
    made = [q_BHLK, k_BHLK, v_BHLK, *rates, *norm, torch.randn(2, 3, width + 1, width).double()]
    return [x.detach().requires_grad_() for x in made]


def in_c(*given: Tensor) -> Tensor:
    return native_fast_weights(*given[:5], Norm(*given[5:7]), given[7])


def in_torch(*given: Tensor) -> Tensor:
    return fast_weights_from(*given[:5], Norm(*given[5:7]), given[7])


def agree(given: list[Tensor], tolerance: float = 1e-10) -> None:
    found, expected = in_c(*given), in_torch(*given)
    close(found, expected, tolerance)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, tolerance)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, full(64), full(130)])
def test_in_c_is_in_torch(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize(("size", "width"), [(1, 4), (3, 17), (16, 16), (20, 1), (40, 33), (64, 2)])
def test_mini_batches_and_heads_of_any_size(size: int, width: int) -> None:
    """A row of one is its own mean: it descends nowhere."""
    agree(inputs(45, size=size, width=width), 1e-8)


def test_rows_that_are_parts_of_others() -> None:
    """As heads of a projection lie in memory."""
    q, k, v, *rest = inputs(19)
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v)]
    agree([*turned, *rest])


def test_it_stacks() -> None:
    """Replicas of all but what tokens ask give what each gives alone, gradients too."""
    many = [inputs(21) for _ in range(3)]
    q = many[0][0]
    stacked = [torch.stack([each[i] for each in many]).detach().requires_grad_() for i in range(1, len(many[0]))]
    together = torch.vmap(lambda *x: in_c(q, *x))(*stacked)
    alone = torch.stack([in_c(q, *(x[i] for x in stacked)) for i in range(3)])
    close(together, alone, 1e-11)
    leaves = [q, *stacked]
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other, 1e-10)


def test_no_number_stays_in_its_row() -> None:
    given = inputs(20)
    with torch.no_grad():
        given[1][0, 1, 5] = torch.nan
    z_BHLK = in_c(*given)
    assert torch.isnan(z_BHLK[0, 1, 16:]).all()
    z_BHLK[0, 1] = 0
    assert torch.isfinite(z_BHLK).all()


def test_the_layer_takes_it_unless_the_state_is_asked_for() -> None:
    layer = lively(TTTLinearConfig(d_model=8, num_heads=2).block(0).layers[0])
    x_BLD, ctx = torch.randn(2, 70, 8, dtype=torch.float64), Context()
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-10)
    assert "native_fast_weights" in ctx.backends
    ctx, state = Context(), layer.init_state(2, max_length=70, device=x_BLD.device, dtype=x_BLD.dtype)
    close(layer.extend(x_BLD, state, ctx)[0], layer(x_BLD, Context(backend="reference")), 1e-10)
    assert not ctx.backends
