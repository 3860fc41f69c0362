"""Triton kernels as compiled for an H100, run on a CPU instruction by instruction, equal their plain forms.

What the compiler makes of a kernel is another program than what its interpreter runs: it has chosen layouts, products
of several warps, places in shared memory, and which sums become products.
"""

from pathlib import Path

import pytest
import torch

from instruments.compiled_on_a_cpu import counted
from support import fused_recurrences
from support.bits import bf16_of, fp32_of
from support.fused_recurrences import Case, drawn, plain_products, scan
from support.triton_kernels import MISSING, interpreted, print_failures

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

from support import triton_checks, triton_tables

pytestmark = pytest.mark.full
MODELS = Path(__file__).parents[1] / "models"

OF_FILES = {
    "operations/test_special_in_triton": ["mlstm: bf16"],
    "test_triton_machines": ["turing-3-6-1-5-3-"],
    "test_triton_moving_machines": ["stack-relu-4-6-1-5-3-4-0-True-"],
}
OF_KERNELS = {  # of those in tests/support/triton_tables.py: which of its sizes, and what else
    "triton_block_steps": (1, {"replicas": "anywhere"}),
    "triton_silu_conv": (1, {"replicas": "anywhere"}),
    "triton_decayed": (1, {"bf16": "q k v"}),
    "triton_delta": (0, {}),
    "triton_diagonal": (1, {"bf16": "u"}),
    "triton_fast_weights": (1, {"replicas": "anywhere"}),
    "triton_linked": (1, {}),
    "triton_mesa": (0, {}),
    "triton_momentum": (1, {"lies": "in a product"}),
    "triton_one_hot": (1, {"call": 1, "replicas": "in front"}),
    "triton_path": (1, {"replicas": "in front"}),
    "triton_slots": (1, {"replicas": "anywhere"}),
    "triton_turing": (1, {}),
    "triton_wkv": (1, {"replicas": "anywhere"}),
}


def recurrence(name: str, device: str) -> None:
    check, *arguments = fused_recurrences.CHECKS[name]
    with plain_products():
        assert check(*arguments, device) == ""


def banks_of_an_slstm(device: str) -> None:
    """Threads that ask one bank of shared memory wait for each other: 12,064 cycles a token, were U not turned."""
    cycles = []
    for length in (1, 2):
        case = Case(cell="slstm", batch=16, width=32, length=length)
        with counted() as of_kernels, torch.no_grad():
            scan(case, *drawn(case, 0), fused=True)
        cycles.append(of_kernels["_forward"])
    assert 0 < cycles[1] - cycles[0] < 2000, cycles


RECURRENCES = ["lstm length=2", "slstm length=2 heads=2", "gru length=2", "tanh length=2"]
CHECKS = {name: (recurrence, name) for name in RECURRENCES} | {"banks of an sLSTM": (banks_of_an_slstm,)}


@pytest.mark.parametrize("file", OF_FILES)
def test_kernels_of_a_file(file: str) -> None:
    assert interpreted(str(MODELS / f"{file}.py"), OF_FILES[file], compiled=True) == {}


@pytest.mark.parametrize("kernel", OF_KERNELS)
def test_kernels_of_a_table(kernel: str) -> None:
    place, others = OF_KERNELS[kernel]
    name = f"{kernel} {triton_checks.Case(triton_tables.IN_TRITON[kernel].sizes[place], **others)}"
    assert interpreted(str(MODELS / "operations/test_in_triton.py"), [name], compiled=True) == {}


@pytest.mark.parametrize("name", CHECKS)
def test_recurrences(name: str) -> None:
    assert interpreted(__file__, [name], compiled=True) == {}


def test_bf16_is_rounded_as_torch_rounds() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 2.0 ** torch.arange(-16, 16).repeat(128)
    x = torch.cat([x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1.00390625, 1.01171875])])
    assert torch.equal(torch.from_numpy(fp32_of(bf16_of(x.numpy()))), x.bfloat16().float())


if __name__ == "__main__":
    print_failures(CHECKS)
