"""The fused LSTM, sLSTM, GRU and RNN compiled for an H200, without one: they fit into shared memory and registers."""

import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from support.cases import full
from support.fused_recurrences import Case, Cell, drawn, module, plain_products, scan, weighted_sum
from support.triton_kernels import needs_triton

pytestmark = needs_triton

SHARED_MEMORY = 227 * 1024  # what a block may use on an H100 or H200
NARROW_BF16 = 8  # bytes that Triton 3.7, not 3.6, spills of the sLSTM in bf16: two registers, to have 168 and not more


class Compiler:
    """In place of a kernel: compiles what a launch with these arguments would, and does not run it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.compiled: list[Any] = []

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        return self.launch

    def launch(self, *args: Any, num_warps: int, **constants: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.runtime.jit import mangle_type

        signature, fixed, attributes = {}, dict(constants), {}
        for place, (name, value) in enumerate(zip(self.kernel.arg_names, args, strict=False)):
            if value is None or (isinstance(value, int) and value == 1):
                fixed[name] = value
                continue
            signature[name] = mangle_type(value)
            if isinstance(value, Tensor) or value % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
        signature = {name: signature.get(name, "constexpr") for name in self.kernel.arg_names}
        source = triton.compiler.ASTSource(self.kernel, signature, fixed, attributes)
        options = {"num_warps": num_warps}
        self.compiled.append(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options))


def compiled(case: Case, folder: Path) -> dict[str, Any]:
    """The kernels that the forward and the backward pass of a case launch."""
    with pytest.MonkeyPatch.context() as patch, plain_products():
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        compilers = {name: Compiler(getattr(module(case.cell), name)) for name in ("_forward", "_backward")}
        for name, compiler in compilers.items():
            patch.setattr(module(case.cell), name, compiler)
        inputs = [x.requires_grad_() for x in drawn(case, 0)]
        outputs = scan(case, *inputs, fused=True)
        weighted_sum(outputs if case.reached is None else [outputs[case.reached]]).backward()
    return {name: compiler.compiled[0] for name, compiler in compilers.items()}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # what `mkldnn.flags` says of a CPU
@pytest.mark.parametrize(
    ("cell", "width", "dtype"),
    [
        ("lstm", 64, torch.bfloat16),
        ("slstm", 16, torch.float32),
        *(full("lstm", *one) for one in ((64, torch.float32), (128, torch.float32), (128, torch.bfloat16))),
        *(full("slstm", width, torch.float32) for width in (32, 64)),
        *(full("slstm", width, torch.bfloat16) for width in (16, 32, 64)),
        ("gru", 64, torch.bfloat16),
        *(full("gru", *one) for one in ((64, torch.float32), (128, torch.bfloat16))),
        *(full(cell, 128, dtype) for cell in ("tanh", "relu") for dtype in (torch.float32, torch.bfloat16)),
    ],
)
def test_compiled_for_an_h200(cell: Cell, width: int, dtype: torch.dtype, tmp_path: Path) -> None:
    """Both kernels fit into shared memory and keep their registers, but for two at most."""
    from triton import knobs

    case = Case(cell=cell, batch=16, length=3, width=width, heads=4, dtype=dtype)
    for name, kernel in compiled(case, tmp_path).items():
        cubin = tmp_path / "kernel.cubin"
        cubin.write_bytes(kernel.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        usage = {key: int(number) for key, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", printed)}
        print(name, kernel.metadata.shared, usage)
        assert kernel.metadata.shared <= SHARED_MEMORY
        spills = cell == "slstm" and dtype == torch.bfloat16 and version("triton") >= "3.7"
        assert usage["LOCAL"] == 0 and usage["STACK"] <= (NARROW_BF16 if spills else 0)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("cell", ["lstm", "slstm", "gru", "tanh"])
def test_a_single_step_of_a_single_row_compiles(cell: Cell, tmp_path: Path) -> None:
    """Numbers that are 1 are constants then, and a gradient that is missing is too."""
    assert len(compiled(Case(cell=cell, batch=1, length=1, reached=1 if cell in ("gru", "tanh") else 2), tmp_path)) == 2
