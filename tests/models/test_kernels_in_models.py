"""Models ask for what our Triton kernels stand in for as its definition is called: with the definition in their place
the gradient stays what it is. What kernels make of it is compared in files of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.cli.selftest import CPU, _gradient, _runs
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.kernel import KERNELS
from chomsky_ladder.models.stack_rnn import StackMachine, StackRNNConfig
from chomsky_ladder.models.tape_rnn import TapeMachine, TapeRNNConfig
from support.layers import close, gradients, lively

LIKE: dict[str, Any] = {"device": CPU, "dtype": torch.float64}
LAYERS = ("triton_silu_conv",)  # whose definition is no function
OURS = [kernel for kernel in KERNELS if kernel.name.startswith("triton_") and kernel.name not in LAYERS]


def definition(reference: str) -> Callable[..., Any]:
    module, _, name = reference.rpartition(".")
    found = getattr(import_module(module), name)
    asks_on = "ctx" in signature(found).parameters  # for a kernel of its own inside
    return partial(found, ctx=Context(backend="reference")) if asks_on else found


@contextmanager
def defined(kernel: str) -> Iterator[None]:
    """The definition stands in the place of a kernel, and can run here."""
    stands_in = named(kernel)
    call = definition(stands_in.reference)
    before = list(KERNELS)
    KERNELS.append(
        replace(stands_in, name="defined", call=call, device="any", dtypes=(), missing=lambda: "", rank=1000)
    )
    try:
        yield
    finally:
        KERNELS[:] = before


@pytest.mark.parametrize(("kernel", "model"), [(kernel.name, kernel.serves[0]) for kernel in OURS])
def test_a_model_calls_a_kernel_as_its_definition(kernel: str, model: str) -> None:
    with defined(kernel):
        found, used = _gradient(_runs(model, 2, "fp64"), CPU, "auto", 1)
    wanted, _ = _gradient(_runs(model, 2, "fp64"), CPU, "reference", 1)
    assert "defined" in used
    assert (found - wanted).norm() <= 1e-8 * wanted.norm()


@pytest.mark.parametrize("core", ["relu", "lstm"])
@pytest.mark.parametrize("depth", [1, 4, 20])
@pytest.mark.parametrize("length", [1, 2, 3, 10, 11])
def test_a_stack_in_one_launch_has_all_cells_that_are_read(length: int, depth: int, core: Any) -> None:
    """It equals the form in spans, gradients too; with one cell fewer in ten it does not."""
    machine = lively(StackMachine(StackRNNConfig(d_model=4, core=core, num_stacks=2, stack_depth=depth)))
    x_BLD = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    whole_BLD = machine(x_BLD, Context(backend="reference"))
    ctx = Context()
    with defined("triton_stack_machine"):
        found_BLD = machine(x_BLD, ctx)
    assert "defined" in ctx.backends
    close(found_BLD, whole_BLD, 1e-12)
    given = [x_BLD, *machine.parameters()]
    for one, other in zip(gradients(found_BLD, given), gradients(whole_BLD, given), strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("core", ["tanh", "lstm"])
def test_a_tape_goes_on_from_where_a_launch_ended(core: Any) -> None:
    """The state behind some tokens, with how far the next far move goes: told by a number, then by each row."""
    machine = lively(TapeMachine(TapeRNNConfig(d_model=4, core=core, num_tapes=2, tape_cells=5)))
    x_BLD = torch.randn(2, 9, 4, dtype=torch.float64)
    whole_BLD = machine(x_BLD, Context(backend="reference"))
    with defined("triton_tape_machine"):
        for state in (machine.start(x_BLD, Context()), machine.init_state(2, max_length=9, **LIKE)):
            outputs = []
            for part_BLD in x_BLD.split([4, 1, 4], 1):
                y_BLD, state = machine.extend(part_BLD, state, Context())
                outputs.append(y_BLD)
            close(torch.cat(outputs, 1), whole_BLD, 1e-12)
