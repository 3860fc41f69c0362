"""Writing into slots in C against its chunks, which stand beside the recurrence in test_gated_slot_attention.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_slot_attention import GatedSlotAttentionConfig, SlotAttention
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_slots import native_slots
from chomsky_ladder.models.scans.slots import decayed_slots
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

WIDTHS = ((1, 1), (4, 5), (16, 16), (15, 17), (17, 15), (20, 3), (33, 40))  # of keys and slots


def inputs(length: int, widths: tuple[int, int] = (4, 5), *, batch: int = 2) -> list[Tensor]:
    """q, k, s, decays and a state of rows of three heads."""
    keys, slots = widths

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(batch, 3, *sizes, dtype=torch.float64)

    decay_BHLM = torch.rand(batch, 3, length, slots, dtype=torch.float64) ** 3
    made = (drawn(length, keys), drawn(length, keys), drawn(length, slots), decay_BHLM, drawn(keys, slots))
    return [x.requires_grad_() for x in made]


def native(*given: Tensor) -> Tensor:
    """y and the last state, one behind the other."""
    return torch.cat([x.flatten() for x in native_slots(*given)])


def chunked(*given: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in decayed_slots(*given)])


def agree(given: list[Tensor]) -> None:
    found, expected = native(*given), chunked(*given)
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 33, full(130)])
def test_in_c_is_in_chunks(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize("widths", WIDTHS)
def test_widths_that_fill_no_vector(widths: tuple[int, int]) -> None:
    agree(inputs(5, widths, batch=3))


@pytest.mark.parametrize("part", [0, 1])
def test_the_gradient_of_the_outputs_or_of_the_state_alone(part: int) -> None:
    given = inputs(9)
    found, expected = (gradients(form(*given)[part], given) for form in (native_slots, decayed_slots))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("decay", [0.0, 1e-30, 1.0])
def test_decays_that_forget_all_and_nothing(decay: float) -> None:
    given = inputs(20)
    given[3] = torch.full_like(given[3], decay).requires_grad_()
    agree(given)


def test_a_decay_of_0_forgets_all_and_exactly() -> None:
    given = [x.detach() for x in inputs(12)]
    given[3][:, :, 7] = 0
    (y_BHLM, last_BHKM), (other_BHLM, large_BHKM) = (
        native_slots(*given[:4], scale * given[4]) for scale in (0.0, 1e99)
    )
    assert torch.equal(last_BHKM, large_BHKM) and torch.equal(y_BHLM[:, :, 7:], other_BHLM[:, :, 7:])


def test_what_is_contiguous_in_another_order() -> None:
    given = inputs(9)
    close(native(*[x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]), chunked(*given), 1e-11)


def test_it_stacks() -> None:
    """Replicas of everything but the state, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7)] for _ in range(3)]
    stacked = [torch.stack(x).requires_grad_() for x in zip(*many, strict=True)]
    stacked[4] = many[0][4].requires_grad_()
    together = torch.vmap(native, in_dims=(0, 0, 0, 0, None))(*stacked)
    alone = torch.stack([chunked(*(x if i == 4 else x[r] for i, x in enumerate(stacked))) for r in range(3)])
    close(together, alone, 1e-11)
    for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(one, other, 1e-10)


def test_single_precision_is_as_good_as_that_of_chunks() -> None:
    """Over three hundred tokens of which little is forgotten, against float64."""
    given = [x.detach() for x in inputs(300, (16, 16), batch=4)]
    given[3] = 1 - given[3] / 100
    as_good_in_single(native, chunked, given)


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda length=length: native(*inputs(length))) for length in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_the_layer_takes_it_from_the_start_and_from_a_state() -> None:
    x_BLD, ctx = torch.randn(2, 33, 8, dtype=torch.float64), Context()
    layer = lively(SlotAttention(GatedSlotAttentionConfig(d_model=8, num_heads=2, num_slots=3)))
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-10)
    assert "native_slots" in ctx.backends
    state = layer.init_state(2, max_length=33, device=x_BLD.device, dtype=x_BLD.dtype)
    parts = []
    for part in x_BLD.split([1, 20, 12], 1):
        y_BLD, state = layer.extend(part, state, ctx)
        parts.append(y_BLD)
    close(torch.cat(parts, 1), layer(x_BLD, Context(backend="reference")), 1e-10)
