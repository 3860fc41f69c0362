"""A turn of a Turing machine's memory: heads find rows by content and by shifts, some write there, the others read.

    c = softmax_n(b cos(k, M[n]))       g = s(.) c + (1 - s(.)) w       v[n] = sum_j p[j] g[n-j], j = -S .. S
    w'[n] = v[n]^y / sum_m v[m]^y       M'[n] = M[n] prod_h (1 - w'_h[n] e_h) + sum_h w'_h[n] a_h
    r = sum_n w'[n] M'[n]

What is asked for, in one row: for each reading head and then each writing one a key, b before its softplus, y - 1
before its softplus, the gate before its sigmoid, and 2 S + 1 shifts before their softmax; then for each writing head e
before its sigmoid; then for each a. Of H heads that read and H that write, N rows of W numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.scans.addressing import by_content
from chomsky_ladder.models.scans.products import product
from chomsky_ladder.models.scans.recurrences import Core, controller_step

SCALARS = 3  # of a head: strength, sharpness, gate


def asked_of(heads: int, width: int, shifts: int) -> list[int]:
    """How many numbers are asked for, to find rows and to write."""
    return [2 * heads * (width + SCALARS + shifts), heads * 2 * width]


def turing_turn(
    asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, *, shifts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The weightings [B, 2 H, N], reading heads first, the memory [B, W, N] and what was read [B, H, W]."""
    heads, width = weight_BHN.shape[1] // 2, memory_BWN.shape[1]
    to_find_BX, to_write_BX = asked_BX.split(asked_of(heads, width, shifts), -1)
    weight_BHN = _found(to_find_BX.unflatten(-1, (2 * heads, -1)), weight_BHN, memory_BWN, shifts)

    reads_BHN, writes_BHN = weight_BHN.split(heads, 1)
    erase_BHW, add_BHW = to_write_BX.unflatten(-1, (2, heads, width)).unbind(1)
    for write_BN, erase_BW in zip(writes_BHN.unbind(1), torch.sigmoid(erase_BHW).unbind(1), strict=True):
        memory_BWN = memory_BWN * (1 - erase_BW[..., None] @ write_BN[:, None])
    memory_BWN = torch.baddbmm(memory_BWN, add_BHW.mT, writes_BHN)
    return weight_BHN, memory_BWN, reads_BHN @ memory_BWN.mT


def _found(asked_BHX: Tensor, before_BHN: Tensor, memory_BWN: Tensor, shifts: int) -> Tensor:
    key_BHW, scalar_BH3, shift_BHS = asked_BHX.split([memory_BWN.shape[1], SCALARS, shifts], -1)
    strength_BH, sharpness_BH = torch.nn.functional.softplus(scalar_BH3[..., :2]).unbind(-1)
    content_BHN = by_content(key_BHW, strength_BH, memory_BWN)
    gated_BHN = torch.lerp(before_BHN, content_BHN, torch.sigmoid(scalar_BH3[..., 2:]))
    shifted_BHN = _shifted(gated_BHN, torch.softmax(shift_BHS, -1))
    # Over the largest, or a small weight's power would be 0 in fp32 everywhere; a constant factor changes nothing.
    scaled_BHN = shifted_BHN / shifted_BHN.detach().amax(-1, keepdim=True)
    sharp_BHN = scaled_BHN ** (1 + sharpness_BH[..., None])
    return sharp_BHN / sharp_BHN.sum(-1, keepdim=True)


def _shifted(weight_BHN: Tensor, shift_BHS: Tensor) -> Tensor:
    """The circular convolution with shifts from -S to S: one of +1 moves a head from row n to n + 1."""
    rows, most = weight_BHN.shape[-1], shift_BHS.shape[-1] // 2
    ring_BHX = torch.cat([weight_BHN[..., rows - most :], weight_BHN, weight_BHN[..., :most]], -1)
    terms = [
        shift_BH1 * ring_BHX[..., 2 * most - place : 2 * most - place + rows]
        for place, shift_BH1 in enumerate(shift_BHS.split(1, -1))
    ]
    return torch.stack(terms).sum(0)


def turing_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor | None, Tensor, Tensor, Tensor],
    state: tuple[Tensor, ...],
    *,
    shifts: int,
    core: Core = "lstm",
    turn: Callable[..., tuple[Tensor, Tensor, Tensor]] = turing_turn,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return all tokens' h and what is read [B, L, D + H W], and the last state.

    The weights are those of h and of what was read in the controller's gates, and that and the bias of what is asked
    for. The state is the controller's, memory, weightings and what was read.
    """
    (weight_hh, weight_rh, ask, bias), (*controller, memory_BWN, weight_BHN, read_BHW) = weights, state
    outputs = []
    for gates_BG in gates_BLG.unbind(1):
        h_BD, controller = controller_step(gates_BG, read_BHW.flatten(1), controller, weight_hh, weight_rh, core=core)
        weight_BHN, memory_BWN, read_BHW = turn(product(h_BD, ask, bias), weight_BHN, memory_BWN, shifts=shifts)
        outputs.append(torch.cat([h_BD, read_BHW.flatten(1)], -1))
    return torch.stack(outputs, 1), (*controller, memory_BWN, weight_BHN, read_BHW)
