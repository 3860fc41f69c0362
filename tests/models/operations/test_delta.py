"""The definition of the delta rule against the chunks of every rule, and who takes it."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import usable
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.delta.in_c import LARGEST
from chomsky_ladder.models.operations.delta.reference import delta_loop
from chomsky_ladder.models.operations.delta.rules import (
    by_gated_delta_rule,
    by_reading_the_past,
    by_writing_then_reading,
)
from chomsky_ladder.models.operations.goose import by_goose_rule
from chomsky_ladder.models.operations.goose.reference import Channels, goose_loop
from chomsky_ladder.models.operations.mlstm import by_exponential_gates
from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks
from chomsky_ladder.models.scans.decayed import decayed_past, write_then_read
from chomsky_ladder.models.scans.decayed_delta import decayed_delta_rule
from chomsky_ladder.models.scans.delta import of_length_1
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def inputs(length: int, widths: tuple[int, int] = (4, 5), *, channels: int = 0, steps: int = 1) -> list[Tensor]:
    """Two rows of three heads; `channels` of the decays, 0 for one in every key."""
    (keys, values), moves = widths, length * steps
    r_BHLK = torch.randn(2, 3, length, keys, dtype=torch.float64)
    f_BHMK, g_BHMK, k_BHMK = torch.randn(3, 2, 3, moves, keys, dtype=torch.float64) / keys**0.5
    v_BHMV, state_BHKV = torch.randn(2, 3, moves, values).double(), torch.randn(2, 3, keys, values).double()
    decay_BHLK = torch.rand(2, 3, length, channels or keys).double()
    made = [r_BHLK, f_BHMK, g_BHMK, k_BHMK, v_BHMV, decay_BHLK, state_BHKV]
    return [x.requires_grad_() for x in made]


@pytest.mark.parametrize("length", [1, 40, 130])
def test_the_definition_is_what_chunks_compute(length: int) -> None:
    r, f, g, k, v, decay, state = inputs(length)

    f, g = (torch.nn.functional.normalize(x, dim=-1) for x in (f, g))
    log_decay = torch.log(decay)
    expected = delta_loop(r, decay * f, g, k, v, decay, state)
    for one, other in zip(decayed_delta_rule(r, decay * f, g, k, v, log_decay, state), expected, strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_token_of_several_steps_is_that_of_the_gated_rule(steps: int) -> None:
    q, _, _, k, v, decay, state = inputs(23, channels=1, steps=steps)
    others = v, 2 * torch.rand(k.shape[:3], dtype=k.dtype), decay[..., 0].log(), state
    ctx = Context()
    found = by_gated_delta_rule(q, k, *others, ctx)
    expected = gated_delta_rule(of_length_1(q), of_length_1(k), *others)
    assert ctx.backends == {"native_unit_delta"}
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-9)


def test_linear_attention_with_decays() -> None:
    q, _, _, k, v, decay, state = inputs(50)
    for by, rule in ((by_writing_then_reading, write_then_read), (by_reading_the_past, decayed_past)):
        ctx = Context()
        found, expected = by(q, k, v, decay, state, ctx), rule(q, k, v, decay, state)
        assert ctx.backends == {"native_delta"}
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-9)


@pytest.mark.parametrize("length", [2, 33, 130])
def test_exponential_gates(length: int) -> None:
    q, _, _, k, v, _, C = inputs(length)
    C = torch.nn.functional.pad(C, (0, 1), value=1.0).detach().requires_grad_()
    i, f = (gate.requires_grad_() for gate in 3 * torch.randn(2, 2, 3, length).double())
    m = torch.randn(2, 3).double().requires_grad_()
    ctx = Context()
    leaves = [q, k, v, i, f, C, m]
    (ours, after), (theirs, end) = by_exponential_gates(q, k, v, i, f, (C, m), ctx), mlstm_chunks(*leaves[:5], (C, m))
    assert ctx.backends == {"native_delta"}
    for one, other in zip((ours, *after), (theirs, *end), strict=True):
        close(one, other, 1e-9)
    for one, other in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
        close(one, other, 1e-8)


def test_exponential_gates_in_single_precision_are_as_good_as_those_of_chunks() -> None:
    """Over a thousand tokens that are hardly forgotten, against float64: sums of gates grow, what is left must not."""
    q, _, _, k, v, _, _ = (None if x is None else x.detach() for x in inputs(1000, (16, 16)))
    i, f = torch.randn(2, 2, 3, 1000).double() + torch.tensor([0.0, 8.0]).double()[:, None, None, None]
    state = torch.zeros(2, 3, 16, 17).double(), torch.full((2, 3), -torch.inf).double()
    exact = mlstm_chunks(q, k, v, i, f, state)[0]
    rounded, ctx = [x.float() for x in (q, k, v, i, f)], Context()
    start = state[0].float(), state[1].float()
    found = by_exponential_gates(*rounded, start, ctx)[0], mlstm_chunks(*rounded, start)[0]
    assert ctx.backends == {"native_delta"}
    ours, theirs = (float(((y - exact) / exact.abs().clamp(min=1)).abs().mean()) for y in found)
    assert ours < max(2 * theirs, 1e-5)


@pytest.mark.parametrize("length", [1, 40, 130])
def test_goose_is_what_chunks_compute(length: int) -> None:
    r, rate, _, k, v, decay, state = inputs(length)
    rate, decay = rate.sigmoid(), decay.detach() * 0.45 + 0.55
    channels = Channels(*torch.randn(3, 3, 4, dtype=torch.float64))
    expected, ctx = goose_loop(r, k, rate, v, decay, channels, state), Context(backend="reference")
    for one, other in zip(by_goose_rule(r, k, rate, v, decay.log(), channels, state, ctx), expected, strict=True):
        close(one, other, 1e-9)


def test_what_it_leaves_to_others() -> None:
    def takes(*shape: int, **settings: bool) -> bool:
        return usable("native_delta", torch.zeros(*shape), Context(**settings))

    assert takes(1, 1, 8, LARGEST) and takes(1, 1, 8, 16, stacked=True)
    assert not takes(1, 1, 8, LARGEST + 1)
    assert not usable("native_delta", torch.zeros(1, 1, 8, 16).bfloat16(), Context())
