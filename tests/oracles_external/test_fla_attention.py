"""Attentions against the plain functions of flash-linear-attention: outputs and gradients."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models import linear_attention
from chomsky_ladder.models.fox import forgetting
from chomsky_ladder.models.operations.deltaformer.reference import delta_attention
from chomsky_ladder.models.operations.sticks.reference import stick_breaking
from chomsky_ladder.models.path_attention import path_scores
from support import naive_fla
from support.naive_fla import naive, naive_alone

pytestmark = pytest.mark.skipif(not naive_fla.IS_THERE, reason="needs fla-core, of the `oracles` extra")

torch.set_num_threads(1)

LENGTHS = pytest.mark.parametrize("length", [1, 2, 17, 65])
BATCH, HEADS, DIM = 2, 3, 4


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Theirs casts to float32 inside and makes tensors of no dtype; for the comparison both mean float64."""
    naive("forgetting_attn", "naive_forgetting_attn")  # imported before the names below mean something else
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for name in ("float", "float32"):
        monkeypatch.setattr(torch, name, torch.float64)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(default)


def drawn(length: int, *sizes: int) -> Tensor:
    return torch.randn(BATCH, HEADS, length, *sizes, dtype=torch.float64)


def hold(ours: Callable[..., Tensor], theirs: Callable[..., Any], given: list[Tensor]) -> None:
    """Ours takes [B, H, L, ..]; theirs takes and returns [B, L, H, ..]."""
    given = [x.requires_grad_() for x in given]
    expected, found = theirs(*(x.transpose(1, 2) for x in given)).transpose(1, 2), ours(*given)
    weights = torch.randn_like(found)
    both = [
        (y, *torch.autograd.grad((y * weights).sum(), given, allow_unused=True, materialize_grads=True))
        for y in (found, expected)
    ]
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.full
@LENGTHS
def test_forgetting_attention(length: int) -> None:
    def ours(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, log_f_BHL: Tensor) -> Tensor:
        total_BHL = log_f_BHL.cumsum(-1)
        return forgetting(q_BHLK, k_BHLK, v_BHLK, total_BHL, total_BHL, torch.arange(length))

    q_BHLK, k_BHLK, v_BHLK = (drawn(length, DIM) for _ in range(3))
    log_f_BHL = torch.nn.functional.logsigmoid(3 * drawn(length))
    hold(ours, naive("forgetting_attn", "naive_forgetting_attn"), [q_BHLK, k_BHLK, v_BHLK, log_f_BHL])


@LENGTHS
def test_stick_breaking(length: int) -> None:
    at_L = torch.arange(length)
    theirs = naive("stickbreaking_attn", "naive_stickbreaking_attn")
    hold(
        lambda q, k, v: stick_breaking(q, k, v, at_L, at_L),
        lambda q, k, v: theirs(q, k, v)[0],
        [3 * drawn(length, DIM), drawn(length, DIM), drawn(length, DIM)],
    )


@LENGTHS
@pytest.mark.parametrize("gated", [False, True])
def test_path(gated: bool, length: int) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta_BHL: Tensor, log_f_BHL: Tensor) -> Tensor:
        total_BHL = log_f_BHL.cumsum(-1)
        scores_BHLL, _ = path_scores(q, k, w, beta_BHL, k[:, :, :0])
        scores_BHLL = scores_BHLL + (total_BHL[..., None] - total_BHL[..., None, :])
        return torch.softmax(scores_BHLL * DIM**-0.5, -1) @ v

    q, k, v, w = (drawn(length, DIM) for _ in range(4))
    beta_BHL, log_f_BHL = 2 * torch.sigmoid(drawn(length)), gated * torch.nn.functional.logsigmoid(drawn(length))
    theirs = naive("path_attn", "naive_path_attn")
    given = [q, k, v, torch.nn.functional.normalize(w, dim=-1), beta_BHL, log_f_BHL]
    hold(ours, lambda *x: theirs(*x, scale=DIM**-0.5, chunk_size=32), given)


@LENGTHS
@pytest.mark.parametrize("asks", ["key", "query"])
def test_deltaformer(asks: str, length: int) -> None:
    """Theirs asks and reads by the same vectors: queries, or keys where it is handed keys."""

    def ours(q: Tensor, k: Tensor, v: Tensor, beta_BHL: Tensor) -> Tensor:
        nothing = k[:, :, :0]
        asking = k if asks == "key" else q
        return delta_attention(asking, asking, k, v, beta_BHL, nothing, nothing, torch.zeros(0, dtype=torch.bool))[0]

    def expected(q: Tensor, k: Tensor, v: Tensor, beta_BLH: Tensor) -> Tensor:
        return theirs(k if asks == "key" else q, k, v, beta_BLH)

    theirs = naive_alone("deltaformer", "naive_deltaformer_attn")
    hold(ours, expected, [*(drawn(length, DIM) for _ in range(3)), drawn(length)])


@LENGTHS
@pytest.mark.parametrize("feature_map", ["elu", "taylor"])
def test_linear_attention(feature_map: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs adds 1e-10 to sums of features it is given, and 1e-6 to those of a softmax's first terms."""
    monkeypatch.setattr(linear_attention, "CHUNK", 16)

    def ours(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor) -> Tensor:
        return linear_attention.linear_attention(q_BHLK, k_BHLK, v_BHLV, None, feature_map=feature_map)[0]

    def by_features(q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor) -> Tensor:
        elu, theirs = torch.nn.functional.elu, naive("linear_attn", "naive_recurrent_linear_attn")
        return theirs(elu(q_BLHK) + 1, elu(k_BLHK) + 1, v_BLHV, normalize=True)[0]

    def by_terms(*given_BLHX: Tensor) -> Tensor:
        return naive("based", "naive_parallel_based")(*(x.transpose(1, 2) for x in given_BLHX)).transpose(1, 2)

    if feature_map == "elu":
        monkeypatch.setattr(linear_attention, "EPS", 1e-10 * DIM**0.5)
    hold(ours, by_features if feature_map == "elu" else by_terms, [drawn(length, DIM) for _ in range(3)])
