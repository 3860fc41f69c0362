"""Every operation in Triton is held to its plain form: interpreted on a CPU, and on a GPU where there is one.

tests/support/triton_tables.py has a table for each. Every time one small case of each is interpreted, in one process.
"""

import pytest
import torch

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from support.cases import some
from support.triton_kernels import MISSING, print_failures

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

from support.triton_checks import Case, InTriton, checks_of, inputs_of, large_of
from support.triton_tables import KERNELS_IN_TRITON

torch.set_num_threads(1)

BY_KERNEL = [checks_of(it) for it in KERNELS_IN_TRITON]
CHECKS = {name: check for checks in BY_KERNEL for name, check in checks.items()}
DAILY = [[*checks][1] for checks in BY_KERNEL]
ON_A_GPU = CHECKS | {name: check for it in KERNELS_IN_TRITON for name, check in large_of(it).items()}

each = pytest.mark.parametrize("it", KERNELS_IN_TRITON, ids=lambda it: it.kernel)


@pytest.mark.each_time(len(DAILY))
@pytest.mark.parametrize("name", some(CHECKS, always=DAILY))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@each
def test_what_it_takes(it: InTriton) -> None:
    takes = named(it.kernel).takes
    assert [takes(torch.zeros(shape), Context()) for shape, _ in it.limits] == [taken for _, taken in it.limits]


@each
def test_other_precisions_are_refused(it: InTriton) -> None:
    """Double, and of 16 bits what carries from token to token."""
    given, call = [x.detach() for x in inputs_of(it, Case(it.sizes[0]), "cpu")[0]], it.table.calls[0]
    with pytest.raises(AssertionError, match="fp32"):
        call(named(it.kernel).call, *(x.double() for x in given))
    if not any(names.split() == [*it.table.axes] for names in it.bf16):
        with pytest.raises(AssertionError, match="fp32"):
            call(named(it.kernel).call, *(x.bfloat16() for x in given))


if __name__ == "__main__":
    print_failures(CHECKS)
