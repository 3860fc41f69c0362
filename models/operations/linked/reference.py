"""A turn of a memory that knows which of its rows are free and in what order they were written: `dnc`'s.

    u' = (u + w - u w) prod_h (1 - f_h r_h)           usage, of the last write w and reads r_h, which f_h set free
    a[n] = (1 - u'[n]) prod_{m before n} u'[m]        the freest row first, by a stable sort of u'
    w' = g (g_a a + (1 - g_a) content(k_w))           M' = M (1 - w' e) + w' v
    L'[n,m] = (1 - w'[n] - w'[m]) L[n,m] + w'[n] p[m], 0 for n = m        p' = (1 - sum w') p + w'
    r' = back L'^T r + content(k_r) + forth L' r      each times its share of a softmax; reads M'^T r'

What is asked for, in one row: for each reading head a key, its strength - 1 before its softplus, f before its sigmoid
and the three shares before their softmax; then of the write a key, e before its sigmoid, v, the strength - 1 before its
softplus, g and g_a before their sigmoids. Of H heads that read, N rows of W numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.scans.addressing import by_content
from chomsky_ladder.models.scans.products import product
from chomsky_ladder.models.scans.recurrences import controller_step

OF_READ, OF_WRITE = 5, 3  # what is asked for beside vectors


def asked_of(reads: int, width: int) -> list[int]:
    """How many numbers are asked for, to read and to write."""
    return [reads * (width + OF_READ), 3 * width + OF_WRITE]


def linked_turn(
    asked_BX: Tensor,
    memory_BWN: Tensor,
    usage_BN: Tensor,
    write_BN: Tensor,
    precedence_BN: Tensor,
    link_BNN: Tensor,
    weight_BHN: Tensor,
) -> tuple[Tensor, ...]:
    """Memory, usage, write, precedence, links and weightings after it, and what was read [B, H, W]."""
    reads, width = weight_BHN.shape[1], memory_BWN.shape[1]
    to_read_BX, to_write_BX = asked_BX.split(asked_of(reads, width), -1)
    read_key_BHW, read_scalar_BH5 = to_read_BX.unflatten(-1, (reads, -1)).split([width, OF_READ], -1)
    key_BW, erase_BW, vector_BW, scalar_B3 = to_write_BX.split([*[width] * 3, OF_WRITE], -1)
    gate_B2 = torch.sigmoid(scalar_B3[:, 1:])

    usage_BN = torch.addcmul(usage_BN + write_BN, usage_BN, write_BN, value=-1)
    for freed_BN in (torch.sigmoid(read_scalar_BH5[..., 1:2]) * weight_BHN).unbind(1):
        usage_BN = torch.addcmul(usage_BN, usage_BN, freed_BN, value=-1)
    content_BN = by_content(key_BW[:, None], _strength(scalar_B3[:, :1]), memory_BWN)[:, 0]
    write_BN = gate_B2[:, :1] * torch.lerp(content_BN, allocation(usage_BN), gate_B2[:, 1:])
    memory_BWN = memory_BWN * (1 - torch.sigmoid(erase_BW)[..., None] @ write_BN[:, None])
    memory_BWN = torch.baddbmm(memory_BWN, vector_BW[..., None], write_BN[:, None])

    link_BNN = linked(link_BNN, write_BN, precedence_BN)
    precedence_BN = torch.addcmul(write_BN, 1 - write_BN.sum(-1, keepdim=True), precedence_BN)
    back, content, forth = torch.softmax(read_scalar_BH5[..., 2:], -1).split(1, -1)
    found_BHN = by_content(read_key_BHW, _strength(read_scalar_BH5[..., 0]), memory_BWN)
    followed_BHN = torch.addcmul(back * (weight_BHN @ link_BNN), forth, weight_BHN @ link_BNN.mT)
    weight_BHN = torch.addcmul(followed_BHN, content, found_BHN)
    read_BHW = weight_BHN @ memory_BWN.mT
    return memory_BWN, usage_BN, write_BN, precedence_BN, link_BNN, weight_BHN, read_BHW


def _strength(x: Tensor) -> Tensor:
    return 1 + torch.nn.functional.softplus(x)


def allocation(usage_BN: Tensor) -> Tensor:
    """How much of a write goes to each row if all of it goes to free ones."""
    order_BN = torch.sort(usage_BN.detach(), stable=True).indices
    sorted_BN = usage_BN.gather(-1, order_BN)
    # The product of those before each, by doubling: torch.cumprod's backward pass reads on the host whether one is 0.
    product_BN = torch.cat([torch.ones_like(sorted_BN[:, :1]), sorted_BN[:, :-1]], -1)
    reach = 1
    while reach < sorted_BN.shape[-1]:
        product_BN = torch.cat([product_BN[:, :reach], product_BN[:, reach:] * product_BN[:, :-reach]], -1)
        reach *= 2
    return ((1 - sorted_BN) * product_BN).gather(-1, torch.argsort(order_BN))


def linked(link_BNN: Tensor, write_BN: Tensor, precedence_BN: Tensor) -> Tensor:
    """The links after a write: [n, m] is how much row n was written right after row m."""
    link_BNN = link_BNN * ((1 - write_BN)[:, :, None] - write_BN[:, None])
    link_BNN = torch.baddbmm(link_BNN, write_BN[:, :, None], precedence_BN[:, None])
    rows = link_BNN.shape[-1]
    return link_BNN * (1 - torch.eye(rows, device=link_BNN.device, dtype=link_BNN.dtype))


def linked_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor | None, Tensor, Tensor, Tensor],
    state: tuple[Tensor, ...],
    *,
    turn: Callable[..., tuple[Tensor, ...]] = linked_turn,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return all tokens' h and what is read [B, L, D + H W] by an LSTM as the controller, and the last state.

    The weights are those of h and of what was read in the gates, and that and the bias of what is asked for. The state
    is h, c, what a turn is given and what was read.
    """
    (weight_hh, weight_rh, ask, bias), (h_BD, c_BD, *memory, read_BHW) = weights, state
    controller, outputs = (h_BD, c_BD), []
    for gates_BG in gates_BLG.unbind(1):
        h_BD, controller = controller_step(gates_BG, read_BHW.flatten(1), controller, weight_hh, weight_rh, core="lstm")
        *memory, read_BHW = turn(product(h_BD, ask, bias), *memory)
        outputs.append(torch.cat([h_BD, read_BHW.flatten(1)], -1))
    return torch.stack(outputs, 1), (*controller, *memory, read_BHW)
