"""Models ask for what our Triton kernels stand in for as its definition is called: with the definition in their place
the gradient stays what it is. What kernels make of it is compared in files of their own.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import pytest

from chomsky_ladder.harness.cli.selftest import CPU, _gradient, _runs
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.kernel import KERNELS

LAYERS = ("triton_silu_conv",)  # whose definition is no function
OURS = [kernel for kernel in KERNELS if kernel.name.startswith("triton_") and kernel.name not in LAYERS]


def definition(reference: str) -> Callable[..., Any]:
    module, _, name = reference.rpartition(".")
    found = getattr(import_module(module), name)
    asks_on = "ctx" in signature(found).parameters  # for a kernel of its own inside
    return partial(found, ctx=Context(backend="reference")) if asks_on else found


@pytest.mark.parametrize(("kernel", "model"), [(kernel.name, kernel.serves[0]) for kernel in OURS])
def test_a_model_calls_a_kernel_as_its_definition(kernel: str, model: str) -> None:
    stands_in = named(kernel)
    call = definition(stands_in.reference)
    before = list(KERNELS)
    KERNELS.append(
        replace(stands_in, name="defined", call=call, device="any", dtypes=(), missing=lambda: "", rank=1000)
    )
    try:
        found, used = _gradient(_runs(model, 2, "fp64"), CPU, "auto", 1)
    finally:
        KERNELS[:] = before
    wanted, _ = _gradient(_runs(model, 2, "fp64"), CPU, "reference", 1)
    assert "defined" in used
    assert (found - wanted).norm() <= 1e-8 * wanted.norm()
