"""A machine's controller, an LSTM, in a Triton program: a row's products, the cell, and the backward pass.

    i, f, g, o = x W + b + W_y [h, r]        c' = s(f) c + s(i) tanh(g)        h' = s(o) tanh(c')
    asked = A h' + d

A program has one row, so every product is one of a matrix and a vector: the matrix is read anew by each token, some of
its rows at a time, and stays in the nearest cache that holds it. Gates and what is asked for go through memory, behind
a barrier each, as what is made row by row is wanted gate by gate and head by head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import read
from chomsky_ladder.models.kernels.triton.recurrence import load_four, sigmoid, store_four, tanh

PER_BLOCK = 2048  # elements of a matrix that are read at a time


def block_of(columns: int) -> tuple[int, int]:
    """Rows of a matrix that are read at a time, and its columns, padded."""
    padded = triton.next_power_of_2(columns)
    return max(1, PER_BLOCK // padded), padded


@triton.jit
def product(
    to: tl.tensor, added: tl.tensor, matrix: tl.tensor, x_K: tl.tensor,
    G: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Writes added + matrix x."""
    k = tl.arange(0, x_K.shape[0])
    for start in tl.range(0, G, BLOCK, num_stages=3):
        g = start + tl.arange(0, BLOCK)
        part_GK = read(matrix + g[:, None] * K + k[None, :], (g < G)[:, None] & (k < K)[None, :])
        sums_G = read(added + g, g < G) + tl.sum(part_GK * x_K[None, :], 1)
        tl.store(to + g, sums_G, mask=g < G)


@triton.jit
def product_back(
    d: tl.tensor, matrix: tl.tensor, G: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr
) -> tl.tensor:
    """matrix^T d, of a d in memory."""
    k = tl.arange(0, PADDED)
    sums_GK = tl.zeros((BLOCK, PADDED), tl.float32)
    for start in tl.range(0, G, BLOCK, num_stages=3):
        g = start + tl.arange(0, BLOCK)
        part_GK = read(matrix + g[:, None] * K + k[None, :], (g < G)[:, None] & (k < K)[None, :])
        sums_GK += read(d + g, g < G)[:, None] * part_GK
    return tl.sum(sums_GK, 0)


@triton.jit
def cell(gates: tl.tensor, c_D: tl.tensor, d: tl.tensor, D: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """h and c behind a token."""
    i_D, f_D, g_D, o_D = load_four(gates + d, d < D, D)
    c_D = tl.where(d < D, sigmoid(f_D) * c_D + sigmoid(i_D) * tanh(g_D), 0.0)
    return sigmoid(o_D) * tanh(c_D), c_D


@triton.jit
def cell_back(
    gates: tl.tensor, d_gates: tl.tensor, c_D: tl.tensor, d_h_D: tl.tensor, d_c_D: tl.tensor, d: tl.tensor,
    D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The gradient of the c before, `c_D`; writes that of the gates."""
    i_D, f_D, g_D, o_D = load_four(gates + d, d < D, D)
    i_D, f_D, g_D, o_D = sigmoid(i_D), sigmoid(f_D), tanh(g_D), sigmoid(o_D)
    squashed_D = tanh(f_D * c_D + i_D * g_D)
    d_c_D += d_h_D * o_D * (1 - squashed_D * squashed_D)
    d_i_D, d_f_D = d_c_D * g_D * i_D * (1 - i_D), d_c_D * c_D * f_D * (1 - f_D)
    d_g_D, d_o_D = d_c_D * i_D * (1 - g_D * g_D), d_h_D * squashed_D * o_D * (1 - o_D)
    store_four(d_gates + d, (d_i_D, d_f_D, d_g_D, d_o_D), d < D, D)
    return d_c_D * f_D


def gradients_of_weights(
    d_gates_RBLG: Tensor, d_asked_RBLX: Tensor, first_RBK: Tensor, y_RBLK: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of W_y, A and d."""
    past_RBLK = torch.cat([first_RBK[:, :, None], y_RBLK[:, :, :-1]], 2)
    return gradient_of_weight(d_gates_RBLG, past_RBLK), *gradients_of_layer(d_asked_RBLX, y_RBLK[..., :width])


def gradients_of_layer(d_RBLG: Tensor, x_RBLK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a layer's weight and bias, whose input is x and whose output has the gradient d."""
    return gradient_of_weight(d_RBLG, x_RBLK), d_RBLG.sum((1, 2))


def gradient_of_weight(d_RBLG: Tensor, x_RBLK: Tensor) -> Tensor:
    """Return the gradient over all tokens, in one product."""
    with torch.autocast(x_RBLK.device.type, enabled=False):
        return d_RBLG.flatten(1, 2).mT @ x_RBLK.flatten(1, 2)
