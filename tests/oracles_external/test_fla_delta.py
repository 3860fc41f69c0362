"""The delta rules against flash-linear-attention's naive functions: outputs, last states and gradients."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.delta_net import DeltaNetConfig, DeltaRule
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig
from chomsky_ladder.models.gated_delta_product import GatedDeltaProductConfig
from chomsky_ladder.models.preconditioned_delta_net import Curvature, preconditioned
from chomsky_ladder.models.scans.decayed_delta import decayed_delta_rule
from chomsky_ladder.models.scans.delta import delta_rule
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
from support import naive_fla
from support.layers import gradients, lively
from support.naive_fla import naive

pytestmark = pytest.mark.skipif(not naive_fla.IS_THERE, reason="needs fla-core, of the `oracles` extra")

torch.set_num_threads(1)

B, H, K, V = 2, 3, 4, 5


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs casts to float32 inside; for the comparison that means float64."""
    naive("kda", "naive_recurrent_kda")  # imported before the names below mean something else
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for name in ("float", "float32"):
        monkeypatch.setattr(torch, name, torch.float64)


def given(length: int) -> dict[str, Tensor]:
    """Return inputs in their layout, [B, L, H, ..], with decays from 1 to 1e-6."""
    q, k = torch.randn(2, B, length, H, K, dtype=torch.float64)
    made = {"q": q, "k": nn.functional.normalize(k, dim=-1), "v": torch.randn(B, length, H, V).double()}
    made |= {"g": 2 * torch.rand(B, length, H, K).double().log(), "beta": 2 * torch.rand(B, length, H).double()}
    made |= {"b": 2 * torch.rand(B, length, H, K).double(), "w": torch.rand(B, length, H, V).double()}
    made |= {"initial_state": torch.randn(B, H, K, V).double()}
    return {name: x.detach().requires_grad_() for name, x in made.items()}


def same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], inputs: list[Tensor]) -> None:
    """`expected` as theirs give it, heads behind tokens."""
    pairs = (found, (expected[0].transpose(1, 2), expected[1]))
    weights = [torch.randn_like(x) for x in found]
    both = []
    for pair in pairs:
        loss = sum((x * w).sum() for x, w in zip(pair, weights, strict=True))
        both.append((*pair, *torch.autograd.grad(loss, inputs)))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def heads_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


LENGTHS = pytest.mark.parametrize("length", [1, 2, 17, 65])


@LENGTHS
def test_kda(length: int) -> None:
    x = given(length)
    names = ("q", "k", "v", "g", "beta", "initial_state")
    q, k, v, g, beta = heads_first(*(x[name] for name in names[:5]))
    b = beta[..., None]
    found = decayed_delta_rule(q * K**-0.5, g.exp() * k, b * k, k, b * v, g, x["initial_state"])
    function = naive("kda", "naive_recurrent_kda")
    same(found, function(**{name: x[name] for name in names}, output_final_state=True), [x[name] for name in names])


@LENGTHS
def test_gated_delta_net_2(length: int) -> None:
    x = given(length)
    names = ("q", "k", "v", "g", "b", "w", "initial_state")
    q, k, v, g, b, w = heads_first(*(x[name] for name in names[:6]))
    found = decayed_delta_rule(q * K**-0.5, g.exp() * b * k, k, k, w * v, g, x["initial_state"])
    function = naive("gdn2", "naive_recurrent_gdn2")
    same(found, function(**{name: x[name] for name in names}, output_final_state=True), [x[name] for name in names])


@LENGTHS
def test_comba(length: int) -> None:
    """Theirs takes queries as they are corrected, and p."""
    x = given(length)
    x["g"] = x["g"][..., 0].detach().requires_grad_()
    x["p"] = (0.7 * x["k"]).detach().requires_grad_()
    names = ("q", "k", "v", "p", "beta", "g", "initial_state")
    q, k, v, p, beta, g = heads_first(*(x[name] for name in names[:6]))
    b, log_decay = beta[..., None], g[..., None]
    found = decayed_delta_rule(q * K**-0.5, log_decay.exp() * p, b * k, k, b * v, log_decay, x["initial_state"])
    function = naive("comba", "naive_recurrent_comba")
    same(found, function(**{name: x[name] for name in names}, output_final_state=True), [x[name] for name in names])


