"""Short mLSTM heads as two Triton kernels, forward and backward: `mlstm_heads` of models/operations/mlstm/reference.py.

    q = W_q c, k = W_k c / sqrt(K), v = W_v u        h_t = sum_s P_ts v_s / (max(|sum_s P_ts|, e^-m_t) + eps)
    P_ts = q_t k_s e^(log D_ts - m_t)

A program has one head of one string, up to 64 tokens: what plain forms write between products, all that is of pairs of
tokens, never leaves the chip, and only c, u and the gates are kept for the way back. With o = 1 / (max(..) + eps),

    G_ts = dh_t v_s        dmax_t = -o_t^2 sum_s P_ts G_ts        dP_ts = o_t G_ts + dmax_t (sign n_t where |n_t| is it)
    dlog D = dP P, and what m wants of it        dv = (o P)^T dh        dq = (dP e^(log D - m)) k        dk = (..)^T q

A forget gate at t is in all log D_rs with s < t <= r. Gradients of maps, a string's each, are summed outside. In bf16
what is rounded is what autocast rounds, q, k, v and their gradients, and h: P is multiplied in two parts of 16 bits.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where maps are one for all of them, and
outputs are in fp32.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import each_together, together
from chomsky_ladder.models.kernels.triton.pairs import BLOCK, MOST, WARPS, tokens_of
from chomsky_ladder.models.operations.mlstm.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def triton_mlstm(
    c_BLE: Tensor, u_BLE: Tensor, query_NIJ: Tensor, key_NIJ: Tensor, value_NIJ: Tensor, i_BLH: Tensor, f_BLH: Tensor
) -> Tensor:
    """Compute `mlstm_heads` of fp32 or bf16, with maps and gates in fp32; it stacks under vmap."""
    assert c_BLE.dtype == u_BLE.dtype and c_BLE.dtype in BLOCK, "the kernel takes fp32 and bf16 alone"
    of_gates = (query_NIJ, key_NIJ, value_NIJ, i_BLH, f_BLH)
    assert all(x.dtype == torch.float32 for x in of_gates), "maps and gates are in fp32"
    assert c_BLE.shape[1] <= MOST, f"the kernel takes no more than {MOST} tokens"
    return _heads(*(x[None] for x in (c_BLE, u_BLE, *of_gates)))[0]


@torch.library.custom_op("chomsky_ladder::mlstm_heads", mutates_args=())
def _heads(
    c_RBLE: Tensor,
    u_RBLE: Tensor,
    query_RNIJ: Tensor,
    key_RNIJ: Tensor,
    value_RNIJ: Tensor,
    i_RBLH: Tensor,
    f_RBLH: Tensor,
) -> Tensor:
    """With an axis R in front, of replicas: what vmap adds folds into it."""
    given = _given(c_RBLE, u_RBLE, query_RNIJ, key_RNIJ, value_RNIJ, i_RBLH, f_RBLH)
    h_RBLE = _room(c_RBLE.shape, c_RBLE)
    with torch.cuda.device_of(h_RBLE):
        forward_kernel[_grid(i_RBLH)](*given, h_RBLE, *_strides(*given, h_RBLE), *_sizes(i_RBLH), **_tiles(given))
    return h_RBLE


@_heads.register_fake
def _written(
    c_RBLE: Tensor,
    u_RBLE: Tensor,
    query_RNIJ: Tensor,
    key_RNIJ: Tensor,
    value_RNIJ: Tensor,
    i_RBLH: Tensor,
    f_RBLH: Tensor,
) -> Tensor:
    return _room(c_RBLE.shape, c_RBLE)


@torch.library.custom_op("chomsky_ladder::mlstm_heads_back", mutates_args=())
def _heads_back(
    c_RBLE: Tensor,
    u_RBLE: Tensor,
    query_RNIJ: Tensor,
    key_RNIJ: Tensor,
    value_RNIJ: Tensor,
    i_RBLH: Tensor,
    f_RBLH: Tensor,
    gh_RBLE: Tensor,
) -> Gradients:
    """The gradients of c, u, the three maps of every string, i and f."""
    given = _given(c_RBLE, u_RBLE, query_RNIJ, key_RNIJ, value_RNIJ, i_RBLH, f_RBLH)
    gh_RBLE = together(gh_RBLE)
    written = _written_back(*given, gh_RBLE)
    gc_RBLE, _, _, gi_RBLH, _ = written
    with torch.cuda.device_of(gc_RBLE):
        backward_kernel[_grid(i_RBLH)](
            *given, gh_RBLE, *written, *_strides(*given, gh_RBLE, gc_RBLE, gi_RBLH), *_sizes(i_RBLH), **_tiles(given)
        )
    return written


@_heads_back.register_fake
def _written_back(
    c_RBLE: Tensor,
    u_RBLE: Tensor,
    query_RNIJ: Tensor,
    key_RNIJ: Tensor,
    value_RNIJ: Tensor,
    i_RBLH: Tensor,
    f_RBLH: Tensor,
    gh_RBLE: Tensor,
) -> Gradients:
    replicas, *maps = query_RNIJ.shape
    gmaps = _room((replicas, c_RBLE.shape[1], 3, *maps), i_RBLH)
    gc, gu, gi, gf = (_room(x.shape, x) for x in (c_RBLE, u_RBLE, i_RBLH, f_RBLH))
    return gc, gu, gmaps, gi, gf


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gh_RBLE: Tensor) -> tuple[Tensor, ...]:
    gc, gu, gmaps, gi, gf = _heads_back(*ctx.saved_tensors, gh_RBLE)
    return gc, gu, *gmaps.sum(1).unbind(1), gi, gf


_heads.register_autograd(_gradients, setup_context=_keep)


@_heads.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
    (h_RSBLE,), (place,) = unfold_replicas([_heads(*fold_replicas(inputs, in_dims, info.batch_size))], info.batch_size)
    return h_RSBLE, place


def _given(c: Tensor, u: Tensor, query: Tensor, key: Tensor, value: Tensor, i: Tensor, f: Tensor) -> list[Any]:
    return [together(c), together(u), *(each_together(x) for x in (query, key, value)), i, f]


def _strides(*tensors: Tensor) -> list[tuple[int, ...]]:
    return [x.stride() for x in tensors]


def _grid(i_RBLH: Tensor) -> tuple[int]:
    replicas, batch, _, heads = i_RBLH.shape
    return (replicas * batch * heads,)


def _sizes(i_RBLH: Tensor) -> tuple[int, int, int]:
    _, batch, length, heads = i_RBLH.shape
    return batch, heads, length


def _tiles(given: Sequence[Tensor]) -> dict[str, int]:
    c_RBLE, i_RBLH = given[0], given[5]
    return tiles(c_RBLE.shape[3] // i_RBLH.shape[3], c_RBLE.shape[2], c_RBLE.dtype)


def tiles(width: int, length: int, dtype: torch.dtype) -> dict[str, int]:
    """The kernels' constants and warps, for a head's channels and a string's tokens."""
    return {"WIDTH": width, "BLOCK": BLOCK[dtype], "TOKENS": tokens_of(length), "num_warps": WARPS[dtype]}


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)
