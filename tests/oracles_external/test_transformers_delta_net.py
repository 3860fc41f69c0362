"""The delta rule against transformers' gated one (Qwen3-Next) with its gate open, outputs and gradients in float64."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.scans.delta import delta_rule

theirs = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Theirs casts to float32 inside; for the comparison that means float64."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("length", [1, 2, 17, 64, 65, 130])
@pytest.mark.parametrize("beta", [None, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_the_rule(form: str, beta: float | None, length: int) -> None:
    shape, dtype = (2, 3, length, 4), torch.float64
    q_BHLK, v_BHLV = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    k_BHLK = torch.nn.functional.normalize(torch.randn(shape, dtype=dtype), dim=-1)
    beta_BHL = 2 * torch.rand(shape[:3], dtype=dtype) if beta is None else torch.full(shape[:3], beta, dtype=dtype)
    given = [x.requires_grad_() for x in (q_BHLK, k_BHLK, v_BHLV, beta_BHL, torch.randn(2, 3, 4, 4, dtype=dtype))]

    found = delta_rule(*given)
    by_time = [x.transpose(1, 2) for x in given[:4]]
    function = getattr(theirs, f"torch_{form}_gated_delta_rule")
    y_BLHV, last_BHKV = function(
        2 * by_time[0],  # theirs divides by the root of K
        by_time[1],
        by_time[2],
        torch.zeros_like(by_time[3]),
        by_time[3],
        initial_state=given[4],
        output_final_state=True,
    )
    expected = (y_BLHV.transpose(1, 2), last_BHKV)
    weights = [torch.randn_like(x) for x in found]

    def gradients(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sum((x * w).sum() for x, w in zip(pair, weights, strict=True)), given)

    for one, other in zip((*found, *gradients(found)), (*expected, *gradients(expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
