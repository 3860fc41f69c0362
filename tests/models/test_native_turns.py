"""The turns of `ntm`'s and `dnc`'s memories in C against torch's, which stand beside their equations elsewhere."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.dnc import DNCConfig
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_linked import native_linked_turn
from chomsky_ladder.models.kernels.native_turing import native_turing_turn
from chomsky_ladder.models.ntm import NTMConfig
from chomsky_ladder.models.scans import linked_memory, turing_memory
from chomsky_ladder.models.scans.linked_memory import linked_turn
from chomsky_ladder.models.scans.turing_memory import turing_turn
from support.layers import as_good_in_single, close, gradients, kept_for_backward

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Turn = Callable[..., tuple[Tensor, ...]]
SHAPES = ((1, 2, 1), (1, 7, 5), (2, 16, 20), (3, 4, 3), (1, 128, 20), (4, 33, 17), (2, 3, 40))  # heads, cells, width


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def shares(*sizes: int, whole: float = 1.0) -> Tensor:
    return whole * torch.softmax(2 * drawn(*sizes), -1)


class Turing:
    turns: tuple[Turn, Turn] = (native_turing_turn, turing_turn)

    def __init__(self, shifts: int = 3) -> None:
        self.shifts = shifts

    def given(self, heads: int, cells: int, width: int, *, batch: int = 2) -> list[Tensor]:
        asked = drawn(batch, sum(turing_memory.asked_of(heads, width, self.shifts)))
        made = asked, shares(batch, 2 * heads, cells), drawn(batch, width, cells)
        return [x.requires_grad_() for x in made]

    def said(self) -> dict[str, int]:
        return {"shifts": self.shifts}


class Linked:
    turns: tuple[Turn, Turn] = (native_linked_turn, linked_turn)

    def given(self, heads: int, cells: int, width: int, *, batch: int = 2) -> list[Tensor]:
        made = (
            drawn(batch, sum(linked_memory.asked_of(heads, width))),
            drawn(batch, width, cells),
            torch.sigmoid(drawn(batch, cells)),
            shares(batch, cells, whole=0.8),
            shares(batch, cells, whole=0.9),
            shares(batch, cells, cells, whole=0.7),
            shares(batch, heads, cells),
        )
        return [x.requires_grad_() for x in made]

    def said(self) -> dict[str, int]:
        return {}


MEMORIES = [pytest.param(Turing(), id="turing"), pytest.param(Linked(), id="linked")]
Memory = Turing | Linked


def flat(memory: Memory, turn: int, given: list[Tensor]) -> Tensor:
    """All that a turn makes, one behind the other."""
    return torch.cat([x.flatten() for x in memory.turns[turn](*given, **memory.said())])


def agree(memory: Memory, given: list[Tensor]) -> None:
    found, expected = flat(memory, 0, given), flat(memory, 1, given)
    close(found, expected, 1e-12)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-11)


def as_good(memory: Memory, given: list[Tensor]) -> None:
    in_c, in_torch = (partial(lambda turn, *given: flat(memory, turn, [*given]), turn) for turn in (0, 1))
    as_good_in_single(in_c, in_torch, given)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_in_c_is_what_it_is_in_torch(memory: Memory, shape: tuple[int, int, int]) -> None:
    agree(memory, memory.given(*shape))


@pytest.mark.parametrize(("shifts", "cells"), [(1, 1), (1, 7), (5, 4), (7, 7)])
def test_shifts_that_reach_all_round_and_none(shifts: int, cells: int) -> None:
    memory = Turing(shifts)
    agree(memory, memory.given(2, cells, 3))


def test_a_memory_of_one_cell() -> None:
    agree(Linked(), Linked().given(2, 1, 3))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_single_precision_is_as_good_as_torchs(memory: Memory, shape: tuple[int, int, int]) -> None:
    as_good(memory, memory.given(*shape))


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_gradient_of_one_output_alone(memory: Memory) -> None:
    given = memory.given(2, 9, 5)
    for part in range(len(given)):
        found, expected = (gradients(turn(*given, **memory.said())[part], given) for turn in memory.turns)
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-11)


@pytest.mark.parametrize("memory", MEMORIES)
def test_replicas_turn_each_for_itself(memory: Memory) -> None:
    given = memory.given(2, 9, 5, batch=3)
    stacks = [torch.stack([x, -x if i == 0 else x.flip(0)]) for i, x in enumerate(given)]
    found = torch.vmap(lambda *each: memory.turns[0](*each, **memory.said()))(*stacks)
    for row in range(2):
        expected = memory.turns[1](*[x[row] for x in stacks], **memory.said())
        for one, other in zip(found, expected, strict=True):
            close(one[row], other)


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_is_not_contiguous_is_read_as_it_is(memory: Memory) -> None:
    given = memory.given(2, 9, 5)
    turned = [x.movedim(-1, 0).contiguous().movedim(0, -1) for x in given]
    assert not any(x.is_contiguous() for x in turned)
    found = flat(memory, 0, turned)
    close(found, flat(memory, 1, given))
    for one, other in zip(gradients(found, given), gradients(flat(memory, 1, given), given), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("asked", [-1e3, -50.0, 50.0, 300.0])
@pytest.mark.parametrize("place", [5, 6, 7, 8], ids=["strength", "sharpness", "gate", "shift"])
def test_heads_that_are_sure(place: int, asked: float) -> None:
    """Powers that are 0 in single precision, and gates that are."""
    memory = Turing()
    given = memory.given(1, 20, 5)
    given[0].data[:, [place, 11 + place]] = asked
    agree(memory, given)
    as_good(memory, given)


def test_an_empty_memory_and_heads_at_one_cell() -> None:
    """As strings begin: cells of nothing, usage alike, weightings of nothing but zeros and a one."""
    at_0 = torch.eye(9, dtype=torch.float64)[0].expand(2, 4, 9)
    asked, *_ = Turing().given(2, 9, 5)
    agree(Turing(), [asked, at_0.clone().requires_grad_(), torch.full((2, 5, 9), 1e-6).double().requires_grad_()])
    asked, *state = Linked().given(2, 9, 5)
    agree(Linked(), [asked, *(torch.zeros_like(x).requires_grad_() for x in state)])


@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_cells_used_alike_are_filled_in_their_own_order(used: float) -> None:
    memory = Linked()
    for cells in (5, 16, 40):
        given = memory.given(1, cells, 3)
        given[2] = torch.full((2, cells), used, dtype=torch.float64)
        given[2][1, cells // 2 :] = 0.25
        given[3] = torch.zeros_like(given[3])
        given[0].data[:, 4] = -1e3  # nothing is set free
        given[2].requires_grad_(), given[3].requires_grad_()
        agree(memory, given)


@pytest.mark.parametrize("memory", MEMORIES)
def test_no_number_stays_none_in_its_own_machine(memory: Memory) -> None:
    given = [x.detach() for x in memory.given(2, 20, 5, batch=3)]
    given[0][1, 2] = torch.nan
    found, expected = (turn(*given, **memory.said()) for turn in memory.turns)
    assert found[-1][1].isnan().any()
    for one, other in zip(found, expected, strict=True):
        close(one[[0, 2]], other[[0, 2]])


@pytest.mark.parametrize("memory", MEMORIES)
def test_kept_is_what_came_in(memory: Memory) -> None:
    """Of memories and links one each a turn: torch keeps some ten."""
    given = memory.given(2, 64, 16)
    ours, theirs = (kept_for_backward(partial(turn, *given, **memory.said())) for turn in memory.turns)
    assert ours <= sum(x.nbytes for x in given) < theirs / 2


@pytest.mark.parametrize(("config", "kernel"), [(NTMConfig, "native_turing"), (DNCConfig, "native_linked")])
def test_a_machine_turns_by_the_kernel(config: type, kernel: str) -> None:
    ctx = Context()
    config.tiny().build(5)(torch.zeros(1, 3, dtype=torch.int64), ctx)
    assert ctx.backends == {kernel}
