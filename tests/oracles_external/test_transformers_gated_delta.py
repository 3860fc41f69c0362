"""The gated delta rule and its layer against transformers' (Qwen3-Next, OLMo Hybrid): outputs and gradients."""

from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig, GatedDeltaRule
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule

qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
olmo = pytest.importorskip("transformers.models.olmo_hybrid.modeling_olmo_hybrid")

torch.set_num_threads(1)

WIDTH, HEADS = 12, 3


@pytest.fixture(autouse=True)
def _seeded_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Theirs casts to float32 inside; for the comparison that means float64."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch, "float32", torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def by_steps(x_BLX: Tensor, steps: int, *, place: int) -> Tensor:
    """A token's value at one of its steps, zeros at the others."""
    return torch.stack([x_BLX if step == place else torch.zeros_like(x_BLX) for step in range(steps)], 2).flatten(1, 2)


@pytest.mark.parametrize(("length", "steps"), [(1, 1), (2, 1), (17, 1), (64, 1), (65, 1), (130, 1), (33, 2), (22, 3)])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_the_rule(form: str, length: int, steps: int) -> None:
    """Their code has a token for each of several steps: the first decays, the last is read."""
    shape, dtype = (2, 3, length, 4), torch.float64
    many = (2, 3, length * steps, 4)
    q_BHLK, k_BHMK, v_BHMV, start_BHKV = (torch.randn(s, dtype=dtype) for s in (shape, many, many, (2, 3, 4, 4)))
    k_BHMK, beta_BHM = torch.nn.functional.normalize(k_BHMK, dim=-1), 2 * torch.rand(many[:3], dtype=dtype)
    log_decay_BHL = 2 * torch.rand(shape[:3], dtype=dtype).log()
    given = [x.requires_grad_() for x in (q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, start_BHKV)]

    found = gated_delta_rule(*given)
    function = getattr(qwen, f"torch_{form}_gated_delta_rule")
    y_BMHV, last_BHKV = function(
        by_steps(2 * q_BHLK.transpose(1, 2), steps, place=steps - 1),  # theirs divides by the root of K
        k_BHMK.transpose(1, 2),
        v_BHMV.transpose(1, 2),
        by_steps(log_decay_BHL.transpose(1, 2), steps, place=0),
        beta_BHM.transpose(1, 2),
        initial_state=start_BHKV,
        output_final_state=True,
    )
    expected = (y_BMHV[:, steps - 1 :: steps].transpose(1, 2), last_BHKV)
    weights = [torch.randn_like(x) for x in found]

    def gradients(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sum((x * w).sum() for x, w in zip(pair, weights, strict=True)), given)

    close((*found, *gradients(found)), (*expected, *gradients(expected)))


def names_of_theirs(ours: GatedDeltaRule) -> dict[str, list[str]]:
    """Our parameters, and theirs that they are stacked from."""
    names = {name: [name] for name, _ in ours.named_parameters()}
    names["query_key_value.weight"] = [f"{x}_proj.weight" for x in "qkv"]
    renamed = {"convolution": "conv1d", "beta": "b_proj", "dt": "a_proj", "gate": "g_proj", "out": "o_proj"}
    return names | {f"{ours}.weight": [f"{other}.weight"] for ours, other in (renamed | {"norm": "o_norm"}).items()}


@pytest.mark.parametrize("eigenvalues", ["positive", "signed"])
@pytest.mark.parametrize(("length", "expand_v"), [(1, 1), (17, 2), (70, 1)])
def test_the_layer(length: int, expand_v: int, eigenvalues: str) -> None:
    settings = GatedDeltaNetConfig(d_model=WIDTH, num_heads=HEADS, eigenvalues=eigenvalues, expand_v=expand_v)
    ours = GatedDeltaRule(settings).double()
    config = olmo.OlmoHybridConfig(
        hidden_size=WIDTH,
        linear_num_key_heads=HEADS,
        linear_num_value_heads=HEADS,
        linear_key_head_dim=WIDTH // HEADS,
        linear_value_head_dim=expand_v * WIDTH // HEADS,
        linear_allow_neg_eigval=eigenvalues == "signed",
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
    )
    theirs = olmo.OlmoHybridGatedDeltaNet(config, 0).double()
    theirs.o_norm.variance_epsilon = 1e-5 * HEADS / WIDTH  # as theirs divides queries by the root of K
    pairs = names_of_theirs(ours)
    own, others = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert sorted(pairs) == sorted(own) and sorted(chain(*pairs.values())) == sorted(others)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter += 0.3 * torch.randn_like(parameter)
            parts = parameter.split([len(others[other]) for other in pairs[name]])
            for part, other in zip(parts, pairs[name], strict=True):
                others[other].copy_(part.view_as(others[other]))
    x_BLD = torch.randn(3, length, WIDTH, dtype=torch.float64)
    found_BLD, expected_BLD = ours(x_BLD, Context()), theirs(x_BLD)
    weights_BLD = torch.randn_like(found_BLD)
    found = torch.autograd.grad((found_BLD * weights_BLD).sum(), own.values())
    (expected_BLD * weights_BLD).sum().backward()
    expected = [torch.cat([others[other].grad for other in pairs[name]]).view_as(own[name]) for name in own]
    close((found_BLD, *found), (expected_BLD, *expected))
