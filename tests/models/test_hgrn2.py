"""HGRN2 against its equations token by token, its ties to HGRN, its extremes and its state."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.hgrn import LowerBounds
from chomsky_ladder.models.hgrn2 import ExpandedRecurrence, HGRN2Config
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def small(*, num_heads: int = 2, layer: int = 1) -> tuple[ExpandedRecurrence, LowerBounds]:
    config = HGRN2Config(d_model=8, num_blocks=3, num_heads=num_heads)
    return lively(ExpandedRecurrence(config, layer)), lively(config.common_module())


def by_hand(layer: ExpandedRecurrence, bounds: LowerBounds, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time."""
    bound, dim = torch.softmax(bounds.share_LD, 0)[1 : layer.layer + 1].sum(0), x_LD.shape[1] // layer.num_heads
    S, outputs = [torch.zeros(dim, dim, dtype=x_LD.dtype) for _ in range(layer.num_heads)], []
    for x in x_LD:
        q, f, i = (p.weight @ x for p in (layer.query, layer.forget, layer.value))
        q, keep = q * torch.sigmoid(q), bound + (1 - bound) * torch.sigmoid(f)
        heads = []
        for head in range(layer.num_heads):
            at = slice(head * dim, (head + 1) * dim)
            S[head] = torch.diag(keep[at]) @ S[head] + torch.outer(1 - keep[at], i[at])
            heads.append(q[at] @ S[head])
        y = torch.cat(heads)
        y = y / (y.square().mean() + 1e-5).sqrt() * layer.norm.weight
        outputs.append(layer.out.weight @ y)
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("length", "num_heads", "layer"), [(1, 2, 1), (2, 1, 2), (15, 8, 0), (17, 2, 2), (33, 4, 1), (65, 1, 0)]
)
def test_it_is_its_equations_in_value_and_gradient(length: int, num_heads: int, layer: int) -> None:
    recurrence, bounds = small(num_heads=num_heads, layer=layer)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *recurrence.parameters(), *bounds.parameters()]
    found = recurrence(x_BLD, Context(common=bounds))
    expected = torch.stack([by_hand(recurrence, bounds, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    recurrence, bounds = small()
    x_BLD, ctx = torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True), Context(common=bounds)
    state, parts = recurrence.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = recurrence.extend(part, state, ctx)
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), recurrence(x_BLD, ctx), [x_BLD, *recurrence.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_saturated_gates_and_large_inputs_stay_finite(scale: float) -> None:
    recurrence, bounds = (part.float() for part in small(layer=0))
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = recurrence(x_BLD, Context(common=bounds))
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *recurrence.parameters()])))


def test_a_head_of_one_channel_has_no_more_state_than_hgrn() -> None:
    for num_heads, numbers in ((1, 64), (2, 32), (8, 8)):
        state = small(num_heads=num_heads)[0].init_state(
            1, max_length=9, device=torch.device("cpu"), dtype=torch.bfloat16
        )
        assert state.numel() == numbers and state.dtype == torch.float32


def test_it_runs_under_autocast() -> None:
    recurrence, bounds = (part.float() for part in small())
    x_BLD, ctx = torch.randn(2, 40, 8), Context(common=bounds)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD = recurrence(x_BLD, ctx)
    close(y_BLD.float(), recurrence(x_BLD, ctx), 0.2)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 8, "num_heads": 3}, "^hgrn2: d_model=8 does not split into 3 heads$"),
        ({"num_heads": 0}, "^hgrn2: d_model=128 does not split into 0 heads$"),
        ({"d_inner": -1}, "^hgrn2: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            HGRN2Config(**setting)
