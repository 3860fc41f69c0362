"""The mLSTM's memory: the published equations on plain floats, step against chunks, extreme gates, long inputs."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.delta.reference import delta_loop
from chomsky_ladder.models.operations.mlstm.reference import (
    Carried,
    mlstm_chunks,
    mlstm_parallel,
    mlstm_start,
    mlstm_step,
    mlstm_tokens,
)
from support.layers import close

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 63, 64, 65, 130)
DOUBLE = torch.float64

Read = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # q, k, v, i, f


def drawn(length: int, *, dtype: torch.dtype = DOUBLE, gates: float = 2.0) -> Read:
    q, k, v = torch.randn(3, 2, 3, length, 4, dtype=dtype)
    i, f = gates * torch.randn(2, 2, 3, length, dtype=dtype)
    return q, k, v, i, f


def first(read: Read) -> Carried:
    batch, heads, _, width = read[2].shape
    return mlstm_start(batch, heads, read[0].shape[-1], width, device=read[0].device, dtype=read[0].dtype)


def anywhere(read: Read) -> Carried:
    return tuple(torch.randn_like(part) for part in first(read))


def stepped(read: Read, state: Carried) -> tuple[Tensor, Carried]:
    outputs = []
    for token in zip(*(part.unbind(2) for part in read), strict=True):
        h_BHV, state = mlstm_step(*token, state)
        outputs.append(h_BHV)
    return torch.stack(outputs, 2), state


def published(q: list, k: list, v: list, i: list[float], f: list[float]) -> list[list[float]]:
    """One head of one row without a stabiliser: the sum over the past, h = sum w (q k) v / max(|sum w (q k)|, 1)."""
    outputs = []
    for t in range(len(q)):
        weights = []
        for s in range(t + 1):
            decay = math.prod(1 / (1 + math.exp(-f[r])) for r in range(s + 1, t + 1))
            weights.append(decay * math.exp(i[s]) * sum(a * b for a, b in zip(q[t], k[s], strict=True)))
        total = max(abs(sum(weights)), 1.0)
        outputs.append([sum(w * v[s][d] for s, w in enumerate(weights)) / total for d in range(len(v[0]))])
    return outputs


def looped(read: Read, state: Carried) -> tuple[Tensor, Carried]:
    return mlstm_tokens(delta_loop, *read, state)


@pytest.mark.parametrize("form", ["parallel", "chunks", "tokens", "steps"])
def test_the_published_equations_on_plain_floats(form: str) -> None:
    read = drawn(17)
    forms = {
        "parallel": lambda: (mlstm_parallel(*read),),
        "chunks": lambda: mlstm_chunks(*read, first(read)),
        "tokens": lambda: looped(read, first(read)),
    }
    h_BHLV = forms.get(form, lambda: stepped(read, first(read)))()[0]
    for row in range(2):
        for head in range(3):
            expected = published(*(part[row, head].tolist() for part in read))
            # eps, at 1e-6 of the stabilised sum, is all that differs.
            torch.testing.assert_close(h_BHLV[row, head], torch.tensor(expected, dtype=DOUBLE), rtol=1e-3, atol=1e-5)


def naive(read: Read, state: Carried) -> Tensor:
    """The docstring's equations with C and n apart, and eps."""
    q, k, v, i, f = read
    C_BHKV, n_BHK, m_BH = state[0][..., :-1], state[0][..., -1], state[1]
    outputs = []
    for t in range(q.shape[2]):
        log_f_BH = torch.log(torch.sigmoid(f[:, :, t]))
        new_m_BH = torch.maximum(log_f_BH + m_BH, i[:, :, t])
        kept_BH, added_BH = torch.exp(log_f_BH + m_BH - new_m_BH), torch.exp(i[:, :, t] - new_m_BH)
        outer_BHKV = torch.einsum("bhk,bhv->bhkv", k[:, :, t], v[:, :, t])
        C_BHKV = kept_BH[..., None, None] * C_BHKV + added_BH[..., None, None] * outer_BHKV
        n_BHK = kept_BH[..., None] * n_BHK + added_BH[..., None] * k[:, :, t]
        m_BH = new_m_BH
        y_BHV = torch.einsum("bhk,bhkv->bhv", q[:, :, t], C_BHKV)
        total_BH = torch.maximum((q[:, :, t] * n_BHK).sum(-1).abs(), torch.exp(-m_BH)) + 1e-6
        outputs.append(y_BHV / total_BH[..., None])
    return torch.stack(outputs, 2)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("start", [first, anywhere])
