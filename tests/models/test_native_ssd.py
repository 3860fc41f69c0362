"""Chunks of state space duality in C against plain torch, which stands beside steps in the tests of Mamba-2 and -3."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_ssd import native_ssd
from chomsky_ladder.models.mamba2 import Mamba2Config
from chomsky_ladder.models.mamba3 import Mamba3Config
from chomsky_ladder.models.scans.ssd import ssd_chunks
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, 7, 16, 17, 40, 65, full(64), full(130))
FIRST = ("u", "log_a", "B", "C", "h")
Given = dict[str, Any]


def inputs(
    length: int, *, rank: int = 1, groups: int = 2, states: int = 5, values: int = 3, state: bool = True
) -> Given:
    """Of two strings and two heads."""
    rows, made = (2, length, 2), torch.float64
    u = torch.randn(*rows, rank, values, dtype=made)
    B, C = (torch.randn(2, length, groups, rank, states, dtype=made) for _ in "BC")
    log_a, weight, own = (torch.rand(rows, dtype=made) for _ in range(3))
    h = torch.randn(2, 2, states, values, dtype=made) if state else None
    found = {"u": u, "log_a": -log_a, "B": B, "C": C, "h": h, "weight_BLH": weight, "own_BLH": own}
    found["skip_H"] = torch.randn(2, dtype=made)
    return {name: x if x is None else x.requires_grad_() for name, x in found.items()}


def chunks(form: Callable[..., tuple[Tensor, Tensor | None]], given: Given) -> list[Tensor]:
    """All y and, if there is one, the last state."""
    first = [given.get(name) for name in FIRST]
    return [x for x in form(*first, **{name: x for name, x in given.items() if name not in FIRST}) if x is not None]


def both(given: Given) -> list[list[Tensor]]:
    """Outputs and gradients of all that is given, of the loop in C and of torch."""
    answers, leaves = [], [x for x in given.values() if x is not None]
    for form in (native_ssd, ssd_chunks):
        outputs = chunks(form, given)
        answers.append([*outputs, *gradients(sum(x.square().sum() + x.sum() for x in outputs), leaves)])
    return answers


def agree(given: Given, tolerance: float = 1e-11) -> None:
    found, expected = both(given)
    for one, other in zip(found, expected, strict=True):
        close(one, other, tolerance)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("state", [False, True])
def test_in_c_is_in_torch(length: int, state: bool) -> None:
    agree(inputs(length, state=state))


@pytest.mark.parametrize(("rank", "groups"), [*itertools.product([1, 2, 3], [1, 2])])
def test_positions_of_several_rows_and_heads_that_share(rank: int, groups: int) -> None:
    for length in (1, 5, 23, 50):
        agree(inputs(length, rank=rank, groups=groups))


@pytest.mark.parametrize(("states", "values"), [(1, 1), (16, 16), (17, 31), (33, 64)])
def test_widths_that_are_whole_vectors_and_that_are_not(states: int, values: int) -> None:
    agree(inputs(70, states=states, values=values))
    agree(inputs(9, states=states, values=values, groups=1, rank=2))


def test_without_weights_of_their_own_and_not_contiguous() -> None:
    given = inputs(9, groups=1)
    given["own_BLH"] = None
    with torch.no_grad():
        for name in ("u", "B", "C"):
            x = given[name]
            given[name] = torch.cat([x, x], -1)[..., : x.shape[-1]].requires_grad_()  # parts of longer rows
        for name in ("log_a", "weight_BLH"):
            x = given[name]
            given[name] = x.mT.contiguous().mT.requires_grad_()
    agree(given)


def test_only_the_last_state_is_asked_for() -> None:
    given = inputs(70)
    leaves = [x for name, x in given.items() if x is not None and name not in ("C", "own_BLH", "skip_H")]
    found, expected = (chunks(form, given)[1] for form in (native_ssd, ssd_chunks))
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("state", [False, True])
def test_it_stacks(groups: int, state: bool) -> None:
    """Replicas, skips of their own among them, give what each gives alone, gradients too."""
    names = [name for name, x in inputs(1, state=state).items() if x is not None]
    many = [inputs(67, groups=groups, state=state) for _ in range(3)]
    stacked = [torch.stack([each[name] for each in many]).detach().requires_grad_() for name in names]

    def one(*given: Tensor) -> Tensor:
        return sum(x.square().sum() for x in chunks(native_ssd, dict(zip(names, given, strict=True))))

    together = torch.vmap(one)(*stacked)
    alone = torch.stack([one(*(x[i] for x in stacked)) for i in range(3)])
    close(together, alone, 1e-11)
    for left, right in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(left, right, 1e-11)


def test_decays_that_leave_nothing() -> None:
    """Sums of logarithms fall by thousands, in fp32 and in float64: what is behind a position is never seen."""
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-8)):
        given = inputs(100)
        given["log_a"] = 100 * given["log_a"].detach()
        given = {name: x if x is None else x.detach().to(dtype).requires_grad_() for name, x in given.items()}
        agree(given, tolerance)
        assert all(torch.isfinite(x).all() for x in both(given)[0])


@pytest.mark.parametrize("name", ["u", "log_a", "B", "weight_BLH"])
def test_no_number_stays_in_its_string_and_is_not_lost(name: str) -> None:
    given = inputs(20)
    with torch.no_grad():
        given[name][0, 5] = torch.nan
    y_BLHRK = both(given)[0][0]
    assert torch.isfinite(y_BLHRK[1]).all() and torch.isnan(y_BLHRK[0, 6:]).all()


@pytest.mark.parametrize(
    "config",
    [Mamba3Config(d_model=6, head_dim=4, d_state=8, mimo_rank=2), Mamba2Config(d_model=6, head_dim=4, d_state=5)],
    ids=lambda config: config.name,
)
def test_the_layer_takes_it(config: Mamba2Config | Mamba3Config) -> None:
    layer = lively(config.block(0).layers[0])
    x_BLD, ctx = torch.randn(2, 130, 6, dtype=torch.float64), Context()
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-11)
    assert "native_ssd" in ctx.backends
