"""Memories that are read by more than a product against flash-linear-attention's plain functions."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models import momentum_deltanet
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.fast_weights.reference import Held, Norm, fast_weights
from chomsky_ladder.models.operations.mesa.reference import mesa
from chomsky_ladder.models.operations.momentum.reference import momentum_delta_rule
from chomsky_ladder.models.operations.slots.reference import decayed_slots
from chomsky_ladder.models.scans.decayed import write_then_read
from chomsky_ladder.models.scans.fenwick import fenwick_attention, fenwick_extend
from support import naive_fla
from support.naive_fla import naive

pytestmark = pytest.mark.skipif(not naive_fla.IS_THERE, reason="needs fla-core, of the `oracles` extra")

torch.set_num_threads(1)

B, H, K, V, M = 2, 3, 4, 5, 6
LENGTHS = pytest.mark.parametrize("length", [1, 2, 17, 65])


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Theirs casts to float32 inside and makes tensors of no dtype; for the comparison both mean float64."""
    naive("gsa", "naive_recurrent_gsa")  # imported before the names below mean something else
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for name in ("float", "float32"):
        monkeypatch.setattr(torch, name, torch.float64)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(default)


def drawn(*sizes: int) -> Tensor:
    return torch.randn(B, H, *sizes, dtype=torch.float64)