@LENGTHS
@pytest.mark.parametrize("of", ["gated_delta_rule", "kda"])
def test_preconditioned_deltanet(of: str, length: int) -> None:
    """Theirs adds 1e-6 to no length of a key."""
    x, curvature = given(length), Curvature(K, H).double()
    curvature.centre.data = torch.randn(H).double()
    asked, A = torch.randn(B, length, 2 * H).double(), torch.rand(B, H, K).double()
    x |= {"g": x["g"] if of == "kda" else x["g"][..., 0], "beta": x["beta"] / 2, "asked": asked, "A": A}
    x = {name: one.detach().requires_grad_() for name, one in x.items() if name not in {"b", "w"}}
    q, k, v, beta, g = heads_first(*(x[name] for name in ("q", "k", "v", "beta", "g")))
    ours = (q, k, v, beta[..., None], g if of == "kda" else g[..., None])
    y, (S, A) = preconditioned(curvature, x["asked"], ours, (x["initial_state"], x["A"]), Context())
    dt, strength = x["asked"].chunk(2, -1)
    own = {name: x[name] for name in ("v", "g", "beta", "initial_state")}
    own |= {name: nn.functional.normalize(x[name], dim=-1) for name in ("q", "k")}
    own["g_atk"] = -curvature.A_log.exp() * nn.functional.softplus(dt + curvature.dt_bias)
    own |= {"beta_atk": torch.sigmoid(strength), "initial_A_state": x["A"], "log_atk_scale": curvature.centre}
    y_BLHV, *their_last = naive(f"precond_{of}", f"naive_recurrent_precond_{of}")(**own, output_final_state=True)
    inputs = [*x.values(), curvature.A_log, curvature.dt_bias, curvature.centre]
    both = []
    for results in ((y, S, A), (y_BLHV.transpose(1, 2), *their_last)):
        whole = torch.cat([one.flatten() for one in results])
        both.append([whole, *gradients(whole, inputs)])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@LENGTHS
def test_the_gated_delta_rule(length: int) -> None:
    x = given(length)
    x["g"] = x["g"][..., 0].detach().requires_grad_()
    names = ("q", "k", "v", "beta", "g", "initial_state")
    q, k, v, beta, g = heads_first(*(x[name] for name in names[:5]))
    found = gated_delta_rule(q * K**-0.5, k, v, beta, g, x["initial_state"])
    function = naive("gated_delta_rule", "naive_recurrent_gated_delta_rule")
    same(found, function(**{name: x[name] for name in names}, output_final_state=True), [x[name] for name in names])


@LENGTHS
def test_the_delta_rule(length: int) -> None:
    """Theirs takes heads before tokens and begins with nothing."""
    x = given(length)
    names = ("q", "k", "v", "beta")
    q, k, v, beta = heads_first(*(x[name] for name in names))
    found = delta_rule(q * K**-0.5, k, v, beta, torch.zeros(B, H, K, V, dtype=torch.float64))
    y_BHLV, last_BHKV = naive("delta_rule", "delta_rule_recurrence")(q, k, v, beta)
    same(found, (y_BHLV.transpose(1, 2), last_BHKV), [x[name] for name in names])


def of_their_rule(layer: nn.Module, x_BLD: Tensor, steps: int) -> Tensor:
    """Return the output of a layer of ours with their recurrence inside. A token has `steps` keys."""
    (batch, length, _), heads, keys = x_BLD.shape, layer.num_heads, layer.widths[0]
    shifted = nn.functional.pad(x_BLD @ layer.query_key_value.weight.T, (0, 0, 3, 0))
    mixed = sum(shifted[:, i : i + length] * layer.convolution.weight[:, i] for i in range(4))
    q, k, v = (mixed * torch.sigmoid(mixed)).tensor_split((keys, (1 + steps) * keys), -1)
    q = q.reshape(batch, length, heads, -1)
    k, v = (x.reshape(batch, length * steps, heads, -1) for x in (k, v))
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    beta = layer.largest_beta * torch.sigmoid(x_BLD @ layer.beta.weight.T).reshape(batch, length * steps, heads)
    if isinstance(layer, DeltaRule):
        y, _ = naive("delta_rule", "delta_rule_recurrence")(*heads_first(q * q.shape[-1] ** 0.5, k, v, beta))
        y, gate = y.transpose(1, 2), 1
    else:
        g = -layer.A_log.exp() * nn.functional.softplus(x_BLD @ layer.dt.weight.T + layer.dt_bias)
        function = naive("gated_delta_product", "naive_recurrent_gated_delta_product")
        y, _ = function(q, k, v, g, beta, 1.0, num_householder=steps)
        gate = nn.functional.silu(x_BLD @ layer.gate.weight.T)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
    return (y.flatten(2) * gate) @ layer.out.weight.T


@pytest.mark.parametrize(("head_dim", "expand_v"), [(0, 1), (0, 2), (5, 2)])
@pytest.mark.parametrize("length", [1, 17, 65])
@pytest.mark.parametrize(
    ("cls", "steps"),
    [(DeltaNetConfig, 1), (GatedDeltaNetConfig, 1), (GatedDeltaProductConfig, 2), (GatedDeltaProductConfig, 3)],
)
def test_the_layers_with_heads_of_any_width(
    cls: type[DeltaNetConfig], steps: int, length: int, head_dim: int, expand_v: int
) -> None:
    own = {"num_householders": steps} if cls is GatedDeltaProductConfig else {}
    config = cls(d_model=12, num_heads=3, eigenvalues="signed", expand_v=expand_v, head_dim=head_dim, **own)
    layer = lively(config.block(0).layers[0])
    x_BLD = torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    both = []
    for y_BLD in (layer(x_BLD, Context()), of_their_rule(layer, x_BLD, steps)):
        both.append((y_BLD, *gradients(y_BLD, inputs)))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
