"""Both Mambas against the plain-torch paths of transformers: whole models with the same weights, in float64."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.mamba2 import Mamba2Config

transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)

VOCAB, WIDTH = 11, 16
PAIRS = {  # our names of a mixer's parameters and theirs
    "mamba": {
        "value_gate.weight": "in_proj.weight",
        "convolution.weight": "conv1d.weight",
        "convolution.bias": "conv1d.bias",
        "select.weight": "x_proj.weight",
        "dt.weight": "dt_proj.weight",
        "dt.bias": "dt_proj.bias",
        "A_log": "A_log",
        "D": "D",
        "out.weight": "out_proj.weight",
    },
    "mamba2": {
        "gate_value_dt.weight": "in_proj.weight",
        "convolution.weight": "conv1d.weight",
        "convolution.bias": "conv1d.bias",
        "dt_bias": "dt_bias",
        "A_log": "A_log",
        "D": "D",
        "norm.weight": "norm.weight",
        "out.weight": "out_proj.weight",
    },
}


@pytest.fixture(autouse=True)
def _seeded_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their models cast to float32 inside; for the comparison that means float64."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch, "float32", torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def twins(name: str) -> tuple[nn.Module, nn.Module, list[tuple[str, str]]]:
    """Our model, theirs, and the names of parameters that are the same; theirs gets our values, randomised."""
    own = {
        "mamba": MambaConfig(d_model=WIDTH, d_state=5, dt_rank=3),
        "mamba2": Mamba2Config(d_model=WIDTH, d_state=5, head_dim=8),
    }[name]
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "state_size": 5, "num_hidden_layers": 2}
    sizes["tie_word_embeddings"] = False
    model = own.build(VOCAB).double()
    if name == "mamba":
        theirs = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes, time_step_rank=3))
    else:
        theirs = transformers.Mamba2ForCausalLM(
            transformers.Mamba2Config(**sizes, num_heads=4, head_dim=8, n_groups=1, chunk_size=32)
        )
    theirs = theirs.double()
    for norm in [layer.norm for layer in theirs.backbone.layers] + [theirs.backbone.norm_f]:
        norm.variance_epsilon = torch.finfo(torch.float64).eps  # as torch.nn.RMSNorm's
    names = [
        ("embedding.weight", "backbone.embeddings.weight"),
        ("norm.weight", "backbone.norm_f.weight"),
        ("head.weight", "lm_head.weight"),
    ]
    for layer in range(2):
        names.append((f"blocks.{layer}.parts.0.weight", f"backbone.layers.{layer}.norm.weight"))
        names += [
            (f"blocks.{layer}.parts.1.{ours}", f"backbone.layers.{layer}.mixer.{other}")
            for ours, other in PAIRS[name].items()
        ]
    found, expected = dict(model.named_parameters()), dict(theirs.named_parameters())
    assert sorted(ours for ours, _ in names) == sorted(found) and sorted(other for _, other in names) == sorted(
        expected
    )
    with torch.no_grad():
        for ours, other in names:
            found[ours] += 0.1 * torch.randn_like(found[ours])
            expected[other].copy_(found[ours].view_as(expected[other]))
    return model, theirs, names


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 17, 64, 65, 130])
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", PAIRS)
def test_logits_and_the_gradients_of_all_weights(name: str, backend: Backend, length: int) -> None:
    model, theirs, names = twins(name)
    tokens_BL = torch.randint(VOCAB, (3, length))
    logits_BLV = model(tokens_BL, Context(backend=backend))
    expected_BLV = theirs(tokens_BL, use_cache=False).logits
    close(logits_BLV, expected_BLV)

    weights_BLV = torch.randn_like(logits_BLV)
    (logits_BLV * weights_BLV).sum().backward()
    (expected_BLV * weights_BLV).sum().backward()
    found, expected = dict(model.named_parameters()), dict(theirs.named_parameters())
    for ours, other in names:
        close(found[ours].grad, expected[other].grad.view_as(found[ours]))
