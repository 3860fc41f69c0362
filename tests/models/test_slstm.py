"""The sLSTM's recurrence: the published equations on plain floats, its forms against each other, extreme gates."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels import native as _native
from chomsky_ladder.models.operations.slstm.in_c import native_slstm_scan
from chomsky_ladder.models.operations.slstm.reference import (
    Carried,
    Read,
    Weights,
    fused_slstm_scan,
    slstm_scan,
    slstm_start,
    slstm_step,
)
from support.layers import close

torch.set_num_threads(1)

SCANS = {"plain": slstm_scan, "fused": fused_slstm_scan}
if not _native.missing():
    SCANS["native"] = native_slstm_scan
LENGTHS = (1, 2, 17, 63, 64, 65, 130)
DOUBLE = torch.float64

Scan = Callable[[Read, Carried, Weights], tuple[Tensor, Carried]]
Start = Callable[[Tensor, Weights], Carried]


def weighted_sum(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in tensors)


def drawn(length: int, *, batch: int = 3, heads: int = 2, inner: int = 3, width: int = 4) -> tuple[Tensor, Weights]:
    W, R, b = ((heads, 4 * inner, width), (heads, 4 * inner, inner), (heads, 4 * inner))
    return torch.randn(batch, length, heads, width, dtype=DOUBLE), tuple(
        torch.randn(*s, dtype=DOUBLE) for s in (W, R, b)
    )


def first(x_BLHJ: Tensor, weights: Weights) -> Carried:
    return slstm_start(x_BLHJ.shape[0], x_BLHJ.shape[2], weights[1].shape[-1], device=x_BLHJ.device, dtype=x_BLHJ.dtype)


def anywhere(x_BLHJ: Tensor, weights: Weights) -> Carried:
    return tuple(torch.randn_like(part) for part in first(x_BLHJ, weights))


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def published(x_LJ: list[list[float]], W: list, R: list, b: list, inner: int) -> list[list[float]]:
    """One head of one row by the paper's stabilised equations, in c, n and m, one number at a time."""
    h, c, n, m = [0.0] * inner, [0.0] * inner, [0.0] * inner, [-math.inf] * inner
    outputs = []
    for x in x_LJ:
        gates = [
            b[g] + sum(w * v for w, v in zip(W[g], x, strict=True)) + sum(r * v for r, v in zip(R[g], h, strict=True))
            for g in range(4 * inner)
        ]
        h = []
        for k in range(inner):
            i, f, z, o = (gates[gate * inner + k] for gate in range(4))
            new_m = max(log_sigmoid(f) + m[k], i)
            kept, added = math.exp(log_sigmoid(f) + m[k] - new_m), math.exp(i - new_m)
            c[k], n[k], m[k] = kept * c[k] + added * math.tanh(z), kept * n[k] + added, new_m
            h.append(c[k] / n[k] / (1 + math.exp(-o)))
        outputs.append(h)
    return outputs


@pytest.mark.parametrize("form", [*SCANS, "steps"])
def test_the_published_equations_on_plain_floats(form: str) -> None:
    x_BLHJ, weights = drawn(17)
    if form == "steps":
        state, outputs = first(x_BLHJ, weights), []
        for x_BHJ in x_BLHJ.unbind(1):
            state = slstm_step((x_BHJ,), state, weights)
            outputs.append(state[0])
        h_BLHK = torch.stack(outputs, 1)
    else:
        h_BLHK, _ = SCANS[form]((x_BLHJ,), first(x_BLHJ, weights), weights)
    for row in range(3):
        for head in range(2):
            of_head = (weight[head].tolist() for weight in weights)
            expected = published(x_BLHJ[row, :, head].tolist(), *of_head, inner=3)
            close(h_BLHK[row, :, head], torch.tensor(expected, dtype=DOUBLE), 1e-11)


BY_HAND = {name: scan for name, scan in SCANS.items() if name != "plain"}
by_hand = pytest.mark.parametrize("scan", BY_HAND.values(), ids=BY_HAND)


