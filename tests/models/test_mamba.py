"""The short convolution and the selective scan against their equations one number at a time, and Mamba's settings."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.mamba import MambaConfig, SelectiveSSM
from chomsky_ladder.models.operations.scan import reference as _selective_scan
from chomsky_ladder.models.operations.scan import selective_scan
from chomsky_ladder.models.operations.scan.reference import initial_dt_bias, scan_chunks, scan_loop
from support.layers import close

torch.set_num_threads(1)

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 130)
BACKENDS: tuple[Backend, ...] = ("auto", "fused_scan", "reference")
SCANS = (scan_loop, scan_chunks)
SIGNS = [False, True]


def scan_inputs(batch: int, length: int, *, channels: int = 5, states: int = 3) -> list[Tensor]:
    """x, dt, A, B, C, D and h, all of them wanting gradients."""
    dt_BLE = torch.rand(batch, length, channels).double()
    A_EN = -2 * torch.rand(channels, states).double()
    shapes = [(batch, length, states), (batch, length, states), (channels,), (batch, states, channels)]
    others = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    inputs = [torch.randn_like(dt_BLE), dt_BLE, A_EN, *others]
    return [z.requires_grad_() for z in inputs]


def by_hand(inputs: list[Tensor], signed: bool) -> tuple[Tensor, Tensor]:
    """The equations of the docstring, for one channel and state at a time."""
    x, dt, A, B, C, D, h_BNE = (z.tolist() for z in inputs)
    y = [[[D[e] * v for e, v in enumerate(row)] for row in rows] for rows in x]
    for b, e, n in ((b, e, n) for b in range(len(x)) for e in range(len(A)) for n in range(len(A[0]))):
        h = h_BNE[b][n][e]
        for t in range(len(x[b])):
            a = math.exp(dt[b][t][e] * A[e][n])
            h = (2 * a - 1 if signed else a) * h + dt[b][t][e] * B[b][t][n] * x[b][t][e]
            y[b][t][e] += C[b][t][n] * h
        h_BNE[b][n][e] = h
    return torch.tensor(y, dtype=torch.float64), torch.tensor(h_BNE, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 17, 33])
@pytest.mark.parametrize("signed", SIGNS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scan_equals_the_equations_on_plain_floats(backend: Backend, signed: bool, length: int) -> None:
    inputs = scan_inputs(2, length)
    found = selective_scan(*inputs, signed=signed, ctx=Context(backend=backend))
    for one, other in zip(found, by_hand(inputs, signed), strict=True):
        close(one, other)
    *others, _ = inputs
    without = selective_scan(*others, None, signed=signed, ctx=Context(backend=backend))
    for one, other in zip(without, by_hand([*others, torch.zeros(2, 3, 5)], signed), strict=True):
        close(one, other)


def weighted(outputs: tuple[Tensor, ...]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((z * torch.arange(1.0, z.numel() + 1).double().cos().view_as(z)).sum() for z in outputs)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("signed", SIGNS)
@pytest.mark.parametrize("cached", [1, _selective_scan.CACHED])  # one row at a time, and all of them
def test_chunks_have_the_loops_outputs_and_gradients(
    monkeypatch: pytest.MonkeyPatch, cached: int, signed: bool, length: int
) -> None:
    monkeypatch.setattr(_selective_scan, "CACHED", cached)
    x, dt, A, B, C, _, h = scan_inputs(3, length)
    inputs = [x, dt, A.mT, B, C, h]
    results = []
    for scan in SCANS:
        outputs = scan(*inputs, signed)
        results.append((*outputs, *torch.autograd.grad(weighted(outputs), (x, dt, A, B, C, h))))
    for expected, *others in zip(*results, strict=True):
        for other in others:
            close(other, expected, 1e-11)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("reached", [(0,), (1,), (0, 1)])
def test_chunks_past_their_ends_and_in_any_order_of_memory(reached: tuple[int, ...], length: int) -> None:
    """The gradient comes from y, from the last state or from both, and tensors are not contiguous."""
    x, dt, A, B, C, _, h = scan_inputs(2, length)
    turned = [z.detach().mT.contiguous().mT.requires_grad_() for z in (x, dt, A, B, C, h)]
    results = []
    for form in SCANS:
        outputs = form(*turned[:2], turned[2].mT, *turned[3:], False)
        loss = weighted(tuple(outputs[number].mT for number in reached))
        results.append((*outputs, *torch.autograd.grad(loss, turned, allow_unused=True, materialize_grads=True)))
    for one, other in zip(*results, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("signed", SIGNS)
def test_gradients_equal_finite_differences(scan: Callable, signed: bool) -> None:
    x, dt, A, B, C, _, h = scan_inputs(1, 18, channels=2, states=2)
    assert torch.autograd.gradcheck(lambda *z: scan(*z, signed), (x, dt, A.mT.detach().requires_grad_(), B, C, h))


def test_parts_of_a_sequence_carry_gradients_through_the_state() -> None:
    x, dt, A, B, C, D, h = scan_inputs(2, 40)
    whole = selective_scan(x, dt, A, B, C, D, h, signed=False, ctx=Context())
    parts = []
    for start, end in ((0, 19), (19, 40)):
        pieces = [z[:, start:end] for z in (x, dt, B, C)]
        y, h = selective_scan(*pieces[:2], A, *pieces[2:], D, h, signed=False, ctx=Context())
        parts.append(y)
    found = torch.cat(parts, 1), h
    for one, other in zip(found, whole, strict=True):
        close(one, other)
    inputs = (x, dt, A, B, C, D)
    for one, other in zip(*(torch.autograd.grad(weighted(z), inputs) for z in (found, whole)), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stacked_models_equal_single_ones(backend: Backend) -> None:
    models = [MambaConfig(d_model=8, d_state=3).build(7).double() for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    tokens_RBL = torch.randint(7, (3, 2, 37))

    def forward(parameters: dict, buffers: dict, tokens_BL: Tensor) -> Tensor:
        return functional_call(models[0], (parameters, buffers), (tokens_BL, Context(backend=backend)))

    logits_RBLV = torch.vmap(forward)(parameters, buffers, tokens_RBL)
    weighted((logits_RBLV,)).backward()
    alone_RBLV = torch.stack([m(t, Context(backend=backend)) for m, t in zip(models, tokens_RBL, strict=True)])
    weighted((alone_RBLV,)).backward()
    close(logits_RBLV, alone_RBLV)
    for row, model in enumerate(models):
        for name, parameter in model.named_parameters():
            close(parameters[name].grad[row], parameter.grad, 1e-10)
    one_input = torch.vmap(forward, in_dims=(0, 0, None))(parameters, buffers, tokens_RBL[0])
    close(one_input[0], alone_RBLV[0])


def test_vmap_over_any_axis_and_over_some_inputs() -> None:
    x, dt, A, B, C, _, h = (z.detach() for z in scan_inputs(2, 20))
    inputs = [x, dt, A.mT, B, C, h]
    axes = (2, 0, None, 1, None, 3)
    stacked = [z if axis is None else torch.stack([z, -z.abs()], axis) for z, axis in zip(inputs, axes, strict=True)]
    results = [torch.vmap(lambda *z, scan=scan: scan(*z, True), in_dims=axes)(*stacked) for scan in SCANS]
    for expected, *others in zip(*results, strict=True):
        for other in others:
            close(other, expected)


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Watches the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        for z in torch.utils._pytree.tree_leaves(result):
            if isinstance(z, Tensor):
                self.elements = max(self.elements, z.untyped_storage().nbytes() // z.element_size())
        return result


def memory(length: int, layer: nn.Module) -> tuple[int, int]:
    """Bytes kept for the backward pass, and elements of the largest tensor in both passes."""
    kept: dict[int, int] = {}

    def keep(z: Tensor) -> Tensor:
        kept[z.untyped_storage().data_ptr()] = z.untyped_storage().nbytes()
        return z

    x_BLD = torch.randn(1, length, 8, requires_grad=True)
    with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(keep, lambda z: z):
        layer(x_BLD, Context()).sum().backward()
    return sum(kept.values()), largest.elements


def test_memory_is_linear_in_the_length_and_free_of_the_number_of_states() -> None:
    layer = SelectiveSSM(MambaConfig(d_model=8))
    (kept, largest), (twice_kept, twice_largest) = memory(2048, layer), memory(4096, layer)
    assert twice_kept < 2.1 * kept and twice_largest <= 2.1 * largest
    channels, states = layer.A_log.shape
    # All states would be `states` times the channels; those that start a chunk of 16 are one.
    assert largest < 2.1 * 2048 * channels < 2048 * channels * states
    assert kept < 4 * 2048 * channels * states


@pytest.mark.parametrize("signed", SIGNS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_extreme_steps_stay_finite(backend: Backend, signed: bool) -> None:
    inputs = [z.detach().float() for z in scan_inputs(2, 33)]
    for dt in (0.0, 1e-30, 1e4):
        x, _, *others = inputs
        inputs_now = [x, torch.full_like(x, dt), *others]
        outputs = selective_scan(*[z.requires_grad_() for z in inputs_now], signed=signed, ctx=Context(backend=backend))
        gradients = torch.autograd.grad(sum(z.sum() for z in outputs), inputs_now)
        assert all(bool(torch.isfinite(z).all()) for z in (*outputs, *gradients))


def test_bf16_autocast_leaves_the_scan_alone() -> None:
    layer = SelectiveSSM(MambaConfig(d_model=16))
    x_BLD = torch.randn(2, 20, 16)
    expected_BLD = layer(x_BLD, Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for backend in BACKENDS:
            found_BLD = layer(x_BLD, Context(backend=backend))
            close(found_BLD.float(), expected_BLD, 0.02)
        _, (_, h_BNE) = layer.extend(
            x_BLD, layer.init_state(2, max_length=20, device="cpu", dtype=torch.bfloat16), Context()
        )
        assert h_BNE.dtype == torch.float32
    inputs = [z.float() for z in scan_inputs(2, 20)]
    plain = selective_scan(*inputs, signed=False, ctx=Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = selective_scan(*inputs, signed=False, ctx=Context())
    assert all(torch.equal(one, other) for one, other in zip(plain, cast, strict=True))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("channels", [6, 37])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_convolution_is_torchs(backend: Backend, silu: bool, bias: bool, channels: int, width: int) -> None:
    own = ShortConvolution(channels, width=width, bias=bias, silu=silu).double()
    theirs = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1, bias=bias).double()
    theirs.load_state_dict({name: z.view_as(theirs.get_parameter(name)) for name, z in own.state_dict().items()})
    for length in (1, 2, 3, 17):
        x_BLE = torch.randn(3, length, channels, dtype=torch.float64, requires_grad=True)
        expected_BLE = theirs(x_BLE.mT)[..., :length].mT
        expected_BLE = nn.functional.silu(expected_BLE) if silu else expected_BLE
        found_BLE = own(x_BLE, Context(backend=backend))
        close(found_BLE, expected_BLE)
        found = torch.autograd.grad(weighted((found_BLE,)), (x_BLE, *own.parameters()))
        expected = torch.autograd.grad(weighted((expected_BLE,)), (x_BLE, *theirs.parameters()))
        for one, other in zip(found, expected, strict=True):
            close(one, other.view_as(one))

        state = own.init_state(3, device=torch.device("cpu"), dtype=torch.float64)
        half_BLE, state = own.extend(x_BLE[:, : length // 2], state) if length > 1 else (x_BLE[:, :0], state)
        outputs = list(half_BLE.unbind(1))
        for x_BE in x_BLE[:, length // 2 :].unbind(1):
            y_BE, state = own.step(x_BE, state)
            outputs.append(y_BE)
        close(torch.stack(outputs, 1), expected_BLE)


@pytest.mark.parametrize("silu", [False, True])
def test_the_convolution_reads_a_part_of_a_projection_where_it_lies(silu: bool) -> None:
    own = ShortConvolution(6, silu=silu).double()
    both_BLX = torch.randn(3, 9, 15, dtype=torch.float64, requires_grad=True)
    leaves = (both_BLX, *own.parameters())
    found, expected = (own(both_BLX[..., 4:10], Context(backend=backend)) for backend in ("auto", "reference"))
    close(found, expected)
    for mine, other in zip(*(torch.autograd.grad(weighted((y,)), leaves) for y in (found, expected)), strict=True):
        close(mine, other)


@pytest.mark.parametrize("stacked", ["weights", "inputs", "both"])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("by_hand", ["auto", "fused_scan"])
def test_the_convolution_stacks_under_vmap(by_hand: Backend, silu: bool, stacked: str) -> None:
    own = ShortConvolution(6, silu=silu).double()
    in_dims = (0 if stacked != "weights" else None, 0 if stacked != "inputs" else None, None)
    x = torch.randn((3, 2, 5, 6)[in_dims[0] is None :], dtype=torch.float64, requires_grad=True)
    weight = torch.randn((3, 6, 4)[in_dims[1] is None :], dtype=torch.float64, requires_grad=True)
    bias_E = own.bias.detach().requires_grad_()

    def one(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor, backend: Backend) -> Tensor:
        named = {"weight": weight_EW, "bias": bias_E}
        return functional_call(own, named, (x_BLE, Context(backend=backend)))

    found, expected = (
        torch.vmap(partial(one, backend=backend), in_dims)(x, weight, bias_E) for backend in (by_hand, "reference")
    )
    close(found, expected)
    both = (torch.autograd.grad(weighted((y,)), (x, weight, bias_E)) for y in (found, expected))
    for mine, other in zip(*both, strict=True):
        close(mine, other)


def test_the_convolution_keeps_its_precision_under_autocast() -> None:
    own = ShortConvolution(6)
    x_BLE = torch.randn(2, 5, 6).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (own(x_BLE, Context(backend=backend)) for backend in ("auto", "reference"))
    assert found.dtype == expected.dtype == torch.float32
    close(found, expected, 1e-6)
    (gradient_BLE,) = torch.autograd.grad(found.sum(), x_BLE)
    assert gradient_BLE.dtype == torch.bfloat16


def test_the_convolution_starts_as_torchs() -> None:
    own = ShortConvolution(1000, width=4)
    for parameter in own.parameters():  # torch's bound is one over the root of a filter's inputs
        assert -0.5 <= parameter.min() < -0.49 and 0.49 < parameter.max() <= 0.5


def test_initial_weights_are_the_papers() -> None:
    config = MambaConfig(d_model=128, num_blocks=4)
    layer = config.block(0).layers[0]
    assert layer.dt.in_features == config.rank == 8
    close(layer.A_log.exp(), torch.arange(1.0, 17).expand(256, 16), 1e-5)
    assert torch.equal(layer.D, torch.ones(256))
    log_dt_E = nn.functional.softplus(layer.dt.bias.double()).log10()
    assert -3.001 < log_dt_E.min() < -2.9 and -1.1 < log_dt_E.max() < -0.999
    assert log_dt_E.mean().item() == pytest.approx(-2, abs=0.15)
    assert 0.98 * 8**-0.5 < layer.dt.weight.abs().max() <= 8**-0.5
    assert 0.9 * 1024**-0.5 < layer.out.weight.abs().max() <= 1024**-0.5  # 256 inputs, and four blocks that write
    bias_E = initial_dt_bias(10_000, smallest=0.5, largest=2.0)
    dt_E = nn.functional.softplus(bias_E)
    assert 0.4999 < dt_E.min() < 0.501 and 1.99 < dt_E.max() < 2.001


def test_transitions_are_not_decayed() -> None:
    model = MambaConfig.tiny().build(7)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed = {names[parameter].rsplit("parts.1.")[-1] for parameter, decays, _ in declared(model) if decays}
    expected = {"value_gate.weight", "convolution.weight", "select.weight", "dt.weight", "out.weight", "head.weight"}
    assert decayed == expected


def test_only_signed_eigenvalues_can_flip_a_state() -> None:
    dt, one, zero = torch.full((1, 1, 1), 5.0), torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    for signed, lowest, highest in ((False, 0.0, 0.01), (True, -1.0, -0.98)):
        _, h = selective_scan(zero, dt, -one[0], one, one, one[0, 0], one, signed=signed, ctx=Context())
        assert lowest <= h.item() <= highest
    assert MambaConfig(eigenvalues="signed").block(0).layers[0].signed and not MambaConfig().block(0).layers[0].signed


@pytest.mark.parametrize(
    "settings", [{"expansion": 0}, {"d_state": 0}, {"conv_width": 0}, {"dt_rank": -1}, {"d_model": 0}]
)
def test_wrong_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        MambaConfig(**settings)
