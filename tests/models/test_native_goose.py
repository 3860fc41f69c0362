"""RWKV-7's rule in C against its definition, and the definition against the layer's chunks."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.delta.in_c import CHUNK
from chomsky_ladder.models.operations.goose import by_goose_rule
from chomsky_ladder.models.operations.goose.in_c import native_goose
from chomsky_ladder.models.operations.goose.reference import Channels, goose_loop
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def inputs(length: int, widths: tuple[int, int] = (4, 5), rows: int = 2) -> list[Tensor]:
    """r, k, rate, v, decay, the three of channels, and a state, of three heads."""
    keys, values = widths
    r_BHLK, k_BHLK, v_BHLV = (torch.randn(rows, 3, length, width).double() for width in (keys, keys, values))
    rate_BHLK, decay_BHLK = torch.rand(2, rows, 3, length, keys, dtype=torch.float64)
    channels = [torch.randn(3, keys, dtype=torch.float64) for _ in range(3)]
    state_BHKV = torch.randn(rows, 3, keys, values, dtype=torch.float64)
    return [x.requires_grad_() for x in (r_BHLK, k_BHLK, rate_BHLK, v_BHLV, decay_BHLK, *channels, state_BHKV)]


def together(form: Any, given: list[Tensor]) -> Tensor:
    """All three outputs, no two numbers with one weight."""
    found = torch.cat([x.flatten() for x in form(*given[:5], Channels(*given[5:8]), given[8])])
    return found * torch.linspace(-1, 1, len(found)).to(found)


def agree(given: list[Tensor]) -> None:
    found, expected = together(native_goose, given), together(goose_loop, given)
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_in_c_is_the_definition(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize("widths", [(1, 1), (16, 16), (15, 17), (33, 3), (3, 40), (64, 1)])
@pytest.mark.parametrize("length", [1, CHUNK + 3])
def test_widths_that_fill_no_vector(widths: tuple[int, int], length: int) -> None:
    agree(inputs(length, widths))


def test_each_output_alone() -> None:
    given = inputs(CHUNK + 2)
    for place in range(3):
        found, expected = (
            form(*given[:5], Channels(*given[5:8]), given[8])[place] for form in (native_goose, goose_loop)
        )
        ours, theirs = (
            torch.autograd.grad(y.pow(2).sum(), given, allow_unused=True, materialize_grads=True)
            for y in (found, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            close(one, other, 1e-10)


def test_heads_as_they_come_out_of_a_product() -> None:
    given = inputs(19)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given[:5]]
    close(together(native_goose, [*turned, *given[5:]]), together(goose_loop, given), 1e-11)


def test_a_key_of_nothing() -> None:
    given = inputs(7)
    given[1] = torch.zeros_like(given[1]).requires_grad_()
    agree(given)


def test_it_stacks() -> None:
    """Replicas have channels of their own and share the state; gradients are those of each alone."""
    many = [[x.detach() for x in inputs(CHUNK + 1)] for _ in range(3)]
    state = many[0][8]
    stacked = [torch.stack([each[place] for each in many]).requires_grad_() for place in range(8)]
    found = torch.vmap(lambda *given: together(native_goose, [*given, state]))(*stacked)
    expected = torch.stack([together(goose_loop, [*(x[i] for x in stacked), state]) for i in range(3)])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, stacked), gradients(expected, stacked), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [1, 40, 130])
def test_the_definition_is_what_chunks_compute(length: int) -> None:
    *tokens, m, n, u, state = inputs(length)
    r, k, rate, v, decay = tokens
    decay = decay.detach() * 0.45 + 0.55
    expected = goose_loop(r, k, rate, v, decay, Channels(m, n, u), state)
    ctx = Context(backend="reference")
    for one, other in zip(
        by_goose_rule(r, k, rate, v, decay.log(), Channels(m, n, u), state, ctx), expected, strict=True
    ):
        close(one, other, 1e-9)
