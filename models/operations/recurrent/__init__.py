"""Layers of RNN, GRU and LSTM: all steps of a recurrence whose state passes a matrix.

    h_BLD, h_BD, c_BD = lstm_layer(ctx, x_BLD, h_BD, c_BD, weight_ih, weight_hh, bias)

The plain forms are those of models/scans/recurrences.py, of which the machines' controllers take steps. The autograd
functions are by hand, in C (in_c.py) and in Triton (gpu_lstm.py, gpu_gru.py, gpu_rnn.py): torch multiplies matrices
best, so a layer begins with one product for all steps and its backward pass ends with products. Torch's own layers do
not stack, and on a GPU they round products as they like. There a pack's plain form is a loop of 424 kernels a step of
an RNN at 40 positions, and 3,408 of a GRU.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.recurrent import in_c, torch_rnns
from chomsky_ladder.models.scans import recurrences
from chomsky_ladder.models.scans.recurrences import Activation as Activation

LARGEST = 256  # of a state in Triton
_DTYPES = (torch.float32, torch.bfloat16)


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

lstm_layer.in_triton(f"{__name__}.gpu_lstm", name="triton_lstm", rank=31, takes=_takes, dtypes=_DTYPES)
rnn_layer.in_triton(f"{__name__}.gpu_rnn", name="triton_rnn", rank=39, takes=_takes, dtypes=_DTYPES)
gru_layer.in_triton(f"{__name__}.gpu_gru", name="triton_gru", rank=39, takes=_takes, dtypes=_DTYPES)
