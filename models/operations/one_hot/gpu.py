"""The recurrence of PD-SSM as four Triton kernels: `one_hot_loop` of reference.py has the equations.

A token's map, N x N numbers, is never written: a program has one row m of the K matrices it is made of, walks over
tokens, and makes of each that row alone, for its largest number there and for its softmax on the way back. What lies
between the two, the states, are walked through in time, a program a string: what moves by a map is compared with it,
place by place, so that the sums have an order of their own and two runs are equal.

The host code is by hand: a declaration (in_triton.py) is one kernel each way and has no options like `form`.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.operations.one_hot.gpu_programs import (
    back_kernel,
    maps_kernel,
    places_kernel,
    states_kernel,
)
from chomsky_ladder.models.operations.one_hot.reference import Form, keep
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

ELEMENTS = 1 << 11  # tokens times maps times places that a warp has at a time: sums within one wait for no other
PROGRAMS = 1 << 13  # at least, or a row's tokens are split among several
PAIRS = 1 << 13  # of places that a warp of the states' programs compares


def triton_one_hot(
    share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form
) -> Tensor:
    """Compute `one_hot_loop` in fp32; it stacks under vmap."""
    given = [x[None] for x in (share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2)]
    assert all(x.dtype == torch.float32 for x in given), "the kernel takes fp32 alone"
    return _scan(*given, form == "gather")[0].squeeze(0)


@torch.library.custom_op("chomsky_ladder::one_hot_walk", mutates_args=())
def _scan(
    share_RBLK: Tensor, maps_RKNN: Tensor, d_RBLN2: Tensor, b_RBLN2: Tensor, h_RBN2: Tensor, gathers: bool
) -> tuple[Tensor, Tensor]:
    """All h and p, of replicas that differ in their maps too: what vmap adds folds into them."""
    given = [x.contiguous() for x in (share_RBLK, maps_RKNN, d_RBLN2, b_RBLN2, h_RBN2)]
    h_RBLN2, place_RBLN = written = _written(*given, gathers)
    tiles, (splits, span) = _tiles(maps_RKNN), _split(share_RBLK, maps_RKNN)
    replicas, batch, length, places = place_RBLN.shape
    with torch.cuda.device_of(h_RBLN2):
        places_kernel[replicas * places, splits](
            *given[:2], place_RBLN, batch * length, span, **tiles, num_warps=_warps(tiles)
        )  # fmt: skip
        states_kernel[(replicas * batch,)](
            place_RBLN, *given[2:], h_RBLN2, length, N=places, NP=tiles["NP"], GATHERS=gathers,
            num_warps=_warps_of_states(tiles),
        )  # fmt: skip
    return written


@_scan.register_fake
def _written(
    share_RBLK: Tensor, maps_RKNN: Tensor, d_RBLN2: Tensor, b_RBLN2: Tensor, h_RBN2: Tensor, gathers: bool
) -> tuple[Tensor, Tensor]:
    return _room(b_RBLN2.shape, b_RBLN2), _room(b_RBLN2.shape[:-1], b_RBLN2, torch.int32)


@torch.library.custom_op("chomsky_ladder::one_hot_walk_back", mutates_args=())
def _scan_back(
    share_RBLK: Tensor,
    maps_RKNN: Tensor,
    d_RBLN2: Tensor,
    h_RBN2: Tensor,
    h_RBLN2: Tensor,
    place_RBLN: Tensor,
    gh_RBLN2: Tensor,
    gathers: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the shares, the maps, d, b and the first state."""
    share_RBLK, maps_RKNN, d_RBLN2, h_RBN2, gh_RBLN2 = (
        x.contiguous() for x in (share_RBLK, maps_RKNN, d_RBLN2, h_RBN2, gh_RBLN2)
    )
    gd_RBLN2, g_RBLN2, gfirst_RBN2 = (_room(x.shape, x) for x in (d_RBLN2, d_RBLN2, h_RBN2))
    tiles, (splits, span) = _tiles(maps_RKNN), _split(share_RBLK, maps_RKNN)
    replicas, batch, length, places = place_RBLN.shape
    of_share_RNXK = _room((replicas, places, batch * length, tiles["K"]), d_RBLN2)
    of_maps_SRKNN = _room((splits, *maps_RKNN.shape), d_RBLN2)
    states = d_RBLN2, h_RBN2, h_RBLN2
    with torch.cuda.device_of(d_RBLN2):
        back_kernel[(replicas * batch,)](
            place_RBLN, *states, gh_RBLN2, g_RBLN2, gd_RBLN2, gfirst_RBN2, length,
            N=places, NP=tiles["NP"], GATHERS=gathers, num_warps=_warps_of_states(tiles),
        )  # fmt: skip
        maps_kernel[replicas * places, splits](
            share_RBLK, maps_RKNN, *states, g_RBLN2, of_share_RNXK, of_maps_SRKNN, batch, length, span,
            GATHERS=gathers, **tiles, num_warps=_warps(tiles),
        )  # fmt: skip
    return of_share_RNXK.sum(1).view_as(share_RBLK), of_maps_SRKNN.sum(0), gd_RBLN2, g_RBLN2, gfirst_RBN2


@_scan_back.register_fake
def _written_back(
    share_RBLK: Tensor,
    maps_RKNN: Tensor,
    d_RBLN2: Tensor,
    h_RBN2: Tensor,
    h_RBLN2: Tensor,
    place_RBLN: Tensor,
    gh_RBLN2: Tensor,
    gathers: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    share, maps, gd, g, first = (_room(x.shape, x) for x in (share_RBLK, maps_RKNN, d_RBLN2, d_RBLN2, h_RBN2))
    return share, maps, gd, g, first


def _gradients(ctx: Any, gh_RBLN2: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return *_scan_back(*ctx.saved_tensors, gh_RBLN2, ctx.gathers), None


_scan.register_autograd(_gradients, setup_context=keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, gathers = inputs
    share, maps, d, b, h = fold_replicas(tensors, in_dims[:-1], info.batch_size)
    return unfold_replicas(_scan(share, maps, d, b, h, gathers), info.batch_size)


def _tiles(maps_RKNN: Tensor) -> dict[str, int]:
    maps, places = maps_RKNN.shape[1:3]
    padded = {"KP": triton.next_power_of_2(maps), "NP": triton.next_power_of_2(places)}
    return {"K": maps, "N": places, **padded, "T": min(8, max(2, ELEMENTS // (padded["KP"] * padded["NP"])))}


def _warps(tiles: dict[str, int]) -> int:
    """Of a program that has a row of the maps, by powers of two."""
    return min(8, max(1, tiles["T"] * tiles["KP"] * tiles["NP"] // ELEMENTS))


def _warps_of_states(tiles: dict[str, int]) -> int:
    return min(8, max(1, tiles["NP"] ** 2 // PAIRS))


def _split(share_RBLK: Tensor, maps_RKNN: Tensor) -> tuple[int, int]:
    """Among how many programs a row's tokens are split, and how many each has."""
    tokens, rows = share_RBLK.shape[1] * share_RBLK.shape[2], maps_RKNN.shape[0] * maps_RKNN.shape[2]
    span = triton.cdiv(tokens, max(1, PROGRAMS // rows))
    return triton.cdiv(tokens, span), span


def _room(shape: Sequence[int], like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)
