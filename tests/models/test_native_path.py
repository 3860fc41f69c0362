"""PaTH's attention in C against its chunks, which stand beside products of reflections in test_path_attention.py."""

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_path import native_path
from chomsky_ladder.models.path_attention import CHUNK, PaTHAttention, PaTHConfig, attended
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, 15, 16, 17, 2 * CHUNK, 2 * CHUNK + 1, 40, full(130))
WIDTHS = (1, 2, 15, 16, 17, 34)


def inputs(length: int, width: int = 6, *, batch: int = 2, gated: bool = True) -> list[Tensor]:
    """q, k, v, w of length 1, b and, where it is gated, sums of log f, of rows of three heads."""

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(batch, 3, length, *sizes, dtype=torch.float64)

    w_BHLK, beta_BHL = nn.functional.normalize(drawn(width), dim=-1), 2 * torch.sigmoid(drawn())
    made = [drawn(width), drawn(width), drawn(width), w_BHLK, beta_BHL]
    made += [-torch.rand(batch, 3, length, dtype=torch.float64).cumsum(-1)] if gated else []
    return [x.detach().requires_grad_() for x in made]


def read(form: object, given: list[Tensor]) -> Tensor:
    assert callable(form)
    return form(*given, *[None] * (6 - len(given)))


def agree(given: list[Tensor]) -> None:
    found, expected = read(native_path, given), read(attended, given)
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_in_c_is_in_chunks(length: int, gated: bool) -> None:
    agree(inputs(length, gated=gated))


@pytest.mark.parametrize("width", WIDTHS)
def test_widths_that_fill_no_vector(width: int) -> None:
    agree(inputs(19, width, batch=3))


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_no_turns_projections_and_reflections(beta: float) -> None:
    given = inputs(33)
    given[4] = torch.full_like(given[4], beta).requires_grad_()
    agree(given)


def test_what_is_contiguous_in_another_order() -> None:
    given = inputs(9)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    close(read(native_path, turned), read(attended, given), 1e-11)


@pytest.mark.parametrize("gated", [False, True])
def test_it_stacks(gated: bool) -> None:
    """Replicas of everything but b, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(18, gated=gated)] for _ in range(3)]
    stacked = [torch.stack(x).requires_grad_() for x in zip(*many, strict=True)]
    stacked[4] = many[0][4].requires_grad_()
    dims = tuple(None if i == 4 else 0 for i in range(len(stacked)))
    together = torch.vmap(lambda *given: read(native_path, list(given)), in_dims=dims)(*stacked)
    alone = torch.stack([read(attended, [x if i == 4 else x[r] for i, x in enumerate(stacked)]) for r in range(3)])
    close(together, alone, 1e-10)
    for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(one, other, 1e-9)


def test_single_precision_is_as_good_as_that_of_chunks() -> None:
    """Over three hundred tokens, against float64."""
    given = [x.detach() for x in inputs(300, 16, batch=4)]
    as_good_in_single(lambda *given: read(native_path, list(given)), lambda *given: read(attended, list(given)), given)


def test_what_is_not_seen_gives_and_gets_nothing_at_all() -> None:
    given = [x.detach().float().requires_grad_() for x in inputs(20)]
    read(native_path, given)[:, :, 3].square().sum().backward()
    for x in given[1:3]:
        assert x.grad is not None and x.grad[:, :, :4].abs().min() > 0 == x.grad[:, :, 4:].abs().max()


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda n=n: read(native_path, inputs(n))) for n in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


@pytest.mark.parametrize("gate", ["none", "forget"])
def test_the_layer_takes_it(gate: Literal["none", "forget"]) -> None:
    x_BLD, ctx = torch.randn(2, 40, 6, dtype=torch.float64), Context()
    layer = lively(PaTHAttention(PaTHConfig(d_model=6, num_heads=2, gate=gate)))
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-10)
    assert "native_path" in ctx.backends
