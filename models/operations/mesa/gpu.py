"""The mesa layer as Triton kernels: `mesa` of reference.py by conjugate gradients, two there and three back.

    H_t = a_t H_{t-1} + b_t k_t k_t^T        G_t = a_t G_{t-1} + b_t k_t v_t^T
    (1 + H_t) x_t = q_t                      y_t = x_t^T G_t

One kernel goes through the chunks of a head and leaves H and G before each. Then all chunks are read at once: with the
shares D_ts b_s, a step of conjugate gradients for the tokens of a chunk is two products with the keys and one with H,
and there are as many as the plain form takes or as more than rounding is left to find. The gradient z of q is such a
solution again, of

    dx = (dy v^T * share) k + start dy G^T        dshare = S * (dy v^T - z k^T)        S = x k^T
    dk = (share * (dy v^T - z k^T))^T x - (share * S)^T z        dv = (share * S)^T dy
    dH = -(start z)^T x        dG = (start x)^T dy

and what H and G at the chunk's end have of keys, values and shares is added by a kernel that goes through the chunks of
a head from the last on. Kept for all that are x and the chunks' H and G.

The host code is by hand: a declaration (in_triton.py) is one kernel each way, where these are two and three.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, each_together, together
from chomsky_ladder.models.operations.mesa.gpu_back_programs import (
    read_back_kernel,
    solve_back_kernel,
    write_back_kernel,
)
from chomsky_ladder.models.operations.mesa.gpu_programs import read_kernel, states_kernel
from chomsky_ladder.models.operations.mesa.reference import ROUNDING, Held
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 16  # tokens, and the least of an axis of a product
PRECISION = "tf32x3"  # on tensor cores with nearly all bits; plain fp32 would take other cores five times as long


def triton_mesa(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL: Tensor,
    log_decay_BHL: Tensor,
    state: Held,
    *,
    steps: int = 0,
) -> tuple[Tensor, Held]:
    """Compute `mesa` by steps, in fp32 inside for q, k and v of fp32 or bf16; it stacks under vmap."""
    given = (q_BHLK, k_BHLK, v_BHLV)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in given), "the kernel takes fp32 and bf16 alone"
    assert all(x.dtype == torch.float32 for x in state), "states are in fp32"
    gates = (beta_BHL.float(), log_decay_BHL.float())
    one = (x[None] for x in (*map(together, given), *gates, *state))
    steps = steps or q_BHLK.shape[-1] + ROUNDING
    y_1BHLV, H_1BHKK, G_1BHKV, *_ = _read(*one, steps)
    return y_1BHLV[0], (H_1BHKK[0], G_1BHKV[0])


@torch.library.custom_op("chomsky_ladder::mesa", mutates_args=())
def _read(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    b_RBHL: Tensor,
    log_RBHL: Tensor,
    H_RBHKK: Tensor,
    G_RBHKV: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All y, the last H and G; and for the way back x and those that start the chunks.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    q, k, v = map(together, (q_RBHLK, k_RBHLK, v_RBHLV))
    first_H, first_G = each_together(H_RBHKK), each_together(G_RBHKV)
    written = _written(q, k, v, b_RBHL, log_RBHL, first_H, first_G, steps)
    y, last_H, last_G, x, starts_H, starts_G = written
    given, (heads, chunks), constants = (k, v, b_RBHL, log_RBHL), _programs(q), _constants(q, v)
    with torch.cuda.device_of(q):
        states_kernel[heads](
            *given, first_H, first_G, starts_H, starts_G, last_H, last_G, *_strides(*given),
            first_H.stride()[:1], first_G.stride()[:1], *q.shape[1:4], **constants,
        )  # fmt: skip
        read_kernel[chunks](
            q, *given, starts_H, starts_G, y, x, *_strides(q, *given), *q.shape[1:4], **constants, STEPS=steps
        )
    return written


@_read.register_fake
def _written(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    b_RBHL: Tensor,
    log_RBHL: Tensor,
    H_RBHKK: Tensor,
    G_RBHKV: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    chunks, like = triton.cdiv(q_RBHLK.shape[3], CHUNK), H_RBHKK
    y, x = (by_token(_room, each.shape, like) for each in (v_RBHLV, q_RBHLK))
    last_H, last_G = (_room(each.shape, like) for each in (H_RBHKK, G_RBHKV))
    starts_H, starts_G = (_room((*each.shape[:3], chunks, *each.shape[3:]), like) for each in (H_RBHKK, G_RBHKV))
    return y, last_H, last_G, x, starts_H, starts_G


@torch.library.custom_op("chomsky_ladder::mesa_back", mutates_args=())
def _read_back(
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    b_RBHL: Tensor,
    log_RBHL: Tensor,
    x_RBHLK: Tensor,
    H_RBHNKK: Tensor,
    G_RBHNKV: Tensor,
    d_y_RBHLV: Tensor,
    d_H_RBHKK: Tensor,
    d_G_RBHKV: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v, b, log, H and G, all of them in fp32: two kernels add to the same."""
    k, v, x, d_y = map(together, (k_RBHLK, v_RBHLV, x_RBHLK, d_y_RBHLV))
    starts, d_last = (H_RBHNKK, G_RBHNKV), (d_H_RBHKK.contiguous(), d_G_RBHKV.contiguous())
    written = _written_back(k, v, b_RBHL, log_RBHL, x, *starts, d_y, *d_last, steps)
    d_q, d_k, d_v, d_b, d_log, d_H, d_G = written
    d_given, d_starts = (d_k, d_v, d_b, d_log), tuple(_room(each.shape, each) for each in starts)
    given, (heads, chunks), constants = (k, v, b_RBHL, log_RBHL), _programs(k), _constants(k, v)
    with torch.cuda.device_of(k):
        solve_back_kernel[chunks](
            *given, d_y, *starts, d_q, *_strides(*given, d_y), *k.shape[1:4], **constants, STEPS=steps
        )
        read_back_kernel[chunks](
            *given, x, d_q, d_y, *starts, *d_given, *d_starts, *_strides(*given, x, d_q, d_y), *k.shape[1:4],
            **constants,
        )  # fmt: skip
        write_back_kernel[heads](
            *given, *starts, *d_starts, *d_last, *d_given, d_H, d_G, *_strides(*given), *k.shape[1:4], **constants
        )
    return written


