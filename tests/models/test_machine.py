"""All memory machines: sizes, refusals, precision and inputs longer than their memories."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.sizing import active_parameters, sized
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.dnc import DNCConfig
from chomsky_ladder.models.ntm import NTMConfig
from chomsky_ladder.models.rns_rnn import RNSRNNConfig
from chomsky_ladder.models.slice import SLiCEConfig
from chomsky_ladder.models.stack_rnn import StackRNNConfig
from chomsky_ladder.models.tape_rnn import TapeRNNConfig

torch.set_num_threads(1)

MACHINES = (StackRNNConfig, TapeRNNConfig, NTMConfig, DNCConfig, RNSRNNConfig)


@pytest.mark.parametrize("cls", [*MACHINES, SLiCEConfig], ids=lambda cls: cls.name)
def test_a_number_of_parameters_finds_a_width(cls: type[ModelConfig]) -> None:
    found = active_parameters(sized(cls(), vocab=12, target=60_000), 12)
    assert abs(found / 60_000 - 1) < (0.1 if cls is SLiCEConfig else 0.02)  # its width is a multiple of the block


@pytest.mark.parametrize("cls", MACHINES, ids=lambda cls: cls.name)
def test_an_input_longer_than_the_memory_stays_finite_and_keeps_its_digits(cls: type[ModelConfig]) -> None:
    """100 tokens in a memory of 7 or 9 cells, in single precision beside double, and the state after them."""
    model, tokens_BL = cls.tiny().build(11), torch.randint(1, 11, (2, 100))
    y_BLV = model(tokens_BL, Context())
    expected_BLV = model.double()(tokens_BL, Context())
    assert (y_BLV - expected_BLV).abs().max() < 1e-3
    gradients = torch.autograd.grad(expected_BLV[:, -1].sum(), [*model.parameters()], allow_unused=True)
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("cls", MACHINES, ids=lambda cls: cls.name)
def test_under_autocast_the_memory_is_not_rounded(cls: type[ModelConfig]) -> None:
    machine, x_BLD = cls.tiny().block(0), torch.randn(2, 33, 16)
    expected_BLD = machine(x_BLD, Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_BLD = machine(x_BLD, Context())
        _, state = machine.extend(x_BLD, machine.start(x_BLD, Context()), Context())
    assert all(part.dtype == torch.float32 for part in state[1:] if isinstance(part, Tensor))
    assert (y_BLD - expected_BLD).abs().max() < 0.05


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (StackRNNConfig, {"stack_depth": 0}, "stack_rnn: stack_depth must be at least 1, not 0"),
        (StackRNNConfig, {"num_stacks": 0}, "stack_rnn: num_stacks must be at least 1, not 0"),
        (TapeRNNConfig, {"tape_cells": 0}, "tape_rnn: tape_cells must be at least 1, not 0"),
        (NTMConfig, {"memory_rows": 0}, "ntm: memory_rows must be at least 1, not 0"),
        (NTMConfig, {"memory_rows": 4, "shift_range": 3}, r"ntm: shift_range=3 does not lie in 0\.\.2"),
        (DNCConfig, {"num_reads": 0}, "dnc: num_reads must be at least 1, not 0"),
    ],
)
def test_a_memory_that_holds_nothing_is_refused(cls: type[ModelConfig], settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**settings)
