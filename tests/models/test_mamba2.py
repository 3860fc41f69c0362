"""The chunked form of Mamba-2 against its recurrence one number at a time, and its settings."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.mamba2 import SSD, Mamba2Config
from chomsky_ladder.models.operations.ssd.reference import ssd_chunks, ssd_step
from support.layers import close

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 63, 64, 65, 128, 130)


def scan_inputs(batch: int, length: int) -> list[Tensor]:
    """u, log a, B, C and h, for 2 heads of dimension 4 with 3 states, which share B and C, of rank 1."""
    shapes = [(batch, length, 2, 1, 4), (batch, length, 2), *2 * [(batch, length, 1, 1, 3)], (batch, 2, 3, 4)]
    u, log_a, *others = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [z.requires_grad_() for z in (u, -log_a.exp(), *others)]


def by_hand(u: list, log_a: list, B: list, C: list, h: list) -> tuple[list, list]:
    """The recurrence of one row and head, for plain floats u [L][K], log a [L], B and C [L][N], h [N][K]."""
    y = []
    for t in range(len(u)):
        h = [[math.exp(log_a[t]) * held + B[t][n] * u[t][k] for k, held in enumerate(row)] for n, row in enumerate(h)]
        y.append([sum(C[t][n] * h[n][k] for n in range(len(h))) for k in range(len(u[t]))])
    return y, h


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_equal_the_recurrence_on_plain_floats(length: int) -> None:
    u, log_a, B, C, h = inputs = scan_inputs(2, length)
    y_BLHRK, h_BHNK = ssd_chunks(*inputs)
    for b, k in ((b, k) for b in range(2) for k in range(2)):
        each = (u[b, :, k, 0], log_a[b, :, k], B[b, :, 0, 0], C[b, :, 0, 0], h[b, k])
        y, after = by_hand(*(z.tolist() for z in each))
        close(y_BLHRK[b, :, k, 0], torch.tensor(y, dtype=torch.float64), 1e-11)
        close(h_BHNK[b, k], torch.tensor(after, dtype=torch.float64), 1e-11)


def stepped(u: Tensor, log_a: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(u.shape[1]):
        y, h = ssd_step(*(z[:, t : t + 1] for z in (u, log_a, B, C)), h)
        outputs.append(y)
    return torch.cat(outputs, 1), h


def weighted(outputs: tuple[Tensor, ...]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((z * torch.arange(1.0, z.numel() + 1).to(z.dtype).cos().view_as(z)).sum() for z in outputs)


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_have_the_gradients_of_steps(length: int) -> None:
    inputs = scan_inputs(3, length)
    results = []
    for scan in (stepped, ssd_chunks):
        outputs = scan(*inputs)
        results.append((*outputs, *torch.autograd.grad(weighted(outputs), inputs)))
    for one, other in zip(*results, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("length", [1, 40, 130])
def test_weights_of_later_and_of_own_outputs_and_what_passes_by(rank: int, length: int) -> None:
    """Against steps whose u is weighted for what comes later, and their own outputs mended for what it differs by."""
    u, log_a, B, C, h = (x.detach() for x in scan_inputs(2, length))
    u, B, C = (torch.randn(*z.shape[:3], rank, z.shape[-1], dtype=z.dtype) for z in (u, B, C))
    weight, own, skip = torch.rand(2, length, 2), torch.rand(2, length, 2), torch.randn(2)
    leaves = [z.double().requires_grad_() for z in (u, log_a, B, C, h, weight, own, skip)]

    def mended() -> tuple[Tensor, Tensor]:
        u, log_a, B, C, h, weight, own, skip = leaves
        y, h = stepped(weight[..., None, None] * u, log_a, B, C, h)
        differs = ((own - weight)[..., None, None] * (C @ B.mT)) @ u
        return y + differs + skip[:, None, None] * u, h

    *given, weight, own, skip = leaves
    found, expected = ssd_chunks(*given, weight_BLH=weight, own_BLH=own, skip_H=skip), mended()
    zeros = [*given[:4], torch.zeros_like(h)]
    none = ssd_chunks(*given[:4], None, weight_BLH=weight, own_BLH=own, skip_H=skip)
    close(none[0], ssd_chunks(*zeros, weight_BLH=weight, own_BLH=own, skip_H=skip)[0])
    assert none[1] is None
    pairs = zip(
        (*found, *torch.autograd.grad(weighted(found), leaves)),
        (*expected, *torch.autograd.grad(weighted(expected), leaves)),
        strict=True,
    )
    for one, other in pairs:
        close(one, other, 1e-10)


def layer_of(**settings: int) -> SSD:
    return Mamba2Config(d_model=16, head_dim=8, d_state=4, **settings).block(0).layers[0]


def test_the_whole_layer_equals_its_equations() -> None:
    layer = layer_of().double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    x_LD = torch.randn(70, 16, dtype=torch.float64)
    z_LE, mixed_LF, dt_LH = (layer.gate_value_dt.weight @ x_LD.mT).mT.split([32, 40, 4], dim=1)
    padded_LF = torch.cat([torch.zeros(3, 40, dtype=torch.float64), mixed_LF])
    taps = layer.convolution.weight
    mixed_LF = nn.functional.silu(sum(padded_LF[k : k + 70] * taps[:, k] for k in range(4)) + layer.convolution.bias)
    v_LE, B_LN, C_LN = mixed_LF.split([32, 4, 4], dim=1)
    dt_LH = torch.log1p(torch.exp(dt_LH + layer.dt_bias))
    heads = []
    for head in range(4):
        v_LK = v_LE[:, 8 * head : 8 * head + 8]
        h_NK, outputs = torch.zeros(4, 8, dtype=torch.float64), []
        for t in range(70):
            a = torch.exp(-dt_LH[t, head] * torch.exp(layer.A_log[head]))
            h_NK = a * h_NK + dt_LH[t, head] * torch.outer(B_LN[t], v_LK[t])
            outputs.append(C_LN[t] @ h_NK + layer.D[head] * v_LK[t])
        heads.append(torch.stack(outputs))
    y_LE = torch.cat(heads, 1) * z_LE * torch.sigmoid(z_LE)
    y_LE = y_LE / (y_LE.square().mean(1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
    close(layer(x_LD[None], Context())[0], y_LE @ layer.out.weight.mT, 1e-11)


def test_saturated_steps_stay_finite_and_cost_later_decays_no_digits() -> None:
    layer = layer_of()
    x_BLD = torch.randn(2, 100, 16)
    with torch.no_grad():
        layer.gate_value_dt.weight[:, 0] = 0
        layer.gate_value_dt.weight[-4:] = torch.eye(16)[0]
        x_BLD[:, :, 0] = 0
        x_BLD[:, [3, 4, 70], 0] = 1e7  # dt, by way of softplus
    x_BLD.requires_grad_()
    y_BLD = layer(x_BLD, Context())
    gradients = torch.autograd.grad(y_BLD.sum(), [x_BLD, *layer.parameters()])
    assert all(bool(torch.isfinite(z).all()) for z in (y_BLD, *gradients))
    layer.double()
    close(y_BLD.double(), layer(x_BLD.double(), Context()), 2e-4)
    for scale in (0.0, 1e-30, 1e30):
        extremes = [z.detach().float() for z in scan_inputs(2, 100)]
        extremes[1] *= scale
        outputs = ssd_chunks(*[z.requires_grad_() for z in extremes])
        gradients = torch.autograd.grad(weighted(outputs), extremes)
        assert all(bool(torch.isfinite(z).all()) for z in (*outputs, *gradients))


def test_memory_for_the_backward_pass_is_linear_in_the_length() -> None:
    layer, found = layer_of(), []
    for length in (2048, 4096):
        kept: dict[int, int] = {}

        def keep(z: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[z.untyped_storage().data_ptr()] = z.untyped_storage().nbytes()
            return z

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda z: z):
            layer(torch.randn(1, length, 16), Context()).sum().backward()
        found.append(sum(kept.values()))
    assert found[1] < 2.1 * found[0]


def test_the_state_stays_in_fp32_under_bf16_autocast() -> None:
    layer = layer_of()
    x_BLD = torch.randn(2, 70, 16)
    expected_BLD = layer(x_BLD, Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(layer(x_BLD, Context()).float(), expected_BLD, 0.05)
        state = layer.init_state(2, max_length=70, device=torch.device("cpu"), dtype=torch.bfloat16)
        y_BLD, (_, h_BHNK) = layer.extend(x_BLD, state, Context())
        assert h_BHNK.dtype == torch.float32
        close(y_BLD.float(), expected_BLD, 0.05)


def test_initial_weights_are_the_papers() -> None:
    layer = Mamba2Config(d_model=1024, num_blocks=4, head_dim=1, d_state=8).block(0).layers[0]
    A_H, log_dt_H = layer.A_log.exp(), nn.functional.softplus(layer.dt_bias.double()).log10()
    assert 1 <= A_H.min() < 1.1 and 15.9 < A_H.max() < 16.001
    assert A_H.mean().item() == pytest.approx(8.5, abs=0.4)
    assert -3.001 < log_dt_H.min() < -2.98 and -1.02 < log_dt_H.max() < -0.999
    assert log_dt_H.mean().item() == pytest.approx(-2, abs=0.05)
    assert torch.equal(layer.D, torch.ones(2048)) and torch.equal(layer.norm.weight, torch.ones(2048))
    assert 0.99 * 8192**-0.5 < layer.out.weight.abs().max() <= 8192**-0.5  # 2048 inputs, and four blocks that write


def test_transitions_are_not_decayed() -> None:
    model = Mamba2Config.tiny().build(7)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed = {names[parameter].rsplit("parts.1.")[-1] for parameter, decays, _ in declared(model) if decays}
    assert decayed == {"gate_value_dt.weight", "convolution.weight", "out.weight", "head.weight"}


@pytest.mark.parametrize(
    "settings", [{"expansion": 0}, {"d_state": 0}, {"conv_width": 0}, {"head_dim": 0}, {"head_dim": 48}]
)
def test_wrong_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Mamba2Config(**settings)
