"""`lstm_layer` through our own Triton kernel (models/kernels/triton/lstm.py)."""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

_MODULE = f"{__package__}.triton.lstm"


def triton_lstm_scan(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_layer` through our own Triton kernel, which stacks."""
    scan = member(_MODULE, "triton_lstm_scan")
    return scan(torch.nn.functional.linear(x_BLD, weight_ih, bias), h_BD, c_BD, weight_hh)


def takes(x_BLD: Tensor, ctx: Context) -> bool:
    """Alone, the device's own LSTM is as fast, but in bf16 it rounds c: runs train and are scored by one kernel."""
    return x_BLD.shape[-1] <= 256


register(
    Kernel(
        name="triton_lstm",
        computes="lstm_layer",
        reference="chomsky_ladder.models.scans.recurrences.lstm_layer",
        call=triton_lstm_scan,
        serves=("lstm", "lstm_block"),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=31,
    )
)
