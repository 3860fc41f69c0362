"""Pairs of reals, as they are reckoned with on a GPU, against torch's complex numbers; and a model of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.h3 import H3Config
from chomsky_ladder.models.s4 import S4Config
from chomsky_ladder.models.scans import pairs
from support.layers import close, gradients

torch.set_num_threads(1)


@pytest.fixture(params=["apart", "joined"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "apart":
        monkeypatch.setattr(pairs, "_is_joined", lambda _: False)


def drawn(*, size: float = 1.0) -> Tensor:
    return (size * torch.randn(4, 3, 2, dtype=torch.float64)).requires_grad_()


def as_complex(a_X2: Tensor) -> Tensor:
    return torch.view_as_complex(a_X2)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("size", [1e-9, 1.0, 20.0])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pairs.plus_1, lambda a: a + 1),
        (pairs.conjugate, torch.conj),
        (pairs.inverse, torch.reciprocal),
        (pairs.exponential, torch.exp),
        (pairs.exponential_less_1, torch.expm1),
    ],
)
def test_of_one_number(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], size: float) -> None:
    a_X2 = drawn(size=size)
    found, expected = ours(a_X2), torch.view_as_real(theirs(as_complex(a_X2)).resolve_conj())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for one, other in zip(gradients(found, [a_X2]), gradients(expected, [a_X2]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.usefixtures("both_ways")
def test_of_two_numbers() -> None:
    a_X2, b_X2 = drawn(), drawn()
    for found, expected in (
        (pairs.times(a_X2, b_X2), torch.view_as_real(as_complex(a_X2) * as_complex(b_X2))),
        (pairs.real_of(a_X2, b_X2), (as_complex(a_X2) * as_complex(b_X2)).real),
    ):
        close(found, expected, 1e-13)
        for one, other in zip(gradients(found, [a_X2, b_X2]), gradients(expected, [a_X2, b_X2]), strict=True):
            close(one, other, 1e-12)


@pytest.mark.parametrize("config", [S4Config(d_model=8), S4Config(d_model=8, form="diagonal"), H3Config(d_model=8)])
def test_a_models_systems_are_the_same_apart_and_joined(
    config: S4Config | H3Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer: Any = config.block(0).double().layers[0]
    system = layer.diagonal if isinstance(config, H3Config) else layer
    learnt, found = [system.C_HM2, system.B_HM2, system.log_decay_HM, system.frequency_HM, system.log_dt_H], []
    for joined in (False, True):
        monkeypatch.setattr(pairs, "_is_joined", lambda _, joined=joined: joined)
        kernel_HL = system.kernel(21, Context(backend="reference"))
        found.append([kernel_HL, *gradients(kernel_HL, learnt)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
