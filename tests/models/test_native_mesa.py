"""The mesa layer's recurrence in C against its chunks, which stand beside whole systems in test_mesa_net.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import usable
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_mesa import CHUNK, LARGEST, native_mesa
from chomsky_ladder.models.mesa_net import MesaNetConfig
from chomsky_ladder.models.scans.mesa import mesa
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 33, 40, full(130))
WIDTHS = ((1, 1), (4, 5), (5, 4), (16, 16), (17, 3), (3, 20))  # of keys and values


def inputs(length: int, widths: tuple[int, int] = (4, 5), *, batch: int = 2) -> list[Tensor]:
    """q, k, v, beta, log decay, H and G of rows of three heads."""
    keys, values = widths

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(batch, 3, *sizes, dtype=torch.float64)

    beta_BHL, decay_BHL = (torch.rand(batch, 3, length, dtype=torch.float64) for _ in range(2))
    root_BHKK, q_BHLK, k_BHLK = drawn(keys, keys), drawn(length, keys), drawn(length, keys) / keys**0.5
    made = (q_BHLK, k_BHLK, drawn(length, values), beta_BHL, decay_BHL.log() / 4)
    return [x.requires_grad_() for x in (*made, root_BHKK @ root_BHKK.mT / keys, drawn(keys, values))]


def native(*given: Tensor) -> Tensor:
    """y and the last state, one behind the other."""
    *given, H_BHKK, G_BHKV = given
    y_BHLV, (H_BHKK, G_BHKV) = native_mesa(*given, (H_BHKK, G_BHKV))
    return torch.cat([x.flatten() for x in (y_BHLV, H_BHKK, G_BHKV)])


def chunked(*given: Tensor) -> Tensor:
    *given, H_BHKK, G_BHKV = given
    y_BHLV, (H_BHKK, G_BHKV) = mesa(*given, (H_BHKK, G_BHKV))
    return torch.cat([x.flatten() for x in (y_BHLV, H_BHKK, G_BHKV)])


def agree(given: list[Tensor], tolerance: float = 1e-10) -> None:
    found, expected = native(*given), chunked(*given)
    close(found, expected, tolerance)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, tolerance)


@pytest.mark.parametrize("length", LENGTHS)
def test_in_c_is_in_chunks(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize("widths", WIDTHS)
def test_widths_that_fill_no_four(widths: tuple[int, int]) -> None:
    agree(inputs(CHUNK + 3, widths))


@pytest.mark.parametrize("batch", [1, 5, 6, 11])
def test_rows_that_fill_no_vector(batch: int) -> None:
    agree(inputs(3, batch=batch))


@pytest.mark.parametrize("part", [0, 1])
def test_the_gradient_of_the_outputs_or_of_the_state_alone(part: int) -> None:
    given = inputs(CHUNK + 2)
    outputs = 2 * 3 * (CHUNK + 2) * 5
    found, expected = (x[:outputs] if part == 0 else x[outputs:] for x in (native(*given), chunked(*given)))
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


def test_decays_that_forget_all_and_nothing_and_what_is_not_written() -> None:
    for decay, beta in ((0.0, 1.0), (-1e4, 1.0), (0.0, 0.0)):
        given = inputs(20)
        given[3], given[4] = (torch.full_like(given[3], x).requires_grad_() for x in (beta, decay))
        agree(given)


def test_what_is_not_contiguous() -> None:
    given = inputs(9)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    close(native(*turned), chunked(*given), 1e-10)


def test_it_stacks() -> None:
    """Replicas of everything but G, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(CHUNK + 1)] for _ in range(3)]
    *stacked, _ = (torch.stack(x).requires_grad_() for x in zip(*many, strict=True))
    G_BHKV = many[0][6].requires_grad_()
    together = torch.vmap(native, in_dims=(*[0] * 6, None))(*stacked, G_BHKV)
    alone = torch.stack([native(*(x[i] for x in stacked), G_BHKV) for i in range(3)])
    close(together, alone)
    leaves = [*stacked, G_BHKV]
    for one, other in zip(gradients(together, leaves), gradients(alone, leaves), strict=True):
        close(one, other)


def test_single_precision_is_as_good_as_that_of_chunks() -> None:
    """Over three hundred tokens of which next to none is forgotten, against float64."""
    given = [x.detach() for x in inputs(300, (16, 16))]
    given[4] = torch.full_like(given[4], -1e-4)
    as_good_in_single(native, chunked, given)


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda length=length: native(*inputs(length))) for length in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_who_takes_it() -> None:
    x_BLD = torch.randn(2, 33, 6, dtype=torch.float64)
    for steps in (0, 20):
        layer = lively(MesaNetConfig(d_model=6, num_heads=2, steps=steps).block(0).layers[0])
        ctx = Context()
        close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-9)
        assert ("native_mesa" in ctx.backends) == (steps == 0), "steps that are asked for are taken"
    assert usable("native_mesa", torch.zeros(1, 1, 8, LARGEST), Context())
    assert not usable("native_mesa", torch.zeros(1, 1, 8, LARGEST + 1), Context())