@_read_back.register_fake
def _written_back(
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    b_RBHL: Tensor,
    log_RBHL: Tensor,
    x_RBHLK: Tensor,
    H_RBHNKK: Tensor,
    G_RBHNKV: Tensor,
    d_y_RBHLV: Tensor,
    d_H_RBHKK: Tensor,
    d_G_RBHKV: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = (by_token(_room, each.shape, H_RBHNKK) for each in (x_RBHLK, k_RBHLK, v_RBHLV))
    d_b, d_log = (by_token(_room, (*each.shape, 1), H_RBHNKK)[..., 0] for each in (b_RBHL, log_RBHL))
    return d_q, d_k, d_v, d_b, d_log, _room(d_H_RBHKK.shape, H_RBHNKK), _room(d_G_RBHKV.shape, H_RBHNKK)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    *given, ctx.steps = inputs
    ctx.dtypes = [x.dtype for x in given[:3]]
    ctx.mark_non_differentiable(*output[3:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*given[1:5], *output[3:])


def _gradients(
    ctx: Any, d_y: Tensor | None, d_H: Tensor | None, d_G: Tensor | None, *_: None
) -> tuple[Tensor | None, ...]:
    *given, H_RBHNKK, G_RBHNKV = ctx.saved_tensors
    d_y = torch.zeros_like(given[1], dtype=H_RBHNKK.dtype) if d_y is None else d_y
    d_H = torch.zeros_like(H_RBHNKK[..., 0, :, :]) if d_H is None else d_H
    d_G = torch.zeros_like(G_RBHNKV[..., 0, :, :]) if d_G is None else d_G
    *d_tokens, d_b, d_log, d_H, d_G = _read_back(*given, H_RBHNKK, G_RBHNKV, d_y, d_H, d_G, ctx.steps)
    d_q, d_k, d_v = (x.to(dtype) for x, dtype in zip(d_tokens, ctx.dtypes, strict=True))
    return d_q, d_k, d_v, d_b, d_log, d_H, d_G, None


_read.register_autograd(_gradients, setup_context=_keep)


@_read.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, steps = inputs
    folded = fold_replicas(tensors, in_dims[:-1], info.batch_size)
    return unfold_replicas(_read(*folded, steps), info.batch_size)


def _programs(x_RBHLK: Tensor) -> tuple[tuple[int], tuple[int]]:
    """One for each head, and one for each chunk of each."""
    heads = x_RBHLK[..., 0, 0].numel()
    return (heads,), (heads * triton.cdiv(x_RBHLK.shape[3], CHUNK),)


def _strides(*tensors: Tensor) -> tuple[tuple[int, ...], ...]:
    """Over replicas, rows, heads and tokens."""
    return tuple(x.stride()[:4] for x in tensors)


def _constants(k_RBHLK: Tensor, v_RBHLV: Tensor) -> dict[str, Any]:
    return constants(k_RBHLK.shape[4], v_RBHLV.shape[4])


def constants(keys: int, values: int) -> dict[str, Any]:
    """The kernels', and their warps."""
    padded = [max(CHUNK, triton.next_power_of_2(size)) for size in (keys, values)]
    sizes = {"K": keys, "V": values, "KEYS": padded[0], "VALUES": padded[1], "TOKENS": CHUNK}
    return {**sizes, "PRECISION": PRECISION, "num_warps": 2 if max(padded) <= 32 else 8}


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
