"""Each fast kernel called with the tensors of the reference it stands for: the only file that calls an optional one."""

import importlib
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.scans.recurrences import Activation
from chomsky_ladder.models.scans.slstm import from_input


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


def fused_rnn(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    """`rnn_scan` with its input product through torch's own RNN: a loop in C++ on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    tensors = [x_BLD, h_BD[None], weight_ih, weight_hh, bias, torch.zeros_like(bias)]
    if torch.is_autocast_enabled(device):  # by hand, as in `fused_lstm`
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    kernel = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[activation]
    with torch.autocast(device, enabled=False):
        # Has biases; one layer; no dropout; training or not; one direction; batch first.
        h_BLD, h_1BD = kernel(*tensors[:2], tensors[2:], True, 1, 0.0, torch.is_grad_enabled(), False, True)
    return h_BLD, h_1BD[0]


def fused_gru(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    """`gru_scan` with its input product through torch's own GRU: a loop in C++ on a CPU, cuDNN on a GPU."""
    device = x_BLD.device.type
    bias_hh = torch.cat([torch.zeros_like(bias[: -len(bias_n)]), bias_n])
    tensors = [x_BLD, h_BD[None], weight_ih, weight_hh, bias, bias_hh]
    if torch.is_autocast_enabled(device):  # by hand, as in `fused_lstm`
        tensors = [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]
    with torch.autocast(device, enabled=False):
        # Has biases; one layer; no dropout; training or not; one direction; batch first.
        h_BLD, h_1BD = torch.gru(*tensors[:2], tensors[2:], True, 1, 0.0, torch.is_grad_enabled(), False, True)
    return h_BLD, h_1BD[0]


def mamba_scan(x_BLE: Tensor, dt_BLE: Tensor, A_EN: Tensor, B_BLN: Tensor, C_BLN: Tensor, D_E: Tensor) -> Tensor:
    """`selective_scan` from zeros, with positive eigenvalues, through mamba-ssm's CUDA kernel."""
    scan = importlib.import_module("mamba_ssm.ops.selective_scan_interface").selective_scan_fn
    x_BEL, dt_BEL, B_BNL, C_BNL = (z.mT.contiguous() for z in (x_BLE, dt_BLE.to(x_BLE.dtype), B_BLN, C_BLN))
    return scan(x_BEL, dt_BEL, A_EN.float(), B_BNL, C_BNL, D_E.float()).mT


def triton_lstm_scan(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_lstm` through our own Triton kernel, which stacks."""
    scan = importlib.import_module(f"{__package__}.triton.lstm").triton_lstm_scan
    return scan(torch.nn.functional.linear(x_BLD, weight_ih, bias), h_BD, c_BD, weight_hh)


def triton_slstm_scan(
    read: tuple[Tensor, ...], state: tuple[Tensor, Tensor, Tensor], weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`slstm_scan` through our own Triton kernel, which stacks."""
    return importlib.import_module(f"{__package__}.triton.slstm").triton_slstm_scan(read, state, weights)


def xlstm_slstm_scan(
    read: tuple[Tensor, ...], state: tuple[Tensor, Tensor, Tensor], weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`slstm_scan` through the CUDA extension of the xlstm package, which nvcc compiles for each size at run time.

    It carries c, n and m where ours carries y = c / n and a = m + log n: c = y, n = 1 and m = a stand for the same, and
    n = 0 for a start with a = -inf.
    """
    W_HGJ, R_HGK, b_HG = weights
    h_BHK, y_BHK, a_BHK = state
    batch, _, heads, _ = read[0].shape
    inner = R_HGK.shape[-1]
    begun_BHK = a_BHK > -torch.inf
    carried = (h_BHK, y_BHK, torch.ones_like(y_BHK), a_BHK)
    states_4BD = torch.stack([torch.where(begun_BHK, z_BHK, 0).flatten(1) for z_BHK in carried])
    gates_LBG = from_input(read, W_HGJ).transpose(0, 1).flatten(2)
    scan = _xlstm_function(batch, heads, inner)
    all_4LBD = scan.apply(True, gates_LBG.contiguous(), states_4BD, R_HGK.mT.contiguous(), b_HG.flatten())
    h_BLHK = all_4LBD[0, 1:].transpose(0, 1).unflatten(2, (heads, inner))
    _, c_BHK, n_BHK, m_BHK = (z_BD.unflatten(1, (heads, inner)) for z_BD in all_4LBD[:, -1])
    return h_BLHK, (h_BLHK[:, -1], c_BHK / n_BHK, m_BHK + n_BHK.log())


@lru_cache
def _xlstm_function(batch: int, heads: int, inner: int) -> Any:
    cell = importlib.import_module("xlstm.blocks.slstm.cell")
    kinds = dict.fromkeys(("dtype", *(f"dtype_{part}" for part in "brwgsa")), "float32")
    sizes = {"hidden_size": heads * inner, "num_heads": heads, "batch_size": batch}
    config = cell.sLSTMCellConfig(**sizes, **kinds, backend="cuda", enable_automatic_mixed_precision=False)
    return cell.sLSTMCellFuncGenerator(True, config)


def fused_selective_scan(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """`scan_loop` in fp32 through our own Triton kernel, which stacks."""
    scan = importlib.import_module(f"{__package__}.triton.scan").triton_selective_scan
    return scan(u_BLE, dt_BLE, A_NE, B_BLN, C_BLN, h_BNE, signed)


def short_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`ShortConvolution` from the start, through the CUDA kernel of causal-conv1d."""
    convolve = importlib.import_module("causal_conv1d").causal_conv1d_fn
    bias_E = None if bias_E is None else bias_E.to(x_BLE.dtype)
    return convolve(x_BLE.mT, weight_EW.to(x_BLE.dtype), bias_E).mT


def mlstm_scan(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor) -> Tensor:
    """`mlstm_chunks` from the start, through the chunkwise Triton kernels of mlstm_kernels; k is divided by sqrt(K)."""
    kernels = importlib.import_module("mlstm_kernels.torch.backend_module")
    settings = kernels.mLSTMBackendConfig(
        chunkwise_kernel="chunkwise--triton_xl_chunk", mode="train_with_padding", return_last_states=False
    )
    unscaled_BHLK = k_BHLK * k_BHLK.shape[-1] ** 0.5  # the kernel divides
    return kernels.mLSTMBackend(settings)(q=q_BHLK, k=unscaled_BHLK, v=v_BHLV, i=i_BHL, f=f_BHL)
