"""The fast kernels: the only file that imports or calls an optional one. Each stands beside a reference in plain torch.

`available()` says for every kernel whether it can run here and, if not, why; nothing is ever used silently: a block
that takes one adds its name to `ctx.backends`, which goes into the run's record.
"""

import importlib
import shutil
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.block import Backend, Context, KernelName, require
from chomsky_ladder.models.kernels import native as _native


class Kernel(NamedTuple):
    name: str
    serves: tuple[str, ...]  # models
    missing: str  # why it cannot run here; empty if it can
    stacks: bool = False  # has a vmap rule
    device: Literal["cpu", "cuda", "any"] = "cuda"  # that it runs on


def usable(name: KernelName, x: Tensor, ctx: Context) -> bool:
    """Whether a block takes this kernel for `x`: it can run here, on this device, and was not asked not to."""
    kernel = _kernel(name)
    if ctx.backend not in ("auto", name) or x.device.type != kernel.device or kernel.missing:
        return False
    if name.startswith("native"):  # compilers that trace cannot follow it
        return x.dtype in _native.REAL and not torch.compiler.is_compiling()
    if name.startswith("triton"):  # they compute in fp32 and hold a row of a state of at most so many
        return x.dtype != torch.float64 and x.shape[-1] <= 256
    return kernel.stacks or not ctx.stacked


def stacks(backend: Backend) -> bool:
    """Whether runs that ask for it can train as one."""
    return backend in ("auto", "reference") or _kernel(backend).stacks


def demand(backend: Backend, *, model: str, device: torch.device, stacked: bool = False) -> None:
    """Refuse a kernel asked for by name that cannot run here, does not serve the model or does not stack."""
    if backend in ("auto", "reference"):
        return
    kernel = _kernel(backend)
    require(kernel.stacks or not stacked, f"the backend {backend} does not stack: leave exec.pack at 1")
    require(not kernel.missing, f"the backend {backend} cannot run here: {kernel.missing}")
    needs = {"cpu": "a CPU", "cuda": "a CUDA device", "any": ""}[kernel.device]
    require(kernel.device in (device.type, "any"), f"the backend {backend} needs {needs}, not {device}")
    require(model in kernel.serves, f"the backend {backend} serves {', '.join(kernel.serves)}, not {model}")


def available() -> list[Kernel]:
    cuda = "" if torch.cuda.is_available() else "no CUDA device"
    attention = ("transformer", "sliding_window", "moe", "encoder", "encoder_decoder", "prefix_lm")
    convolving = ("mamba", "mamba2", "xlstm", "gated_delta_net", "gated_delta_product", "min_gru", "min_lstm")
    return [
        Kernel("torch.lstm", ("lstm", "lstm_block"), "", device="any"),
        Kernel("torch.rnn", ("rnn",), "", device="any"),
        Kernel("torch.gru", ("gru",), "", device="any"),
        Kernel("torch.sdpa", attention, "", device="any"),
        Kernel("fused_mlstm", ("xlstm",), "", stacks=True, device="cpu"),
        Kernel("fused_slstm", ("xlstm",), "", stacks=True, device="any"),
        Kernel("fused_scan", ("mamba",), "", stacks=True, device="any"),
        Kernel("native_scan", ("mamba",), _native.missing(), stacks=True, device="cpu"),
        Kernel("native_conv", convolving, _native.missing(), stacks=True, device="cpu"),
        Kernel("native_mlstm", ("xlstm",), _native.missing(), stacks=True, device="cpu"),
        Kernel("native_slstm", ("xlstm",), _native.missing(), stacks=True, device="cpu"),
        Kernel("mamba_ssm", ("mamba",), cuda or _import_error("mamba_ssm.ops.selective_scan_interface")),
        Kernel(
            "triton_lstm",
            ("lstm", "lstm_block"),
            cuda or _import_error(f"{__package__}.triton.lstm"),
            stacks=True,
        ),
        Kernel("triton_slstm", ("xlstm",), cuda or _import_error(f"{__package__}.triton.slstm"), stacks=True),
        Kernel("xlstm_slstm", ("xlstm",), cuda or _import_error("xlstm.blocks.slstm.cell") or _no_nvcc()),
        Kernel("triton_scan", ("mamba",), cuda or _import_error(f"{__package__}.triton.scan"), stacks=True),
        Kernel("causal_conv1d", convolving, cuda or _import_error("causal_conv1d")),
        Kernel("mlstm_kernels", ("xlstm",), cuda or _import_error("mlstm_kernels.torch.backend_module")),
    ]


@lru_cache
def _kernel(name: str) -> Kernel:
    return next(kernel for kernel in available() if kernel.name == name)


def _no_nvcc() -> str:
    return "" if shutil.which("nvcc") else "no nvcc, which compiles it at run time"


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # a compiled package fails in many ways, not by ImportError alone
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
