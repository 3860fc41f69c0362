"""The matrix of a chunk in C against plain torch, which stands beside steps in the tests of Mamba-2 and Mamba-3."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_chunk import native_weighed
from chomsky_ladder.models.mamba3 import Mamba3Config
from chomsky_ladder.models.scans.ssd import weighed
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

POSITIONS = (1, 2, 7, 15, 16, 17, 33, 40, full(64))


def inputs(positions: int, *, rank: int = 1, groups: int = 2, chunks: int = 3) -> list[Tensor]:
    """Scores, sums of log decays, weights, own weights and skips of two strings and two heads."""
    rows, shape = positions * rank, (2, chunks, 2, positions)
    scores_BCGTS = torch.randn(2, chunks, groups, rows, rows, dtype=torch.float64)
    l_BCHP, weight_BCHP, own_BCHP = (torch.rand(shape, dtype=torch.float64) for _ in range(3))
    made = (scores_BCGTS, -l_BCHP.cumsum(-1), weight_BCHP, own_BCHP, torch.randn(2, dtype=torch.float64))
    return [x.requires_grad_() for x in made]


def agree(given: list[Tensor], tolerance: float = 1e-12) -> None:
    found, expected = (each(*given) for each in (native_weighed, weighed))
    close(found, expected, tolerance)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, tolerance)


@pytest.mark.parametrize("positions", POSITIONS)
def test_in_c_is_in_torch(positions: int) -> None:
    agree(inputs(positions))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_positions_of_several_rows_and_scores_that_heads_share(rank: int, groups: int) -> None:
    for positions in (1, 5, 11):
        agree(inputs(positions, rank=rank, groups=groups))


def test_without_weights_of_their_own_and_not_contiguous() -> None:
    scores_BCGTS, l_BCHP, weight_BCHP, _, skip_H = given = inputs(9, groups=1)
    turned = (scores_BCGTS.mT.contiguous().mT, l_BCHP.transpose(1, 2).contiguous().transpose(1, 2), weight_BCHP)
    found, expected = native_weighed(*turned, None, skip_H), weighed(scores_BCGTS, l_BCHP, weight_BCHP, None, skip_H)
    close(found, expected)
    for one, other in zip(gradients(found, given[:3]), gradients(expected, given[:3]), strict=True):
        close(one, other)


@pytest.mark.parametrize("groups", [1, 2])
def test_it_stacks(groups: int) -> None:
    """Replicas of everything but the skips, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7, groups=groups)] for _ in range(3)]
    *stacked, _ = (torch.stack(x).requires_grad_() for x in zip(*many, strict=True))
    skip_H = many[0][4].requires_grad_()
    together = torch.vmap(native_weighed, in_dims=(0, 0, 0, 0, None))(*stacked, skip_H)
    alone = torch.stack([native_weighed(*(x[i] for x in stacked), skip_H) for i in range(3)])
    close(together, alone)
    leaves = [*stacked, skip_H]
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other)


def test_differences_that_overflow_are_never_raised_to_a_power() -> None:
    """Behind a position's own sums of decays fall by thousands, in fp32 and in float64."""
    for dtype in (torch.float32, torch.float64):
        scores, l_BCHP, weight, own, skip = (x.detach().to(dtype) for x in inputs(33))
        leaves = [x.requires_grad_() for x in (scores, 1e4 * l_BCHP, weight, own, skip)]
        found, expected = native_weighed(*leaves), weighed(*leaves)
        close(found, expected, 1e-6)
        for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
            close(one, other, 1e-4)


def test_the_layer_takes_it() -> None:
    layer = lively(Mamba3Config(d_model=6, head_dim=4, d_state=8, mimo_rank=2).block(0).layers[0])
    x_BLD, ctx = torch.randn(2, 130, 6, dtype=torch.float64), Context()
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-11)
    assert "native_chunk" in ctx.backends
