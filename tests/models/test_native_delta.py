"""The delta rule in C against its definition, and that against the chunks of every rule."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import usable
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.delta.in_c import CHUNK, LARGEST, native_delta, native_unit_delta
from chomsky_ladder.models.operations.delta.reference import delta_loop, unit_delta_loop
from chomsky_ladder.models.operations.delta.rules import (
    by_gated_delta_rule,
    by_reading_the_past,
    by_writing_then_reading,
)
from chomsky_ladder.models.operations.mlstm import by_exponential_gates
from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks
from chomsky_ladder.models.scans.decayed import decayed_past, write_then_read
from chomsky_ladder.models.scans.decayed_delta import decayed_delta_rule
from chomsky_ladder.models.scans.delta import of_length_1
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5)
UNIT = native_unit_delta, unit_delta_loop
WIDTHS = ((1, 1), (4, 5), (16, 16), (15, 17), (33, 3), (3, 40))  # of keys and values: vectors have sixteen lanes


def inputs(
    length: int, widths: tuple[int, int] = (4, 5), *, channels: int = 0, steps: int = 1, erases: bool = True
) -> list[Any]:
    """Two rows of three heads; `channels` of the decays, 0 for one in every key."""
    (keys, values), moves = widths, length * steps
    r_BHLK = torch.randn(2, 3, length, keys, dtype=torch.float64)
    f_BHMK, g_BHMK, k_BHMK = torch.randn(3, 2, 3, moves, keys, dtype=torch.float64) / keys**0.5
    v_BHMV, state_BHKV = torch.randn(2, 3, moves, values).double(), torch.randn(2, 3, keys, values).double()
    decay_BHLK = torch.rand(2, 3, length, channels or keys).double()
    made = [r_BHLK, f_BHMK, g_BHMK, k_BHMK, v_BHMV, decay_BHLK, state_BHKV]
    kept = [x.requires_grad_() for x in made]
    return kept if erases else [kept[0], None, None, *kept[3:]]


def raw_inputs(length: int, widths: tuple[int, int] = (4, 5), **settings: Any) -> list[Any]:
    """For `unit_delta_loop`: queries, keys, values, beta, a share of the keys, decays, a state."""
    q, share, _, k, v, decay, state = inputs(length, widths, **settings)
    beta = 2 * torch.rand(*k.shape[:3], 1, dtype=k.dtype)
    return [q, k, v, beta.requires_grad_(), share, decay, state]


def agree(
    given: list[Any], *, forms: Sequence[Any] = (native_delta, delta_loop), tolerance: float = 1e-10, **options: Any
) -> None:
    """Both outputs, and the gradients of each alone and of both together."""
    leaves = [x for x in given if x is not None]
    found, expected = (each(*given, **options) for each in forms)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        close(one, other, tolerance)
    for parts in ((0,), (1,), (0, 1)):
        ours, theirs = (
            torch.autograd.grad(
                sum(
                    (out[part] * torch.linspace(-1, 1, out[part].numel()).double().view_as(out[part])).sum()
                    for part in parts
                ),
                leaves,
                retain_graph=True,
                allow_unused=True,
            )
            for out in (found, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            close(one, torch.zeros_like(one) if other is None else other, tolerance)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("channels", [0, 1])
def test_in_c_is_the_definition(length: int, channels: int) -> None:
    agree(inputs(length, channels=channels))


@pytest.mark.parametrize("widths", WIDTHS)
def test_widths_that_fill_no_vector(widths: tuple[int, int]) -> None:
    agree(inputs(CHUNK + 3, widths))


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("widths", [(64, 1), (17, 2)])
def test_short_strings_of_many_keys_and_few_values(widths: tuple[int, int], length: int) -> None:
    """What a row works in has room for every key, however few its steps and values."""
    agree(inputs(length, widths))
    agree(inputs(length, widths, erases=False))
    agree(raw_inputs(length, widths), forms=UNIT)


@pytest.mark.parametrize("reads_before", [False, True])
@pytest.mark.parametrize("erases", [False, True])
def test_what_is_taken_out_and_when_it_is_read(erases: bool, reads_before: bool) -> None:
    agree(inputs(CHUNK + 7, erases=erases), reads_before=reads_before)


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("channels", [0, 1])
@pytest.mark.parametrize("reads_before", [False, True])
def test_several_steps_a_token(steps: int, channels: int, reads_before: bool) -> None:
    agree(inputs(11, channels=channels, steps=steps), reads_before=reads_before)


@pytest.mark.parametrize("missing", [(), (2,), (3,), (4,), (3, 4), (3, 4, 5)])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("channels", [0, 1])
def test_queries_and_keys_of_any_length(missing: tuple[int, ...], steps: int, channels: int) -> None:
    """With beta, share and decays, and without any of them; for 2, values that all heads share."""
    given = raw_inputs(CHUNK + 3, steps=steps, channels=channels)
    given[2] = given[2][:, :1].detach().expand(-1, 3, -1, -1).requires_grad_() if 2 in missing else given[2]
    agree([None if i in missing and i != 2 else x for i, x in enumerate(given)], forms=UNIT, scale=0.4)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("shares", [1, 4])
@pytest.mark.parametrize("widths", [(4, 5), (17, 3)])
def test_queries_less_their_key(steps: int, shares: int, widths: tuple[int, int]) -> None:
    """What is taken off may be one number for all times, as Comba's correction is, and so may a share of the keys."""
    given = raw_inputs(CHUNK + 3, widths, steps=steps)
    if shares == 1:
        given[4] = torch.rand(3, 1, 1, dtype=torch.float64).requires_grad_()
    less = torch.randn(3, 1, 1, dtype=torch.float64).requires_grad_()

    def of(form: Any) -> Any:
        def called(*given: Any) -> Any:
            *raw, less = given
            raw[4] = raw[4].expand(*raw[1].shape[:3], -1) if shares == 1 else raw[4]
            less_BHL1 = less.expand(*raw[0].shape[:3], 1)
            return form(*raw, scale=0.4, less_BHL1=less_BHL1)

        return called

    agree([*given, less], forms=[of(form) for form in UNIT])


