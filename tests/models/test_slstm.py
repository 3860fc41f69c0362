"""The sLSTM's recurrence: the published equations on plain floats, extreme gates. Tables compare its forms."""

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
DOUBLE = torch.float64

Scan = Callable[[Read, Carried, Weights], tuple[Tensor, Carried]]


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
