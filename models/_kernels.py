"""The fast kernels: the only file that imports or calls an optional one. Each stands beside a reference in _scan.py.

`available()` says for every kernel whether it can run here and, if not, why; nothing is ever used silently: a block
that takes one adds its name to `ctx.backends`, which goes into the run's record.
"""

import importlib
from typing import NamedTuple

import torch
from torch import Tensor


class Kernel(NamedTuple):
    name: str
    serves: str
    missing: str  # why it cannot run here; empty if it can


def fused_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_scan` with its input product through torch's own LSTM: oneDNN on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    tensors = [x_BLD, h_BD, c_BD, weight_ih, weight_hh, bias]
    if torch.is_autocast_enabled(device):  # by hand: autocast's own rule for cuDNN's RNNs is fp16, whatever was asked
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    with torch.autocast(device, enabled=False):
        return _torch_lstm(*tensors)


def _torch_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    h_BLD, h_1BD, c_1BD = torch.lstm(
        x_BLD,
        (h_BD[None], c_BD[None]),
        [weight_ih, weight_hh, bias, torch.zeros_like(bias)],
        True,  # has biases
        1,  # layers
        0.0,  # dropout
        torch.is_grad_enabled(),
        False,  # bidirectional
        True,  # batch first
    )
    return h_BLD, h_1BD[0], c_1BD[0]


def available() -> list[Kernel]:
    cuda = "" if torch.cuda.is_available() else "no CUDA device"
    return [
        Kernel("torch.lstm", "lstm, lstm_block", ""),
        Kernel("torch.sdpa", "transformer, moe, encoder", ""),
        Kernel("triton", "no model yet", cuda or _import_error("triton")),
        Kernel("mamba_ssm", "no model yet", cuda or _import_error("mamba_ssm")),
        Kernel("causal_conv1d", "no model yet", cuda or _import_error("causal_conv1d")),
    ]


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # a compiled package fails in many ways, not by ImportError alone
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
