"""M2RNN's recurrence in C against its loop, which stands beside its equations in test_m2rnn.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_matrix_rnn import native_matrix_rnn
from chomsky_ladder.models.m2rnn import M2RNNConfig
from chomsky_ladder.models.scans.matrix_rnn import matrix_rnn_loop
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

HEADS = 3
WIDTHS = ((1, 1), (3, 5), (16, 16), (15, 17), (17, 15), (20, 3), (33, 40))  # of keys and values


def inputs(length: int, widths: tuple[int, int] = (3, 5), *, batch: int = 2) -> list[Tensor]:
    """q, k, v, f, W and a state."""
    keys, values = widths

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.float64)

    q_BLHK, k_BLHK = (drawn(batch, length, HEADS, keys) for _ in range(2))
    f_BLH, W_HVV = torch.sigmoid(drawn(batch, length, HEADS)), drawn(HEADS, values, values) / values**0.5
    made = (q_BLHK, k_BLHK, drawn(batch, length, HEADS, values), f_BLH, W_HVV, drawn(batch, HEADS, keys, values))
    return [x.requires_grad_() for x in made]


def native(*given: Tensor) -> Tensor:
    """y and the last state, one behind the other."""
    return torch.cat([x.flatten() for x in native_matrix_rnn(*given)])


def looped(*given: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in matrix_rnn_loop(*given)])


def agree(given: list[Tensor]) -> None:
    found, expected = native(*given), looped(*given)
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [1, 2, 33, full(130)])
def test_in_c_is_the_loop_from_a_state(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize("widths", WIDTHS)
def test_widths_that_fill_no_vector(widths: tuple[int, int]) -> None:
    agree(inputs(5, widths, batch=3))


@pytest.mark.parametrize("part", [0, 1])
def test_the_gradient_of_the_outputs_or_of_the_state_alone(part: int) -> None:
    given = inputs(9)
    found, expected = (gradients(form(*given)[part], given) for form in (native_matrix_rnn, matrix_rnn_loop))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-10)


def test_gates_that_keep_all_and_nothing() -> None:
    for f in (0.0, 1.0):
        given = inputs(9)
        given[3] = torch.full_like(given[3], f).requires_grad_()
        agree(given)


def test_what_is_not_contiguous() -> None:
    given = inputs(9)
    turned = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in given]
    close(native(*turned), looped(*given), 1e-11)


def test_nan_stays_nan_and_large_numbers_end_at_one() -> None:
    for wrong in (float("nan"), 1e30):
        given = [x.detach().float() for x in inputs(4)]
        given[2][0, 1, 0, 0] = wrong
        for found, expected in zip(native_matrix_rnn(*given), matrix_rnn_loop(*given), strict=True):
            assert torch.equal(found.isnan(), expected.isnan())
            close(found.nan_to_num(), expected.nan_to_num(), 1e-5)


def test_an_infinite_key_spoils_no_more_than_in_the_loop() -> None:
    """Behind the values of a row nothing times infinity is no number, and must not be added up."""
    given = [x.detach().float().requires_grad_() for x in inputs(4)]
    with torch.no_grad():
        given[1][0, 1, 0, 0] = float("inf")
    found, expected = (gradients(form(*given), given) for form in (native, looped))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.isfinite(), other.isfinite())


def test_without_a_gradient_nothing_is_kept_and_no_bit_is_another() -> None:
    given = inputs(9)
    found = native(*given)
    with torch.no_grad():
        assert torch.equal(native(*given), found)


@pytest.mark.parametrize("graded", [True, False])
def test_it_stacks(graded: bool) -> None:
    """Replicas of everything but W, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7)] for _ in range(3)]
    stacked = [torch.stack(x).requires_grad_() for x in zip(*many, strict=True)]
    stacked[4] = many[0][4].requires_grad_()
    with torch.set_grad_enabled(graded):
        together = torch.vmap(native, in_dims=(0, 0, 0, 0, None, 0))(*stacked)
        alone = torch.stack([looped(*(x if i == 4 else x[r] for i, x in enumerate(stacked))) for r in range(3)])
    close(together, alone, 1e-11)
    if graded:
        for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
            close(one, other, 1e-10)


def test_single_precision_is_as_good_as_the_loop_s() -> None:
    """Over three hundred tokens, against float64."""
    given = [x.detach() for x in inputs(300, (16, 16), batch=4)]
    given[4] /= 2
    as_good_in_single(native, looped, given)


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda length=length: native(*inputs(length))) for length in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_the_layer_takes_it() -> None:
    x_BLD, ctx = torch.randn(2, 33, 6, dtype=torch.float64), Context()
    layer = lively(M2RNNConfig(d_model=6, num_heads=2).block(0).layers[0])
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-9)
    assert "native_matrix_rnn" in ctx.backends
