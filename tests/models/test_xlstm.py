"""xLSTM's blocks: where each kind stands, its layers by their docstring, initial weights, refused settings."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.kernels import native as _native
from chomsky_ladder.models.kernels.kernel import KERNELS
from chomsky_ladder.models.operations.mlstm import MIDDLING
from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks, mlstm_start
from chomsky_ladder.models.operations.mlstm.rows import layer_by_rows
from chomsky_ladder.models.operations.slstm.reference import slstm_scan, slstm_start
from chomsky_ladder.models.xlstm import MLSTM, SLSTM, XLSTMConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
FAST = "fused" if _native.missing() else "native"
BY_HAND = ["fused_mlstm"] if _native.missing() else ["fused_mlstm", "native_mlstm"]


def kinds(ratio: str, num_blocks: int) -> str:
    """One letter a block of the built model."""
    model = XLSTMConfig(d_model=16, num_blocks=num_blocks, ratio=ratio).build(VOCAB)
    return "".join({MLSTM: "m", SLSTM: "s"}[type(block.layers[0])] for block in model.blocks)


@pytest.mark.parametrize(
    ("ratio", "num_blocks", "expected"),
    [
        ("1:1", 1, "m"),
        ("1:1", 2, "ms"),
        ("1:1", 5, "msmsm"),
        ("1:0", 3, "mmm"),
        ("0:1", 3, "sss"),
        ("7:1", 16, "mmmmmmmsmmmmmmms"),
        ("1:2", 6, "mssmss"),
        ("1:7", 2, "ms"),
    ],
)
def test_where_the_slstm_stands(ratio: str, num_blocks: int, expected: str) -> None:
    assert kinds(ratio, num_blocks) == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ratio": "7:1"}, "xlstm: with ratio 7:1 the first sLSTM is block 8; num_blocks=2"),
        ({"ratio": "0:0"}, "xlstm: ratio is a:b"),
        ({"ratio": "00:00"}, "xlstm: ratio is a:b"),
        ({"ratio": "1"}, "xlstm: ratio is a:b"),
        ({"ratio": "-1:1"}, "xlstm: ratio is a:b"),
        ({"num_heads": 3}, "does not split into 3 heads"),
        ({"num_heads": 3, "d_model": 24}, "the 64 channels of mLSTM do not split into 3 heads; those of sLSTM do"),
        ({"num_heads": 5, "d_model": 24, "ratio": "0:1"}, "d_model=24 does not split into 5 heads"),
        ({"num_heads": 0}, "does not split into 0 heads"),
        ({"num_heads": 128}, "heads of 2 channels or more"),
    ],
)
def test_what_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        XLSTMConfig(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.full
def test_a_pure_slstm_has_any_heads_that_divide_its_width() -> None:
    config = XLSTMConfig(d_model=24, num_heads=3, ratio="0:1")
    assert [block.layers[0].weight_HGK.shape for block in config.blocks()] == [(3, 32, 8)] * 2
    assert [outcome for outcome in check(config) if outcome.verdict == "FAIL"] == []


def layer_norm(x: Tensor, heads: int, weight: Tensor) -> Tensor:
    x = x.unflatten(-1, (heads, -1))
    centred = x - x.mean(-1, keepdim=True)
    return (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2) * weight


def convolved(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor) -> Tensor:
    padded = nn.functional.pad(x_BLE, (0, 0, 3, 0))
    return bias_E + sum(weight_EW[:, tap] * padded[:, tap : tap + x_BLE.shape[1]] for tap in range(4))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def shaken(layer: nn.Module) -> nn.Module:
    """No weight special any more: neither the norms' 1 nor the gates' 0."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return layer.double()


@pytest.mark.parametrize("length", [1, 17, 64, 65, 301])
def test_the_mlstm_layer_follows_its_docstring(length: int) -> None:
    config = XLSTMConfig(d_model=16, num_heads=2, ratio="1:0")
    layer, x_BLD = shaken(MLSTM(config)), torch.randn(3, length, 16, dtype=torch.float64)
    u, z = (x_BLD @ layer.up.weight.T).chunk(2, -1)
    c = silu(convolved(u, layer.conv.weight, layer.conv.bias))
    qkv = [
        torch.cat([part @ block.T for part, block in zip(x.split(4, -1), module.weight, strict=True)], -1)
        for x, module in ((c, layer.query), (c, layer.key), (u, layer.value))
    ]
    gates = (torch.cat(qkv, -1) @ layer.gates.weight.T + layer.gates.bias).transpose(1, 2)
    q, k, v = (x.unflatten(-1, (2, -1)).transpose(1, 2) for x in qkv)
    state = mlstm_start(3, 2, 32, 32, device=x_BLD.device, dtype=x_BLD.dtype)
    h = mlstm_chunks(q, k / 32**0.5, v, gates[:, :2], gates[:, 2:], state)[0].transpose(1, 2).flatten(2)
    expected = ((layer_norm(h, 2, layer.norm.weight) + layer.skip * c) * silu(z)) @ layer.down.weight.T
    close(layer(x_BLD, Context()), expected)


