"""Memories that move: in torch and in C they are, cell by cell, what each action brings."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.moves import after_moves
from chomsky_ladder.models.operations.moves.reference import Move, moved, of_ring, of_stack
from support.layers import close, gradients

torch.set_num_threads(1)
needs_a_compiler = pytest.mark.skipif(bool(missing()), reason=missing())

native_moved = named("native_moves").call
FORMS = [moved, pytest.param(native_moved, marks=needs_a_compiler)]
Form = Callable[..., Tensor]
Way = tuple[tuple[Move, ...], int, bool]  # the moves, of how many actions, and whether the new cell replaces the first

WAYS: dict[str, Callable[[int], Way]] = {
    "stack": lambda cells: (of_stack(cells), 3, False),
    "ring": lambda cells: (of_ring(cells, (0, -1, 1, -3, 3)), 5, True),
    "ring, all round": lambda cells: (of_ring(cells, (0, cells, -2 * cells - 1)), 3, True),
}


def one_by_one(
    new_BHW: Tensor, memory_BHNW: Tensor, share_BHA: Tensor, moves: Sequence[Move], *, replaces: bool
) -> Tensor:
    """Every cell by itself."""
    old = list(memory_BHNW.unbind(2))
    cells = [new_BHW, *(old[1:] if replaces else old)]
    found = [torch.zeros_like(new_BHW) for _ in old]
    for action, to, source, count in moves:
        for i in range(count):
            found[to + i] = found[to + i] + share_BHA[..., action, None] * cells[source + i]
    return torch.stack(found, 2)


def given(cells: int, width: int, actions: int, *, heads: int = 2) -> list[Tensor]:
    shapes = (2, heads, width), (2, heads, cells, width), (2, heads, actions)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_a_stack_and_a_ring_of_letters() -> None:
    new, memory = torch.tensor([[[9.0]]]), torch.tensor([[[[1.0], [2.0], [3.0]]]])
    for moves, replaces, expected in (
        (of_stack(3), False, [[9, 1, 2], [2, 3, 0], [1, 2, 3]]),
        (of_ring(3, (0, 1, -1, 5)), True, [[9, 2, 3], [3, 9, 2], [2, 3, 9], [2, 3, 9]]),
    ):
        for action, cells in enumerate(expected):
            share = torch.nn.functional.one_hot(torch.tensor([[action]]), len(expected)).float()
            assert moved(new, memory, share, moves, replaces=replaces).flatten().tolist() == cells


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("cells", "width"), [(1, 1), (2, 3), (5, 8), (9, 17), (40, 8)])
def test_every_form_moves_cell_by_cell(form: Form, way: str, cells: int, width: int) -> None:
    moves, actions, replaces = WAYS[way](cells)
    leaves = given(cells, width, actions)
    answers = []
    for act in (form, one_by_one):
        y_BHNW = act(*leaves, moves, replaces=replaces)
        answers.append([y_BHNW, *gradients(y_BHNW, leaves)])
    for one, other in zip(*answers, strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_replicas_move_each_for_itself(form: Form) -> None:
    for way in WAYS.values():
        moves, actions, replaces = way(7)
        stacks = [torch.stack([x, 2 * x, -x]) for x in given(7, 3, actions)]
        found = torch.vmap(lambda *each: form(*each, moves, replaces=replaces))(*stacks)  # noqa: B023, called here
        for row, each in zip(found, zip(*stacks, strict=True), strict=True):
            close(row, one_by_one(*each, moves, replaces=replaces), 1e-12)


@needs_a_compiler
def test_what_is_not_contiguous_is_read_as_it_is() -> None:
    moves, actions, replaces = WAYS["ring"](6)
    new, memory, share = given(6, 4, actions)
    turned = new.mT.contiguous().mT, memory.transpose(0, 3).contiguous().transpose(0, 3), share.expand(2, 2, actions)
    y_BHNW = native_moved(*turned, moves, replaces=replaces)
    close(y_BHNW, one_by_one(new, memory, share, moves, replaces=replaces), 1e-12)
    d_BHNW = torch.ones((), dtype=torch.float64).expand_as(y_BHNW)  # a gradient that lies in one number
    found = torch.autograd.grad(y_BHNW, [new, memory, share], d_BHNW)
    expected = torch.autograd.grad(one_by_one(new, memory, share, moves, replaces=replaces).sum(), [new, memory, share])
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-12)


@needs_a_compiler
def test_next_to_nothing_is_nothing_and_no_number_stays_none() -> None:
    moves, actions, replaces = WAYS["stack"](3)
    new, memory, share = (x.detach().float() for x in given(3, 4, actions))
    memory[0, 0], share[0, 0] = 1e-30, 1e-12
    memory[1, 1, 1, 2] = torch.nan
    found = native_moved(new, memory, share, moves, replaces=replaces)
    assert found[0, 0, 1:].eq(0).all() and found[1, 1, :, 2].isnan().all() and int(found.isnan().sum()) == 3


@needs_a_compiler
def test_a_machine_moves_by_the_kernel() -> None:
    moves, actions, replaces = WAYS["stack"](3)
    new, memory, share = given(3, 4, actions)
    ctx = Context()
    after_moves(ctx, new, memory, share, moves, replaces=replaces)
    assert ctx.backends == {"native_moves"}
