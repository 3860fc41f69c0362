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

pytestmark = pytest.mark.full
MODELS = Path(__file__).parents[1] / "models"

OF_FILES = {
    "block_steps": "2-5-4-2-fp32-(2,None,1)-alone-40",
    "convolution": "2-6-4-2-(2,None,1)-fp32-alone",
    "decayed": "2-17-2-16-20-()-1.0-False-True",
    "delta": "length=1",
    "diagonal": "(2,2)-9-5-mixed-(0,0,0)-alone",
    "fast_weights": "length=7 axes=(3, 0, 1, None, 1, 2, None, 4)",
    "linked": "1-7-5-()",
    "machines": "turing-3-6-1-5-3-",
    "mesa": "length=1",
    "mlstm": "bf16",
    "momentum": "length=5 keys=32 values=20 lies=in a product",
    "moving_machines": "stack-relu-4-6-1-5-3-4-0-True-",
    "one_hot": "scatter-2-5-3-2-(0,0,0,0,0)-1",
    "path": "length=35 width=32 gated=True axes=(0, 0, 0, 0, 0, 0)",
    "slots": "5-4-5-None-(2,0,1,4,None)-alone-()",
    "turing": "1-7-5-3-()",
    "wkv": "1-5-4-(None,3,None,1,2,None)-fp32-1.0-False",
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
    assert interpreted(str(MODELS / f"test_triton_{file}.py"), [OF_FILES[file]], compiled=True) == {}


@pytest.mark.parametrize("name", CHECKS)
def test_recurrences(name: str) -> None:
    assert interpreted(__file__, [name], compiled=True) == {}


def test_bf16_is_rounded_as_torch_rounds() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 2.0 ** torch.arange(-16, 16).repeat(128)
    x = torch.cat([x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1.00390625, 1.01171875])])
    assert torch.equal(torch.from_numpy(fp32_of(bf16_of(x.numpy()))), x.bfloat16().float())


if __name__ == "__main__":
    print_failures(CHECKS)