def test_all_forms_equal_the_naive_loop(start: Callable[[Read], Carried], length: int) -> None:
    read = drawn(length)
    state = start(read)
    inputs = [tensor.requires_grad_() for tensor in (*read, *state)]
    expected_BHLV = naive(read, state)
    direction_BHLV = torch.randn_like(expected_BHLV)
    expected = torch.autograd.grad((expected_BHLV * direction_BHLV).sum(), inputs)
    whole = [mlstm_parallel(*read)] if start is first else []
    for h_BHLV in (mlstm_chunks(*read, state)[0], looped(read, state)[0], stepped(read, state)[0], *whole):
        close(h_BHLV, expected_BHLV)
        loss = (h_BHLV * direction_BHLV).sum()
        found = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-8)


@pytest.mark.parametrize("cut", [1, 32, 64, 65, 129])
@pytest.mark.parametrize("form", ["chunks", "tokens"])
def test_a_state_carries_over_a_split(form: str, cut: int) -> None:
    def scan(read: Read, state: Carried) -> tuple[Tensor, Carried]:
        return mlstm_chunks(*read, state) if form == "chunks" else looped(read, state)

    read = drawn(130)
    whole_BHLV, end = scan(read, first(read))
    head_BHLV, state = scan(tuple(part[:, :, :cut] for part in read), first(read))
    tail_BHLV, after = scan(tuple(part[:, :, cut:] for part in read), state)
    close(torch.cat([head_BHLV, tail_BHLV], 2), whole_BHLV)
    for part, stepped_part, expected in zip(after, stepped(read, first(read))[1], end, strict=True):
        close(part, expected)
        close(stepped_part, expected)


@pytest.mark.parametrize("gates", [50.0, 1e3, 1e6])
@pytest.mark.parametrize("closed", [False, True])
def test_saturated_gates_stay_finite(gates: float, closed: bool) -> None:
    read = drawn(70, dtype=torch.float32, gates=gates)
    if closed:  # nothing is let in and nothing kept, so that e^-m overflows
        read = (*read[:3], -read[3].abs(), -read[4].abs())
    inputs = [tensor.requires_grad_() for tensor in read]
    for scan in (lambda read, state: mlstm_chunks(*read, state), looped, stepped):
        h_BHLV, state = scan(read, first(read))
        gradients = torch.autograd.grad(h_BHLV.square().sum() + state[0].square().sum(), inputs)
        for part in (h_BHLV, *state, *gradients):
            assert bool(torch.isfinite(part).all())
    h_BHLV = mlstm_parallel(*read)
    for part in (h_BHLV, *torch.autograd.grad(h_BHLV.square().sum(), inputs)):
        assert bool(torch.isfinite(part).all())


def test_a_token_is_read_back_past_a_thousand_others() -> None:
    """A gate of 0 adds nothing and forgets nothing: e^-40 against 1, and s(40)."""
    read = drawn(1000)
    q, k, v, i, f = (*read[:3], torch.full_like(read[3], -40.0), torch.full_like(read[4], 40.0))
    i[:, :, 3] = 0.0
    q[:, :, -1] = k[:, :, 3] / k[:, :, 3].square().sum(-1, keepdim=True)
    for h_BHLV, _ in (mlstm_chunks(q, k, v, i, f, first(read)), looped((q, k, v, i, f), first(read))):
        close(h_BHLV[:, :, -1], v[:, :, 3], 1e-5)
