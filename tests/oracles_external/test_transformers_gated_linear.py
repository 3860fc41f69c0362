"""The rules of GLA, HGRN2, HGRN, minGRU, minLSTM and RG-LRU against transformers', outputs and gradients in float64.

Kimi Linear's rule has decays of a key channel too, and takes back b times what it reads before it writes b v: with b
vanishing and v / b for v it is gated linear attention. RecurrentGemma's is a diagonal recurrence as it stands.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.diagonal import diagonal_scan
from chomsky_ladder.models.rg_lru import RealGatedLRU, RGLRUConfig
from chomsky_ladder.models.scans.decayed import write_then_read

kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
gemma = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")

torch.set_num_threads(1)

VANISHING = 2.0**-40


@pytest.fixture(autouse=True)
def _seeded_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Theirs casts to float32 inside; for the comparison that means float64."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def compare(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], given: list[Tensor], tolerance: float) -> None:
    weights = [torch.randn_like(x) for x in found]
    results = []
    for outputs in (found, expected):
        loss = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
        results.append((*outputs, *torch.autograd.grad(loss, given)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("strongest", [0.1, 30.0])
@pytest.mark.parametrize("length", [1, 2, 17, 40])
def test_gated_linear_attention(length: int, strongest: float) -> None:
    shape, dtype = (2, 3, length, 4), torch.float64
    q_BHLK, k_BHLK, v_BHLV = (torch.randn(shape, dtype=dtype) for _ in range(3))
    log_decay_BHLK = -strongest * torch.rand(shape, dtype=dtype)
    start_BHKV = torch.randn(2, 3, 4, 4, dtype=dtype)
    given = [x.requires_grad_() for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, start_BHKV)]

    found = write_then_read(q_BHLK, k_BHLK, v_BHLV, log_decay_BHLK.exp(), start_BHKV)
    y_BLHV, last_BHKV = kimi.recurrent_kimi_delta_attention(
        2 * q_BHLK.transpose(1, 2),  # theirs divides by the root of K
        k_BHLK.transpose(1, 2),
        v_BHLV.transpose(1, 2) / VANISHING,
        log_decay_BHLK.transpose(1, 2),
        torch.full((2, length, 3), VANISHING, dtype=dtype),
        initial_state=start_BHKV,
        output_final_state=True,
    )
    compare(found, (y_BLHV.transpose(1, 2), last_BHKV), given, 1e-9)


@pytest.mark.parametrize("length", [2, 17, 40])
def test_the_diagonal_recurrence(length: int) -> None:
    a_BLD = torch.rand(2, length, 5, dtype=torch.float64)
    u_BLD, h_BD = torch.randn_like(a_BLD), torch.randn(2, 5, dtype=torch.float64)
    given = [x.requires_grad_() for x in (a_BLD, u_BLD, h_BD)]
    found = diagonal_scan(*given, Context())
    never = torch.zeros(2, length, 1, dtype=torch.bool)
    expected = gemma.RecurrentGemmaRglru._rnn_scan(None, u_BLD, a_BLD, never, h_BD, acc_dtype=torch.float64)
    compare(found, expected, given, 1e-12)


@pytest.mark.parametrize("length", [2, 17, 40])
def test_rg_lru_is_recurrent_gemmas_block(length: int) -> None:
    """Positions count from 1: theirs does not scale a token at position 0. Its GELU is the tanh form, ours exact."""
    ours: Any = RealGatedLRU(RGLRUConfig(d_model=12, num_heads=3)).double()
    config = gemma.RecurrentGemmaConfig(hidden_size=12, num_attention_heads=3, num_hidden_layers=1)
    theirs = gemma.RecurrentGemmaRecurrentBlock(config, 0).double()
    theirs.act_fn = nn.GELU()
    theirs.rg_lru._rnn_scan = partial(theirs.rg_lru._rnn_scan, acc_dtype=torch.float64)
    ours.decay_D.data.normal_()
    gates_2HKJ, biases_2HJ = ours.gates_HKG.chunk(2, -1), ours.gates_bias_HG.chunk(2, -1)
    theirs_by_ours = {
        "rg_lru.recurrent_param": -ours.decay_D,  # a = sigmoid(L) here, sigmoid(-L) there
        "rg_lru.recurrent_gate_weight": gates_2HKJ[0],
        "rg_lru.input_gate_weight": gates_2HKJ[1],
        "rg_lru.recurrent_gate_bias": biases_2HJ[0],
        "rg_lru.input_gate_bias": biases_2HJ[1],
        "conv_1d.weight": ours.convolution.weight[:, None],
        "conv_1d.bias": ours.convolution.bias,
    }
    for name, layer in (("y", ours.gate), ("x", ours.value), ("out", ours.out)):
        theirs_by_ours |= {f"linear_{name}.weight": layer.weight, f"linear_{name}.bias": layer.bias}
    assert set(theirs_by_ours) == {name for name, _ in theirs.named_parameters()}
    x_BLD = torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True)
    given = (x_BLD, torch.arange(1, length + 1).expand(2, -1), None)
    expected_BLD, _ = torch.func.functional_call(theirs, theirs_by_ours, given, {"use_cache": False})
    compare((ours(x_BLD, Context()),), (expected_BLD,), [x_BLD, *ours.parameters()], 1e-11)
