"""Layers of attention with C are the layers without; what C cannot take goes without."""

from typing import Literal

import pytest
import torch

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.deltaformer import DeltaFormerConfig
from chomsky_ladder.models.fox import FoXConfig
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.layers.positions import Positions
from chomsky_ladder.models.path_attention import PaTHConfig
from chomsky_ladder.models.stick_breaking import StickBreaking
from support.layers import close, gradients, lively

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("kernel", ["native_sticks", "native_deltaformer", "native_path"])
def test_a_layer_of_another_attention(kernel: str) -> None:
    layers = {
        "native_sticks": StickBreaking(24, 3),
        "native_deltaformer": DeltaFormerConfig(d_model=24, num_heads=3, asks="query").mixer(0),
        "native_path": PaTHConfig(d_model=24, num_heads=3, gate="forget").mixer(0),
    }
    layer, x_BLD = lively(layers[kernel]), torch.randn(3, 21, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert kernel in ctx.backends
    close(y_BLD, expected_BLD, 1e-10)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("positions", ["rope", "none"])
def test_a_layer_with_it_is_the_layer_without(positions: Positions, gated: bool) -> None:
    layer = lively(Attention(24, 4, num_kv_heads=2, positions=positions, window=9, gated=gated))
    x_BLD = torch.randn(3, 21, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_attention"}
    close(y_BLD, expected_BLD)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("variant", ["plain", "pro"])
def test_forgetting(variant: Literal["plain", "pro"]) -> None:
    layer = lively(FoXConfig(d_model=24, num_heads=3, variant=variant).mixer(0))
    x_BLD = torch.randn(3, 37, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_attention"}
    close(y_BLD, expected_BLD, 1e-11)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-9)


def test_what_sees_ahead_or_has_a_bias_goes_without() -> None:
    for layer in (Attention(8, 2, sees="all"), Attention(8, 2, positions="alibi")):
        ctx = Context()
        layer(torch.randn(2, 5, 8), ctx)
        assert ctx.backends == set()
    ctx = Context()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Attention(8, 2)(torch.randn(2, 5, 8), ctx)
    assert ctx.backends == set()
