"""Mamba's scan in C on parts of projections, on steps of any size, and through its layer."""

import pytest
import torch

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.mamba import MambaConfig
from support.layers import close, gradients, lively
from support.operation_tables import TABLES, Case, drawn, forms

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
(TABLE,) = (table for table in TABLES if table.kernel == "native_scan")


def test_parts_of_a_projection() -> None:
    """B and C are parts of one, z is half of another, or every other number of it."""
    v, dt, bias, A, _, _, D, _, h = drawn(TABLE, Case({"B": 3, "L": 11, "N": 4}))
    parts, both = torch.randn(3, 11, 10).double().requires_grad_(), torch.randn(3, 11, 38).double().requires_grad_()
    _, B, C = parts.split([2, 4, 4], -1)
    for B_BLN, z_BLE in ((B, both.chunk(2, -1)[1]), (B.transpose(0, 1).contiguous().transpose(0, 1), both[..., ::2])):
        found, expected = (form(v, dt, bias, A, B_BLN, C, D, z_BLE, h) for form in forms(TABLE))
        close(found, expected)
        for one, other in zip(*(gradients(y, [v, h, parts, both]) for y in (found, expected)), strict=True):
            close(one, other, 1e-11)


def test_steps_of_any_size_and_of_none() -> None:
    """In fp32: steps that forget everything and steps that keep it. What is no number is seen from there on."""
    for dt in (-1e4, -100.0, 100.0, 1e4):
        given = [x.detach().float() for x in drawn(TABLE, Case({"L": 5}))]
        given[1] = torch.full_like(given[1], dt)
        found, expected = (form(*given) for form in forms(TABLE))
        torch.testing.assert_close(found, expected, rtol=3e-5, atol=1e-5)
    given = [x.detach().float() for x in drawn(TABLE)]
    given[1][1, 4, 2] = torch.nan
    y_BLE, _ = named("native_scan").call(*given, False)
    assert bool(y_BLE[1, 4:, 2].isnan().all()) and int(y_BLE.isnan().sum()) == 5


def test_the_layer_takes_it_from_a_state_and_under_autocast() -> None:
    layer = lively(MambaConfig(d_model=6, d_state=4).block(0).layers[0])
    x_BLD, ctx = torch.randn(2, 70, 6, dtype=torch.float64), Context()
    state = layer.init_state(2, max_length=70, device=x_BLD.device, dtype=x_BLD.dtype)
    first_BLD, state = layer.extend(x_BLD[:, :30], state, ctx)
    rest_BLD, _ = layer.extend(x_BLD[:, 30:], state, ctx)
    close(torch.cat([first_BLD, rest_BLD], 1), layer(x_BLD, Context(backend="reference")), 1e-11)
    assert "native_scan" in ctx.backends
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = Context()
        layer.float()(x_BLD.float(), half)
    assert "native_scan" in half.backends
