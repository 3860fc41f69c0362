"""Layers of RNN, GRU and LSTM: all steps of a recurrence whose state passes a matrix.

    h_BLD, h_BD, c_BD = lstm_layer(ctx, x_BLD, h_BD, c_BD, weight_ih, weight_hh, bias)

The plain forms are those of models/scans/recurrences.py, of which the machines' controllers take steps. The autograd
functions are by hand (in_c.py), since the backward pass ends in products of matrices, which torch does best. Layers of
torch do not stack, and on a GPU they round products as they like; there a pack's plain form is a loop of 424 kernels a
step of an RNN at 40 positions, and 3,408 of a GRU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import cuda_module, member
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.recurrent import in_c, torch_rnns
from chomsky_ladder.models.scans import recurrences
from chomsky_ladder.models.scans.recurrences import Activation

LARGEST = 256  # of a state in Triton
_TRITON = "chomsky_ladder.models.kernels.triton"
_DTYPES = (torch.float32, torch.bfloat16)


def _rnn_in_triton(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    scan = member(f"{_TRITON}.rnn", "triton_rnn_scan")
    return scan(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, activation=activation)


def _gru_in_triton(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    return member(f"{_TRITON}.gru", "triton_gru_scan")(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, bias_n)


def _lstm_in_triton(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return member(f"{_TRITON}.lstm", "triton_lstm_scan")(linear(x_BLD, weight_ih, bias), h_BD, c_BD, weight_hh)


def _takes(x_BLD: Tensor, ctx: Context) -> bool:
    """Alone, a GPU's own LSTM is as fast, but in bf16 it rounds c: runs train and are scored by one kernel."""
    return x_BLD.shape[-1] <= LARGEST


def _input(x_BLD: Tensor, *others: Tensor, **named: object) -> Tensor:
    return x_BLD


rnn_layer = Operation(recurrences.rnn_layer, serves=("rnn",), shown=_input)
gru_layer = Operation(recurrences.gru_layer, serves=("gru",), shown=_input)
lstm_layer = Operation(recurrences.lstm_layer, serves=("lstm", "lstm_block"), shown=_input)

lstm_layer.register(torch_rnns.fused_lstm, name="torch.lstm", rank=0, device="any", stacks=False, when="always")
rnn_layer.register(torch_rnns.fused_rnn, name="torch.rnn", rank=1, device="any", stacks=False, when="always")
gru_layer.register(torch_rnns.fused_gru, name="torch.gru", rank=2, device="any", stacks=False, when="always")

rnn_layer.in_c(in_c.native_rnn, name="native_rnn", rank=15, takes=in_c.takes)
gru_layer.in_c(in_c.native_gru, name="native_gru", rank=15, takes=in_c.takes)
lstm_layer.in_c(in_c.native_lstm, name="native_lstm", rank=15, takes=in_c.takes_lstm)

_IN_TRITON: list[tuple[Operation[..., Any], Callable[..., Any], str, int]] = [
    (lstm_layer, _lstm_in_triton, "lstm", 31),
    (rnn_layer, _rnn_in_triton, "rnn", 39),
    (gru_layer, _gru_in_triton, "gru", 39),
]
for _layer, _call, _name, _rank in _IN_TRITON:
    _missing = cuda_module(f"{_TRITON}.{_name}")
    _layer.register(
        _call, name=f"triton_{_name}", rank=_rank, device="cuda", dtypes=_DTYPES, takes=_takes, missing=_missing
    )