def gradients(layer: nn.Module, x_BLD: Tensor, direction_BLD: Tensor, backend: Backend) -> tuple[Tensor, ...]:
    """The output, and the gradients of x and of every parameter."""
    y_BLD = layer(x_BLD, Context(backend=backend))
    found = torch.autograd.grad((y_BLD * direction_BLD).sum(), [x_BLD, *layer.parameters()])
    return y_BLD, *found


@pytest.mark.parametrize("backend", BY_HAND)
@pytest.mark.parametrize("length", [1, 2, 39, 64])
@pytest.mark.parametrize("heads", [1, 4, 8])
@pytest.mark.parametrize("shift", [0.0, -300.0, 300.0])
def test_rows_by_hand_equal_the_plain_form(heads: int, length: int, shift: float, backend: Backend) -> None:
    """Pieces have two rows, the last one fewer.

    Gates are as they come, all closed (e^-m at its bound), or wide open.
    """
    for place, kernel in enumerate(KERNELS):
        if kernel.computes == "mlstm_rows":
            form = replace(kernel.call.keywords["form"], cached=2 * 64 * length)
            KERNELS[place] = replace(kernel, call=partial(layer_by_rows, form=form))
    layer = shaken(MLSTM(XLSTMConfig(d_model=32, num_heads=heads, ratio="1:0")))
    with torch.no_grad():
        layer.gates.bias += shift
    x_BLD, direction_BLD = torch.randn(2, 5, length, 32, dtype=torch.float64)
    x_BLD.requires_grad_()
    expected = gradients(layer, x_BLD, direction_BLD, "reference")
    assert all(part.abs().max() > 0 for part in expected[:2]), "nothing to compare"
    for one, other in zip(gradients(layer, x_BLD, direction_BLD, backend), expected, strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("backend", BY_HAND)
def test_rows_by_hand_under_autocast_multiply_in_its_precision_alone(backend: Backend) -> None:
    """Nearer to the exact ones than the plain form, whose maps and norm round too; and not as near as fp32."""
    layer = shaken(MLSTM(XLSTMConfig(d_model=96, num_heads=4, ratio="1:0")))
    x_BLD, direction_BLD = torch.randn(2, 3, 45, 96, dtype=torch.float64)
    expected = gradients(layer, x_BLD.clone().requires_grad_(), direction_BLD, "reference")
    layer.float()
    given = x_BLD.float().requires_grad_(), direction_BLD.float()
    whole = gradients(layer, *given, backend)
    with torch.autocast("cpu", torch.bfloat16):
        theirs, ours = (gradients(layer, *given, each) for each in ("reference", backend))
    for exact, single, plain, found in zip(expected, whole, theirs, ours, strict=True):
        assert found.dtype == torch.float32, "sums over pieces, and the stream, are not rounded"
        assert 10 * (single - exact).abs().mean() < (found - exact).abs().mean() < (plain - exact).abs().mean()


@pytest.mark.parametrize(("width", "heads", "served"), [(32, 4, True), (96, 32, False)])
def test_rows_by_hand_need_heads_of_whole_blocks(width: int, heads: int, served: bool) -> None:
    """Heads of 6 channels share blocks of 4."""
    layer, rows = MLSTM(XLSTMConfig(d_model=width, num_heads=heads, ratio="1:0")), set(BY_HAND)
    x_BLD, ctx = torch.randn(2, 5, width), Context()
    layer(x_BLD, ctx)
    assert bool(ctx.backends & rows) == served
    others = [Context(backend="reference"), Context()]
    layer(x_BLD, others[0])
    layer(x_BLD.repeat(1, MIDDLING // 5 + 1, 1), others[1])
    assert not any(ctx.backends & rows for ctx in others), "the reference and a long input go through the plain form"


def test_heads_that_share_blocks_follow_their_reference() -> None:
    layer = shaken(MLSTM(XLSTMConfig(d_model=96, num_heads=32, ratio="1:0")))
    x_BLD = torch.randn(2, 5, 96, dtype=torch.float64)
    close(layer(x_BLD, Context()), layer(x_BLD, Context(backend="reference")))


@pytest.mark.parametrize("conv", ["none", "causal4"])
def test_the_slstm_layer_follows_its_docstring(conv: str) -> None:
    config = XLSTMConfig(d_model=16, num_heads=2, ratio="0:1", conv=conv)
    layer, x_BLD = shaken(SLSTM(config, 1)), torch.randn(3, 17, 16, dtype=torch.float64)
    c = silu(convolved(x_BLD, layer.conv.weight, layer.conv.bias)) if conv == "causal4" else x_BLD
    matrices = layer.weight_HGK.unflatten(1, (4, -1))
    gates = [
        torch.einsum("blhk,hgk->blhg", read.unflatten(-1, (2, -1)), matrices[:, gate])
        for gate, read in enumerate((c, c, x_BLD, x_BLD))
    ]
    ready = (torch.eye(32, dtype=torch.float64).expand(2, -1, -1), layer.recurrent_HGK, layer.bias.view(2, -1))
    state = slstm_start(3, 2, 8, device=x_BLD.device, dtype=x_BLD.dtype)
    h, _ = slstm_scan((torch.cat(gates, -1),), state, ready)
    close(layer(x_BLD, Context()), layer_norm(h.flatten(2), 2, layer.norm.weight))


@pytest.mark.parametrize("ratio", ["1:0", "0:1", "1:1"])
def test_states_stay_where_they_are_declared_under_bf16(ratio: str) -> None:
    """Autocast may not reach into the recurrences, whose states add up over the whole input."""
    model = XLSTMConfig(d_model=16, num_blocks=2, ratio=ratio).build(VOCAB)
    tokens_BL = torch.randint(VOCAB, (3, 70))
    exact = model(tokens_BL, Context())
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(tokens_BL, Context())
        state = model.init_state(3, max_length=70, device=torch.device("cpu"), dtype=torch.float32)
        _, state = model.extend(tokens_BL, state, Context())
        stepped, after = model.step(tokens_BL[:, 0], state, Context())
    assert rough.dtype == stepped.dtype == torch.float32
    assert all(part.dtype == torch.float32 for block in after for part in block[0][1:])
    torch.testing.assert_close(rough, exact, rtol=0.1, atol=0.1)
    rough.sum().backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters())


@pytest.mark.parametrize("ratio", ["1:0", "0:1"])
def test_memory_grows_no_faster_than_the_length(ratio: str) -> None:
    model = XLSTMConfig(d_model=16, num_blocks=2, ratio=ratio).build(VOCAB)

    def kept(length: int) -> int:
        """Bytes autograd holds for the backward pass."""
        storages = {}

        def pack(x: Tensor) -> Tensor:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            logits = model(torch.ones(1, length, dtype=torch.int64), Context())
        del logits
        return sum(storages.values())

    assert kept(1024) < 4.4 * kept(256)


def test_initial_weights() -> None:
    config = XLSTMConfig(d_model=64, num_heads=4, num_blocks=3, ratio="1:2")
    (mlstm,), (slstm, feed_forward), (deeper, _) = (list(block.layers) for block in config.blocks())
    small, into_stream = (2 / (5 * 64)) ** 0.5, 2 / 3 / 8
    for weight, std in (
        (mlstm.up.weight, small),
        (mlstm.value.weight, small),
        (slstm.weight_HGK, small),
        (feed_forward.up.weight, small),
        (feed_forward.out.weight, into_stream),
        (mlstm.down.weight, into_stream),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.1)
    assert not mlstm.gates.weight.any()
    close(mlstm.gates.bias[4:], torch.tensor([3.0, 4.0, 5.0, 6.0]))
    assert 0.9 / 8 < slstm.recurrent_HGK.abs().max() <= 1 / 8
    zeros = XLSTMConfig(d_model=64, ratio="0:1", recurrent_init="zeros").block(0).layers[0]
    assert not zeros.recurrent_HGK.any() and zeros.recurrent_HGK.requires_grad
    for layer, power in ((slstm, 0.3 + 1.3 / 2), (deeper, 1.6)):
        expected = torch.zeros(4, 4, 16)
        expected[:, 1] = 5 - 12 * torch.linspace(0, 1, 16) ** power
        close(layer.bias.view(4, 4, 16), expected, 1e-5)
    widths = (config.mlstm_width, config.slstm_width, XLSTMConfig(d_model=96).slstm_width)
    assert widths == (128, 128, 128), "4/3 of 64 and of 96, rounded up to a multiple of 64"


@pytest.mark.parametrize(
    ("ratio", "backend", "expected"),
    [
        ("0:1", "auto", {f"{FAST}_slstm"}),
        ("0:1", "fused_slstm", {"fused_slstm"}),
        ("0:1", "reference", set()),
        ("1:0", "auto", {f"{FAST}_mlstm"}),
        ("1:0", "fused_mlstm", {"fused_mlstm"}),
        ("1:0", "reference", set()),
    ],
)
def test_the_fast_path_is_named(ratio: str, backend: Backend, expected: set[str]) -> None:
    ctx = Context(backend=backend)
    XLSTMConfig(d_model=16, ratio=ratio).build(VOCAB)(torch.zeros(1, 3, dtype=torch.int64), ctx)
    assert ctx.backends == expected