def agree(scan: Scan, read: Read, state: Carried, weights: Weights, *, reached: Sequence[int] = (0, 1, 2, 3)) -> None:
    """Outputs, and the gradients of everything from some of them: all h, and the last h, y and a."""
    inputs = [tensor.requires_grad_() for tensor in (*read, *state, *weights)]
    found = []
    for form in (scan, slstm_scan):
        h_BLHK, last = form(read, state, weights)
        outputs = (h_BLHK, *last)
        loss = weighted_sum([outputs[number] for number in reached])
        grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
        found.append((*outputs, *grads))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and one.dtype == DOUBLE
        close(one, other, 1e-10)


@by_hand
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("start", [first, anywhere])
def test_a_scan_by_hand_equals_the_loop(scan: Scan, start: Start, length: int) -> None:
    x_BLHJ, weights = drawn(length)
    agree(scan, (x_BLHJ,), start(x_BLHJ, weights), weights)


@by_hand
@pytest.mark.parametrize(("batch", "heads", "inner"), [(150, 2, 7), (70, 1, 16), (3, 1, 1030)])
def test_more_rows_than_stay_in_a_cache_together(scan: Scan, batch: int, heads: int, inner: int) -> None:
    """In C as many as have 1,024 channels: groups of 146 and 4 rows, of 64 and 6, and of one at a time."""
    x_BLHJ, weights = drawn(3, batch=batch, heads=heads, inner=inner)
    weights = weights[0], weights[1] / inner**0.5, weights[2]
    agree(scan, (x_BLHJ,), anywhere(x_BLHJ, weights), weights)


@by_hand
@pytest.mark.parametrize(
    ("batch", "heads", "inner", "width"), [(1, 1, 1, 1), (3, 2, 3, 4), (2, 3, 17, 5), (1, 2, 9, 9)]
)
def test_i_and_f_may_read_another_input_than_z_and_o(
    scan: Scan, batch: int, heads: int, inner: int, width: int
) -> None:
    x_BLHJ, weights = drawn(7, batch=batch, heads=heads, inner=inner, width=width)
    read = (torch.randn_like(x_BLHJ), x_BLHJ)
    agree(scan, read, anywhere(x_BLHJ, weights), weights)
    gates = [torch.einsum("blhj,hgj->blhg", x, weights[0]) for x in read]
    mixed_BLHG = torch.cat([gates[0][..., : 2 * inner], gates[1][..., 2 * inner :]], -1)
    ready = (torch.eye(4 * inner, dtype=DOUBLE).expand(heads, -1, -1), *weights[1:])
    state = anywhere(x_BLHJ, weights)
    close(scan(read, state, weights)[0], slstm_scan((mixed_BLHG,), state, ready)[0], 1e-10)


@by_hand
@pytest.mark.parametrize("reached", range(4))
def test_a_gradient_that_comes_from_one_output_alone(scan: Scan, reached: int) -> None:
    x_BLHJ, weights = drawn(5)
    agree(scan, (x_BLHJ,), anywhere(x_BLHJ, weights), weights, reached=[reached])


@by_hand
def test_inputs_and_gradients_that_lie_in_memory_in_any_order(scan: Scan) -> None:
    x_BLHJ, (W, R, b) = drawn(5)
    turned = x_BLHJ.transpose(0, 1).contiguous().transpose(0, 1), W.mT.contiguous().mT, R.mT.contiguous().mT
    agree(scan, turned[:1], anywhere(x_BLHJ, (W, R, b)), (*turned[1:], b.T.contiguous().T))
    inputs = [x.requires_grad_() for x in (x_BLHJ, W, R, b)]
    found = []
    for form in (scan, slstm_scan):
        h_BLHK, _ = form((x_BLHJ,), first(x_BLHJ, (W, R, b)), (W, R, b))
        weight_HKBL = torch.linspace(-1, 1, h_BLHK.numel(), dtype=DOUBLE).view(h_BLHK.permute(2, 3, 0, 1).shape)
        found.append(torch.autograd.grad(h_BLHK, inputs, weight_HKBL.permute(2, 3, 0, 1)))
    for one, other in zip(*found, strict=True):
        close(one, other, 1e-10)


