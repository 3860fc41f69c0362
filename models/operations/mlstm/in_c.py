"""The mLSTM layer's rows in C: torch makes the projections, and all that is between them is in C.

mlstm_attend.c has the memory, whose squares never leave the cache: the backward pass computes them again. cpu.c has
what is around it.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import integers, kernel
from chomsky_ladder.models.operations.mlstm.projections import (
    RowWeights,
    project_down,
    project_down_back,
    project_up,
    project_up_back,
    sum_down,
)
from chomsky_ladder.models.operations.mlstm.rows import WIDE_BLOCK, Form, Kept


def _forward_rows(x_BLD: Tensor, y_BLD: Tensor, weights: RowWeights, kept: Kept) -> None:
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = kept.wide_XBLE
    i_BHL, f_BHL, rstd_BHL = kept.small_XBHL
    dtype, sizes, c_BLE = x_BLD.dtype, _sizes(u_BLE, i_BHL, weights), torch.empty_like(u_BLE)
    project_up(x_BLD, weights, u_BLE, z_BLE)
    reads = (weights.conv_WE, weights.conv_bias_E, weights.query_key_IE, weights.value_IE)
    gates = (weights.gates_c_GE, weights.gates_u_GE, weights.gates_bias_G)
    kernel("mlstm_read", dtype)(u_BLE, *reads, *gates, p_BLE, c_BLE, q_BLE, v_BLE, i_BHL, f_BHL, sizes=sizes)
    kernel("mlstm_attend", dtype)(q_BLE, c_BLE, v_BLE, i_BHL, f_BHL, h_BLE, sizes=sizes)
    merged = (h_BLE, c_BLE, z_BLE, weights.norm_E, weights.skip_E, rstd_BHL, c_BLE)
    kernel("mlstm_merge", dtype)(*merged, sizes=sizes)
    project_down(c_BLE, weights, y_BLD)


def _back_rows(
    gy_BLD: Tensor, x_BLD: Tensor, gx_BLD: Tensor, weights: RowWeights, sums: RowWeights, kept: Kept
) -> None:
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = kept.wide_XBLE
    i_BHL, f_BHL, rstd_BHL = kept.small_XBHL
    room_BLE, c_BLE, gz_BLE, gc_BLE, gh_BLE, gq_BLE = torch.empty_like(kept.wide_XBLE)
    gv_BLE, gu_BLE = room_BLE, gh_BLE  # of what is no longer needed, to stay in the cache
    dtype, sizes = x_BLD.dtype, _sizes(u_BLE, i_BHL, weights)

    project_down_back(gy_BLD, weights, gz_BLE)
    merged = (gz_BLE, p_BLE, z_BLE, h_BLE, rstd_BHL, weights.norm_E, weights.skip_E, room_BLE, c_BLE)
    kernel("mlstm_merge_back", dtype)(*merged, gz_BLE, gc_BLE, gh_BLE, sums.norm_E, sums.skip_E, sizes=sizes)
    sum_down(gy_BLD, room_BLE, weights, sums)

    gi_BHL, gf_BHL = torch.empty_like(kept.small_XBHL[:2])
    read = (q_BLE, c_BLE, v_BLE, i_BHL, f_BHL, gh_BLE)
    kernel("mlstm_attend_back", dtype)(*read, gq_BLE, gc_BLE, gv_BLE, gi_BHL, gf_BHL, sizes=sizes)
    reads = (weights.conv_WE, weights.query_key_IE, weights.value_IE, weights.gates_c_GE, weights.gates_u_GE)
    added = (sums.conv_WE, sums.conv_bias_E, sums.query_key_IE, sums.value_IE, sums.gates_c_GE, sums.gates_u_GE)
    asked = (u_BLE, p_BLE, c_BLE, gc_BLE, gq_BLE, gv_BLE, gi_BHL, gf_BHL)
    kernel("mlstm_read_back", dtype)(*asked, *reads, gu_BLE, *added, sums.gates_bias_G, sizes=sizes)

    project_up_back(gu_BLE, gz_BLE, x_BLD, weights, sums, gx_BLD)


def _sizes(u_BLE: Tensor, i_BHL: Tensor, weights: RowWeights) -> object:
    assert u_BLE.shape[-1] % WIDE_BLOCK == 0, "rows of whole vectors"
    return integers(*u_BLE.shape, i_BHL.shape[1], len(weights.conv_WE))


NATIVE = Form(forward=_forward_rows, back=_back_rows, prepare=lambda x_BLD: (), cached=2**18, squares=0, small=3)
