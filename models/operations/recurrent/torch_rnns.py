"""torch's own LSTM, RNN and GRU: alone and whole they are the fastest there is on any device; they do not stack."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.scans.recurrences import Activation


def _called(recurrence: Callable[..., Any], *arguments: Any) -> Any:
    """On a GPU cuDNN wants all weights in one piece, which views of a pack's rows are not: it copies, and says so."""
    if arguments[0].device.type == "cpu" or torch.compiler.is_compiling():
        return recurrence(*arguments)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return recurrence(*arguments)


def fused_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_layer` through torch's own LSTM: oneDNN on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    tensors = [x_BLD, h_BD, c_BD, weight_ih, weight_hh, bias]
    if torch.is_autocast_enabled(device):  # by hand: autocast's own rule for cuDNN's RNNs is fp16, whatever was asked
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    with torch.autocast(device, enabled=False):
        return _torch_lstm(*tensors)


def _torch_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    h_BLD, h_1BD, c_1BD = _called(
        torch.lstm,
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


def fused_rnn(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    """`rnn_layer` through torch's own RNN: a loop in C++ on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    tensors = [x_BLD, h_BD[None], weight_ih, weight_hh, bias, torch.zeros_like(bias)]
    if torch.is_autocast_enabled(device):  # by hand, as in `fused_lstm`
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    kernel = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[activation]
    with torch.autocast(device, enabled=False):
        # Has biases; one layer; no dropout; training or not; one direction; batch first.
        h_BLD, h_1BD = _called(
            kernel, tensors[0], tensors[1], tensors[2:], True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
    return h_BLD, h_1BD[0]


def fused_gru(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    """`gru_layer` through torch's own GRU: a loop in C++ on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    bias_hh = torch.cat([torch.zeros_like(bias[: -len(bias_n)]), bias_n])
    tensors = [x_BLD, h_BD[None], weight_ih, weight_hh, bias, bias_hh]
    if torch.is_autocast_enabled(device):  # by hand, as in `fused_lstm`
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    with torch.autocast(device, enabled=False):
        # Has biases; one layer; no dropout; training or not; one direction; batch first.
        h_BLD, h_1BD = _called(
            torch.gru, tensors[0], tensors[1], tensors[2:], True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
    return h_BLD, h_1BD[0]
