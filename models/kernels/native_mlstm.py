"""The rows of models/scans/mlstm_rows.py with torch for the products and one pass in C between them instead of a dozen.

models/kernels/_native_mlstm.c has what stands between the products.
"""

import functools

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.fused import takes_rows
from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.mlstm_rows import Form, Kept, RowWeights, grouped, in_heads, mlstm_rows, multiply

MIDDLING = 192  # tokens; up to here whole squares take less time than chunks, half of it at 65 to 128


def _forward_rows(x_BLD: Tensor, y_BLD: Tensor, weights: RowWeights, kept: Kept) -> None:
    wide_XBLE, square_XHBLL, small_XBHL, top_BHL = kept
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = wide_XBLE
    c_BLE, sizes = torch.empty_like(u_BLE), _sizes(u_BLE, square_XHBLL, weights)
    x_TD, of_u_ED, of_z_ED = x_BLD.flatten(0, 1), *weights.up_XD.chunk(2)
    torch.mm(x_TD, of_u_ED.mT, out=u_BLE.flatten(0, 1))
    torch.mm(x_TD, of_z_ED.mT, out=z_BLE.flatten(0, 1))
    gates_BGL = x_BLD.new_empty(x_BLD.shape[0], len(weights.gates_bias_G), x_BLD.shape[1])
    reads = (weights.conv_WE, weights.conv_bias_E, weights.gates_c_GE, weights.gates_u_GE, weights.gates_bias_G)
    kernel("mlstm_read", x_BLD.dtype)(u_BLE, *reads, p_BLE, c_BLE, gates_BGL, sizes=sizes)
    torch.bmm(grouped(c_BLE), weights.query_key_NJJ, out=grouped(q_BLE))
    torch.bmm(grouped(u_BLE), weights.value_NJJ, out=grouped(v_BLE))

    P_HBLL = square_XHBLL[0]
    for q, k, P in zip(in_heads(q_BLE, len(P_HBLL)), in_heads(c_BLE, len(P_HBLL)), P_HBLL, strict=True):
        torch.bmm(q, k.mT, out=P)
    *of_weights, rstd_BHL = small_XBHL
    kernel("mlstm_weights", x_BLD.dtype)(gates_BGL, *square_XHBLL, *of_weights, top_BHL, sizes=sizes)
    for P, v, h in zip(P_HBLL, in_heads(v_BLE, len(P_HBLL)), in_heads(h_BLE, len(P_HBLL)), strict=True):
        multiply(P, v, h)
    merged = (h_BLE, c_BLE, z_BLE, weights.norm_E, weights.skip_E, rstd_BHL, c_BLE)
    kernel("mlstm_merge", x_BLD.dtype)(*merged, sizes=sizes)
    torch.mm(c_BLE.flatten(0, 1), weights.down_DE.mT, out=y_BLD.flatten(0, 1))


