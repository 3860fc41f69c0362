"""The mLSTM layer's merged weights, and its projections from and to the stream, forward and backward.

Products are computed in the precision that `for_products` gives the weights, autocast's or the stream's. Inputs and
outputs are in the stream's own precision, and so are the sums of the weights' gradients over pieces of rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.scans.products import put_product


class RowWeights(NamedTuple):
    """The layer's weights, with successive maps merged."""

    up_XD: Tensor
    conv_WE: Tensor
    conv_bias_E: Tensor
    query_key_IE: Tensor  # W_q^T W_k / sqrt(K), since only q k^T is needed: y_j = sum_i x_i W_ij, the j of all blocks
    value_IE: Tensor
    gates_c_GE: Tensor  # i and f of c, through q and k; and of u, through v
    gates_u_GE: Tensor
    gates_bias_G: Tensor
    norm_E: Tensor
    skip_E: Tensor
    down_DE: Tensor


def for_products(weights: Sequence[Tensor], products: torch.dtype) -> RowWeights:
    """Return contiguous weights, those of products in their precision."""
    whole = RowWeights(*(weight.contiguous() for weight in weights))
    return whole._replace(up_XD=whole.up_XD.to(products), down_DE=whole.down_DE.to(products))


def project_up(x_BLD: Tensor, weights: RowWeights, u_BLE: Tensor, z_BLE: Tensor) -> None:
    x_TD = x_BLD.flatten(0, 1).to(weights.up_XD.dtype)
    for y_BLE, of_ED in zip((u_BLE, z_BLE), weights.up_XD.chunk(2), strict=True):
        put_product(y_BLE.flatten(0, 1), x_TD, of_ED.mT)


def project_up_back(
    gu_BLE: Tensor, gz_BLE: Tensor, x_BLD: Tensor, weights: RowWeights, sums: RowWeights, gx_BLD: Tensor
) -> None:
    of_u_ED, of_z_ED = weights.up_XD.chunk(2)
    gof_u_ED, gof_z_ED = sums.up_XD.chunk(2)
    x_TD, gu_TE, gz_TE = (y.flatten(0, 1).to(weights.up_XD.dtype) for y in (x_BLD, gu_BLE, gz_BLE))
    put_product(gx_BLD.flatten(0, 1), gu_TE, of_u_ED)
    put_product(gx_BLD.flatten(0, 1), gz_TE, of_z_ED, adds=True)
    put_product(gof_u_ED, gu_TE.mT, x_TD, adds=True)
    put_product(gof_z_ED, gz_TE.mT, x_TD, adds=True)


def project_down(out_BLE: Tensor, weights: RowWeights, y_BLD: Tensor) -> None:
    put_product(y_BLD.flatten(0, 1), out_BLE.flatten(0, 1).to(weights.down_DE.dtype), weights.down_DE.mT)


def project_down_back(gy_BLD: Tensor, weights: RowWeights, gout_BLE: Tensor) -> None:
    put_product(gout_BLE.flatten(0, 1), gy_BLD.flatten(0, 1).to(weights.down_DE.dtype), weights.down_DE)


def sum_down(gy_BLD: Tensor, out_BLE: Tensor, weights: RowWeights, sums: RowWeights) -> None:
    gy_TD, out_TE = (y.flatten(0, 1).to(weights.down_DE.dtype) for y in (gy_BLD, out_BLE))
    put_product(sums.down_DE, gy_TD.mT, out_TE, adds=True)