@pytest.mark.parametrize("widths", WIDTHS)
def test_queries_and_keys_of_widths_that_fill_no_vector(widths: tuple[int, int]) -> None:
    agree(raw_inputs(CHUNK + 3, widths), forms=UNIT)


def test_keys_near_nothing() -> None:
    """Where a key is 0 its gradient is what lengths near 0 allow, a thousand times what comes."""
    given = raw_inputs(7)
    given[1] = torch.zeros_like(given[1]).requires_grad_()
    agree(given, forms=UNIT)


def test_along_k_is_along_a_g_that_is_k() -> None:
    r, f, _, k, v, decay, state = inputs(CHUNK + 5)
    agree([r, f, None, k, v, decay, state])
    agree([r, f, None, k, v, decay, state], reads_before=True)
    for one, other in zip(
        native_delta(r, f, None, k, v, decay, state), native_delta(r, f, k, k, v, decay, state), strict=True
    ):
        close(one, other, 1e-12)


def test_without_decays() -> None:
    given = inputs(CHUNK + 2)
    given[5] = None
    agree(given)


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_decays_that_forget_all_and_nothing(decay: float) -> None:
    given = inputs(20)
    given[5] = torch.full_like(given[5], decay).requires_grad_()
    agree(given)


def test_heads_as_they_come_out_of_one_product() -> None:
    """Queries, keys and values side by side for every token: nothing is copied, and gradients come back that way."""
    mixed = torch.randn(2, 21, 3 * (4 + 4 + 5), dtype=torch.float64, requires_grad=True)
    q, k, v = (x.unflatten(-1, (3, -1)).transpose(1, 2) for x in mixed.split([12, 12, 15], -1))
    *_, beta, share, decay, state = raw_inputs(21)
    ours, theirs = (gradients(form(q, k, v, beta, share, decay, state)[0], [mixed])[0] for form in UNIT)
    close(ours, theirs, 1e-10)


def test_what_is_not_contiguous_and_what_all_rows_share() -> None:
    """As heads come out of a product, and as RWKV-5's decays stand, once for all rows."""
    given = inputs(19)
    turned = [x if x is None else x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    turned[5] = given[5][:1]
    again = list(given)
    again[5] = given[5][:1].expand(2, -1, -1, -1)
    for one, other in zip(native_delta(*turned), delta_loop(*again), strict=True):
        close(one, other, 1e-10)


def test_it_stacks() -> None:
    """Replicas of everything but the state, which they share, give what each gives alone, gradients too."""
    many = [[x if x is None else x.detach() for x in inputs(CHUNK + 1)] for _ in range(3)]
    state = many[0][6]
    stacked = [torch.stack([each[place] for each in many]).requires_grad_() for place in range(6)]

    def of(*given: Tensor) -> Tensor:
        y, last = native_delta(*given, state)
        return torch.cat([y.flatten(), last.flatten()])

    together = torch.func.vmap(of)(*stacked)
    alone = torch.stack([of(*(x[i] for x in stacked)) for i in range(3)])
    close(together, alone, 1e-12)
    for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(one, other, 1e-12)


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


def test_single_precision_is_as_good_as_that_of_chunks() -> None:
    """Over two thousand tokens with reflections and hardly any decay, against float64."""
    r, f, _, k, v, _, state = inputs(2000, (16, 16))

    f = torch.nn.functional.normalize(f, dim=-1)
    decay = torch.full_like(f, 0.999)
    exact = [x.detach() for x in (r, decay * f, 2 * f, k, v, decay, state)]
    expected = delta_loop(*exact)[0]
    rounded = [x.float() for x in exact]
    chunks = decayed_delta_rule(*rounded[:5], torch.log(rounded[5]), rounded[6])[0]
    ours, theirs = (
        float((y - expected).abs().max() / expected.abs().max()) for y in (native_delta(*rounded)[0], chunks)
    )
    assert ours < max(2 * theirs, 1e-5)


def test_what_it_leaves_to_others() -> None:
    def takes(*shape: int, **settings: bool) -> bool:
        return usable("native_delta", torch.zeros(*shape), Context(**settings))

    assert takes(1, 1, 8, LARGEST) and takes(1, 1, 8, 16, stacked=True)
    assert not takes(1, 1, 8, LARGEST + 1)
    assert not usable("native_delta", torch.zeros(1, 1, 8, 16).bfloat16(), Context())