@by_hand
def test_the_gradient_by_hand_is_the_slope(scan: Scan) -> None:
    x_BLHJ, weights = drawn(4, batch=2)
    state = anywhere(x_BLHJ, weights)
    inputs = tuple(tensor.requires_grad_() for tensor in (x_BLHJ, *state, *weights))

    def outputs(x: Tensor, h: Tensor, y: Tensor, a: Tensor, W: Tensor, R: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        h_BLHK, (_, *last) = scan((x,), (h, y, a), (W, R, b))
        return h_BLHK, *last

    assert torch.autograd.gradcheck(outputs, inputs)


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
@pytest.mark.parametrize("shared", [(), (0,), (0, 1, 2, 3)])
def test_replicas_stack(scan: Scan, shared: tuple[int, ...]) -> None:
    """Under vmap over weights and inputs, or with inputs all replicas share."""
    cases = []
    for _ in range(3):
        x_BLHJ, weights = drawn(6)
        cases.append((x_BLHJ, *anywhere(x_BLHJ, weights), *weights))
    inputs = [
        (parts[0] if number in shared else torch.stack(parts)).requires_grad_()
        for number, parts in enumerate(zip(*cases, strict=True))
    ]
    in_dims = tuple(None if number in shared else 0 for number in range(len(inputs)))

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        h_BLHK, last = scan(inputs[:1], inputs[1:4], inputs[4:])
        return h_BLHK, *last

    found = torch.vmap(outputs, in_dims=in_dims)(*inputs)
    alone = [outputs(*(x if d is None else x[r] for x, d in zip(inputs, in_dims, strict=True))) for r in range(3)]
    expected = [torch.stack(parts) for parts in zip(*alone, strict=True)]
    gradients = (torch.autograd.grad(weighted_sum(each), inputs) for each in (found, expected))
    for one, other in zip((*found, *next(gradients)), (*expected, *next(gradients)), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_state_carries_over_a_split_and_is_left_as_it_was(scan: Scan, batch: int) -> None:
    x_BLHJ, weights = drawn(33, batch=batch, heads=batch)
    whole_BLHK, end = scan((x_BLHJ,), first(x_BLHJ, weights), weights)
    head_BLHK, state = scan((x_BLHJ[:, :16],), first(x_BLHJ, weights), weights)
    before = [part.clone() for part in state]
    tail_BLHK, state_after = scan((x_BLHJ[:, 16:],), state, weights)
    close(torch.cat([head_BLHK, tail_BLHK], 1), whole_BLHK)
    for found, expected in zip((*state_after, *state), (*end, *before), strict=True):
        close(found, expected)


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
@pytest.mark.parametrize("size", [50.0, 1e3, 1e6])
def test_saturated_gates_stay_finite(scan: Scan, size: float) -> None:
    x_BLHJ, weights = drawn(40, batch=8)
    inputs = [part.float().requires_grad_() for part in (size * x_BLHJ, *weights)]
    h_BLHK, state = scan(inputs[:1], tuple(part.float() for part in first(x_BLHJ, weights)), tuple(inputs[1:]))
    assert bool(torch.isfinite(h_BLHK).all()) and bool((h_BLHK.abs() <= 1).all())
    for part in (*state, *torch.autograd.grad(weighted_sum([h_BLHK, state[1]]), inputs)):
        assert bool(torch.isfinite(part).all())


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
def test_a_gate_far_below_the_rest_adds_nothing_and_one_far_above_replaces(scan: Scan) -> None:
    zero = torch.zeros(1, 4, 1, dtype=DOUBLE), torch.zeros(1, 4, 1, dtype=DOUBLE)
    weights = (torch.eye(4, dtype=DOUBLE)[None], zero[0], zero[0][..., 0])  # the inputs are the gates themselves
    i_f_z_o = [(0.0, 0.0, 2.0, 99.0), (-1e4, 1e4, -2.0, 99.0), (1e4, 1e4, -2.0, 99.0), (0.0, 1e4, 1.0, 99.0)]
    x_BLHJ = torch.tensor(i_f_z_o, dtype=DOUBLE)[None, :, None]
    h_BLHK, _ = scan((x_BLHJ,), first(x_BLHJ, weights), weights)
    close(h_BLHK.flatten(), torch.tensor([math.tanh(2), math.tanh(2), -math.tanh(2), -math.tanh(2)], dtype=DOUBLE))