def heads_last(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], inputs: list[Tensor]) -> None:
    weights = [torch.randn_like(x) for x in found]
    both = []
    for results in (found, expected):
        loss = sum((x * w).sum() for x, w in zip(results, weights, strict=True))
        both.append((*results, *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@LENGTHS
def test_gated_slot_attention(length: int) -> None:
    q, k, v, s = drawn(length, K), drawn(length, K), drawn(length, V), drawn(length, M)
    log_decay = 3 * nn.functional.logsigmoid(drawn(length, M))
    given = [x.requires_grad_() for x in (q, k, v, s, log_decay, drawn(K, M), drawn(M, V))]
    *_, keys, values = given
    scores, last_keys = decayed_slots(q, k, s, log_decay.exp(), keys)
    y, last_values = write_then_read(torch.softmax(scores, -1), s, v, log_decay.exp(), values)
    theirs = naive("gsa", "naive_recurrent_gsa")
    y_BLHV, last = theirs(*heads_last(*given[:5]), 1.0, (keys, values), True)
    same((y, last_keys, last_values), (y_BLHV.transpose(1, 2), *last), given)


@LENGTHS
@pytest.mark.parametrize("solver", ["exact", "CG"])
def test_mesa_net(solver: str, length: int) -> None:
    """Theirs adds the ridge where ours divides by its root. Their steps are good to a few digits: 1e-5 is added to what
    they divide by."""
    q, k = drawn(length, K), nn.functional.normalize(drawn(length, K), dim=-1)
    log_decay, beta = nn.functional.logsigmoid(3 * drawn(length)), torch.sigmoid(drawn(length))
    before, ridge = drawn(7, K), 0.25 + torch.rand(H, K, dtype=torch.float64)
    given = [q, k, drawn(length, K), log_decay, beta, before.mT @ before, drawn(K, K)]
    given = [x.detach().requires_grad_() for x in (*given, ridge)]
    q, k, v, log_decay, beta, gram, values, ridge = given
    root = ridge.rsqrt()[:, None]
    found, (last_gram, last_values) = mesa(
        root * q, root * k, v, beta, log_decay, (root.mT * gram * root, root.mT * values)
    )
    x = heads_last(q, k, v, log_decay)
    if solver == "exact":
        theirs, steps = naive("mesa_net", "naive_mesa_net_exact"), {}
    else:
        theirs, steps = naive("mesa_net", "naive_mesa_net_CG"), {"chunk_size": length}
    y_BLHV, *last = theirs(*x, ridge, *heads_last(beta), h_kk_init=gram, h_kv_init=values, **steps)
    results = (y_BLHV.transpose(1, 2), *last)
    ours = (found, last_gram / (root.mT * root), last_values / root.mT)
    if solver == "exact":
        same(ours, results, given)
    else:
        for one, other in zip(ours, results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("length", "size"), [(1, 1), (5, 1), (16, 16), (64, 16), (60, 4)])
def test_ttt_linear(length: int, size: int) -> None:
    """Theirs has rates of the token that asks, none of the one that is learned, adds LN to what it is of, and
    multiplies its queries in place."""
    q, k, v = (drawn(length, K) for _ in range(3))
    scale, shift, rate_C = 1 + drawn(K)[0] / 3, drawn(K)[0], torch.rand(size, dtype=torch.float64)
    given = [x.detach().requires_grad_() for x in (q, k, v, scale, shift, rate_C, drawn(K, K), drawn(1, K))]
    q, k, v, scale, shift, rate_C, weights, bias = given
    norm, M = Norm(scale[:, None], shift[:, None]), torch.cat([weights, bias], 2)
    one = torch.ones(B, H, length, dtype=torch.float64)
    z, last = fast_weights(q, k, v, one, rate_C, norm, Held(M, torch.zeros_like(M), torch.tensor(0)))
    eta = rate_C.repeat(length // size).expand(B, H, -1)[..., None]
    y_BLHV, *their_last = naive("ttt", "chunk_ttt_linear_ref")(
        *heads_last(1 * q, k, v), scale, shift, eta.transpose(1, 2), 1.0, 1e-6, size, weights, bias, True
    )
    same((z + norm(z), last.M_BHXK[:, :, :-1], last.M_BHXK[:, :, -1:]), (y_BLHV.transpose(1, 2), *their_last), given)


@LENGTHS
def test_the_delta_rule_with_momentum(length: int) -> None:
    """Their momentum is ours with the other sign."""
    q, k, v = drawn(length, K), nn.functional.normalize(drawn(length, K), dim=-1), drawn(length, V)
    rate, *logs = torch.rand(B, H, length), *(nn.functional.logsigmoid(3 * drawn(length)) for _ in range(2))
    given = [x.detach().requires_grad_() for x in (q, k, v, rate, *logs, drawn(K, V), drawn(K, V))]
    q, k, v, rate, log_decay, log_momentum, M, S = given
    y, last = momentum_delta_rule(q, k, v, rate, log_decay, log_momentum, (M, S))
    theirs = naive("momentum_delta_rule", "recurrent_momentum_delta_rule_ref")
    q, k, v, rate, *logs = heads_last(q, k, v, rate, log_decay, log_momentum)
    y_BLHV, their_last = theirs(q, k, v, *logs, k, torch.ones_like(rate), rate, 1.0, M, -S, True)
    same((y, *last), (y_BLHV.transpose(1, 2), their_last[0], -their_last[1]), given)


@LENGTHS
def test_momentum_deltanet(length: int) -> None:
    """Theirs reads what is removed along a key of its own, here a_t k_t, and its momentum has no factor b."""
    q, k, v = drawn(length, K), nn.functional.normalize(drawn(length, K), dim=-1), drawn(length, V)
    logs = [nn.functional.logsigmoid(3 * drawn(length)) for _ in range(4)]
    given = [x.detach().requires_grad_() for x in (q, k, v, *logs, drawn(K, V), drawn(K, V), drawn(1))]
    q, k, v, a, b, m, n, S, M, last_b = given
    held = momentum_deltanet.Held(S, -last_b.exp()[..., None] * M, last_b)
    y, held = momentum_deltanet.momentum_rule(Context(), q, k, v, momentum_deltanet.Gates(a, b, m, n), held)
    theirs = naive("momentum_delta_rule", "recurrent_momentum_delta_rule_ref")
    read, eta, beta = a.exp()[..., None] * k, n.exp(), b.exp()
    y_BLHV, (their_S, their_M) = theirs(*heads_last(q, k, v, a, m, read, beta, eta), 1.0, S, M, True)
    same((y, held[0], held[1]), (y_BLHV.transpose(1, 2), their_S, -beta[..., -1, None, None] * their_M), given)


@LENGTHS
def test_titans(length: int) -> None:
    """Theirs descends on another loss, of a LayerNorm, by a gradient that is here put in the place of our error; it
    adds that LayerNorm of what is read, and begins without momentum."""
    q, k, v, (scale, shift) = drawn(length, K), drawn(length, K), drawn(length, K), drawn(2, K)[0].unbind(1)
    rate, forget, momentum = torch.rand(3, B, H, length, 1)
    rate = rate / 20  # larger ones leave the domain in which an error in the last digit stays there
    M = first = drawn(K, K)
    theirs = naive("titans", "chunk_titans_linear_ref")
    gates = heads_last(rate, forget, momentum)
    y_BLHK, their_last = theirs(*heads_last(q, k, v), scale, shift, *gates, 1e-6, 1, first, True, use_chunk=False)

    def normed(z: Tensor) -> Tensor:
        return nn.functional.layer_norm(z, (K,), eps=1e-6)

    S, values = torch.zeros_like(M), []
    tokens = [q, k, 2 * rate[..., 0], torch.log1p(-forget[..., 0]), momentum[..., 0].log()]
    for t in range(length):
        z, goal = k[:, :, t, None] @ M, (v - k)[:, :, t, None]
        root = (z.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
        d = (scale[:, None] * normed(z) + shift[:, None] - goal) * scale[:, None]
        gradient = K * d - (d.sum(-1, keepdim=True) + normed(z) * (d * normed(z)).sum(-1, keepdim=True)) / (root * K)
        values.append(z - gradient)
        _, (M, S) = one_token(tokens, values[-1], t, (M, S))
    q, k, *gates = tokens
    y, last = momentum_delta_rule(q, k, torch.cat(values, 2), *gates, (first, torch.zeros_like(first)))
    torch.testing.assert_close(y + normed(y) * scale[:, None] + shift[:, None], y_BLHK.transpose(1, 2))
    torch.testing.assert_close(last[0], their_last)


def one_token(tokens: list[Tensor], v: Tensor, t: int, held: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple]:
    q, k, *gates = (x[:, :, t : t + 1] for x in tokens)
    return momentum_delta_rule(q, k, v, *gates, held)


@LENGTHS
@pytest.mark.parametrize("way", ["start", "state"])
def test_log_linear_attention(way: str, length: int) -> None:
    """Queries and keys are the same for all heads."""
    q, k, v = drawn(length, K)[:, :1], drawn(length, K)[:, :1], drawn(length, V)
    log_decay, c = nn.functional.logsigmoid(3 * drawn(length)), torch.rand(B, H, length, 8)
    given = [x.detach().requires_grad_() for x in (q, k, v, log_decay, c)]
    nothing = torch.zeros(B, H, 7, K, V), torch.tensor(0)
    y = fenwick_attention(*given) if way == "start" else fenwick_extend(*given, nothing)[0]
    y_BLHV = naive("log_linear_attn", "naive_log_linear_attn")(*heads_last(*given))
    same((y,), (y_BLHV.transpose(1, 2),), given)
