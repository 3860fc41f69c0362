"""Memories that are read by more than a product against flash-linear-attention's plain functions."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.gla import write_then_read
from chomsky_ladder.models.scans.slots import decayed_slots
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
