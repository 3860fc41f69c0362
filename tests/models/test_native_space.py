"""The response of a state space in C against the one by doubling, which stands beside dense systems in test_s4.py."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_space import native_impulse_response
from chomsky_ladder.models.scans.state_space import System, impulse_response
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

LENGTHS = (1, 2, 3, 8, 33, 130)
STATES = (1, 5, 16, 35)  # stored; vectors have sixteen lanes


def parts(states: int = 5, *, channels: int = 3, has_rank: bool = True) -> list[Tensor]:
    """d, b, C, q, r [H, M, 2] of systems whose steps keep a state's size."""
    d, b, C, q, r = torch.randn(5, channels, states, 2, dtype=torch.float64)
    made = [d / d.norm(dim=-1, keepdim=True), b, C, 0.2 * q / states**0.5, r / states**0.5]
    return [part.requires_grad_() for part in (made if has_rank else made[:3])]


def answered(given: list[Tensor], length: int, *, native: bool) -> Tensor:
    d_HM2, b_HM2, C_HM2, *of_rank = given
    q_HM2, r_HM2 = of_rank or (None, None)
    act = native_impulse_response if native else impulse_response
    return act(C_HM2, System(d_HM2, q_HM2, r_HM2, b_HM2), length)


@pytest.mark.parametrize("has_rank", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_in_c_is_by_doubling_with_gradients(length: int, has_rank: bool) -> None:
    given = parts(has_rank=has_rank)
    found, expected = (answered(given, length, native=native) for native in (True, False))
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("states", STATES)
def test_states_that_fill_no_vector(states: int) -> None:
    given = parts(states)
    found, expected = (answered(given, 20, native=native) for native in (True, False))
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("has_rank", [True, False])
def test_it_stacks(has_rank: bool) -> None:
    """Replicas give what each gives alone, gradients too; C is one for all of them."""
    many = [parts(has_rank=has_rank) for _ in range(3)]
    stacked = [torch.stack([each[place] for each in many]).detach().requires_grad_() for place in range(len(many[0]))]
    stacked[2] = many[0][2]
    dims = tuple(None if place == 2 else 0 for place in range(len(stacked)))

    def of(*given: Tensor) -> Tensor:
        return answered(list(given), 17, native=True)

    together = torch.func.vmap(of, in_dims=dims)(*stacked)
    alone = torch.stack(
        [of(*(x if dim is None else x[i] for x, dim in zip(stacked, dims, strict=True))) for i in range(3)]
    )
    close(together, alone, 1e-13)
    for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(one, other, 1e-12)


def test_single_precision_is_as_good_as_doubling() -> None:
    given = parts(32)
    exact = answered(given, 400, native=False)
    single = [part.detach().float() for part in given]
    ours, theirs = ((answered(single, 400, native=native) - exact).abs().max() for native in (True, False))
    assert ours < 3 * theirs