def _back_rows(
    gy_BLD: Tensor, x_BLD: Tensor, gx_BLD: Tensor, weights: RowWeights, sums: RowWeights, kept: Kept
) -> None:
    wide_XBLE, square_XHBLL, small_XBHL, top_BHL = kept
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = wide_XBLE
    *of_weights, rstd_BHL = small_XBHL
    room_BLE, c_BLE, gz_BLE, gc_BLE, gh_BLE, gq_BLE = torch.empty_like(wide_XBLE)
    gv_BLE, gu_BLE = room_BLE, gh_BLE  # of what is no longer needed, to stay in the cache
    dtype, sizes = x_BLD.dtype, _sizes(u_BLE, square_XHBLL, weights)
    x_TD, gy_TD = x_BLD.flatten(0, 1), gy_BLD.flatten(0, 1)

    torch.mm(gy_TD, weights.down_DE, out=gz_BLE.flatten(0, 1))
    merged = (gz_BLE, p_BLE, z_BLE, h_BLE, rstd_BHL, weights.norm_E, weights.skip_E, room_BLE, c_BLE)
    kernel("mlstm_merge_back", dtype)(*merged, gz_BLE, gc_BLE, gh_BLE, sums.norm_E, sums.skip_E, sizes=sizes)
    sums.down_DE.addmm_(gy_TD.mT, room_BLE.flatten(0, 1))

    P_HBLL = square_XHBLL[0]
    gP_HBLL = torch.empty_like(P_HBLL, memory_format=torch.contiguous_format)
    heads = [in_heads(y, len(P_HBLL)) for y in (gh_BLE, v_BLE, gv_BLE)]
    for gh, v, gv, P, gP in zip(*heads, P_HBLL, gP_HBLL, strict=True):
        torch.bmm(gh, v.mT, out=gP)
        multiply(P.mT, gh, gv)
    ggates_BGL = x_BLD.new_empty(x_BLD.shape[0], len(weights.gates_bias_G), x_BLD.shape[1])
    kernel("mlstm_weights_back", dtype)(gP_HBLL, *square_XHBLL, *of_weights, top_BHL, ggates_BGL, sizes=sizes)
    heads = [in_heads(y, len(P_HBLL)) for y in (q_BLE, c_BLE, gq_BLE, gc_BLE)]
    for q, c, gq, gc, gS in zip(*heads, gP_HBLL, strict=True):
        multiply(gS, c, gq)
        multiply(gS.mT, q, gc, add=True)

    u_NTJ, gu_NTJ, gv_NTJ = map(grouped, (u_BLE, gu_BLE, gv_BLE))
    c_NTJ, gc_NTJ, gq_NTJ = map(grouped, (c_BLE, gc_BLE, gq_BLE))
    torch.bmm(gv_NTJ, weights.value_NJJ.mT, out=gu_NTJ)
    gc_NTJ.baddbmm_(gq_NTJ, weights.query_key_NJJ.mT)
    sums.value_NJJ.baddbmm_(u_NTJ.mT, gv_NTJ)
    sums.query_key_NJJ.baddbmm_(c_NTJ.mT, gq_NTJ)
    reads = (weights.conv_WE, weights.gates_c_GE, weights.gates_u_GE, gu_BLE)
    added = (sums.conv_WE, sums.conv_bias_E, sums.gates_c_GE, sums.gates_u_GE, sums.gates_bias_G)
    kernel("mlstm_read_back", dtype)(u_BLE, p_BLE, c_BLE, gc_BLE, ggates_BGL, *reads, *added, sizes=sizes)

    of_u_ED, of_z_ED = weights.up_XD.chunk(2)
    gof_u_ED, gof_z_ED = sums.up_XD.chunk(2)
    gu_TE, gz_TE = gu_BLE.flatten(0, 1), gz_BLE.flatten(0, 1)
    torch.mm(gu_TE, of_u_ED, out=gx_BLD.flatten(0, 1)).addmm_(gz_TE, of_z_ED)
    gof_u_ED.addmm_(gu_TE.mT, x_TD)
    gof_z_ED.addmm_(gz_TE.mT, x_TD)


def _sizes(u_BLE: Tensor, square_XHBLL: Tensor, weights: RowWeights) -> object:
    heads, by_head = square_XHBLL.shape[1], square_XHBLL.stride(1)
    return integers(*u_BLE.shape, heads, len(weights.conv_WE), by_head)


NATIVE = Form(forward=_forward_rows, back=_back_rows, prepare=lambda x_BLD: (), cached=2**18)


register(
    Kernel(
        name="native_mlstm",
        computes="mlstm_rows",
        reference="chomsky_ladder.models.xlstm.MLSTM",
        call=functools.partial(mlstm_rows, form=NATIVE),
        serves=("xlstm",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=lambda x_BLD, ctx: untraced(x_BLD, ctx) and takes_rows(x_BLD, ctx, longest=MIDDLING),
        missing=missing,
        rank=22,
    )
)
