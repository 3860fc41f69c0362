"""`rnn_layer` and `gru_layer` through our own Triton kernels (models/kernels/triton/rnn.py and gru.py).

Alone the device's own would do; it does not stack, and rounds its products as it likes. What they stand in for in a
pack is a loop of products and passes: 424 and 3,408 kernels a step at 40 positions.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.triton_lstm import takes
from chomsky_ladder.models.scans.recurrences import Activation

_ROOM = f"{__package__}.triton"


def triton_rnn_scan(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    """`rnn_layer` through our own Triton kernel, which stacks."""
    scan = member(f"{_ROOM}.rnn", "triton_rnn_scan")
    return scan(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, activation=activation)


def triton_gru_scan(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    """`gru_layer` through our own Triton kernel, which stacks."""
    return member(f"{_ROOM}.gru", "triton_gru_scan")(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, bias_n)


for cell, call in (("rnn", triton_rnn_scan), ("gru", triton_gru_scan)):
    register(
        Kernel(
            name=f"triton_{cell}",
            computes=f"{cell}_layer",
            reference=f"chomsky_ladder.models.scans.recurrences.{cell}_layer",
            call=call,
            serves=(cell,),
            dtypes=(torch.float32, torch.bfloat16),
            stacks=True,
            takes=takes,
            missing=cuda_module(f"{_ROOM}.{cell}"),
            rank=39,
        )
    )
