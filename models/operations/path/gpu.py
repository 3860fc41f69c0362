"""The scores of PaTH as two Triton kernels: `attended` of reference.py as far as its softmax.

    k_s^t = k_s^{t-1} - b_t w_t (w_t . k_s^{t-1})   for s < t        k_t^t = k_t        score_ts = q_t . k_s^t

Keys have nothing to do with one another, so a program turns one tile of keys [tile, K] of one head of one row in
registers, token after token from the tile's first on. The forward pass keeps how far keys lay along w, c_s =
w_t . k_s^{t-1}, and the keys after every `SPAN` tokens; the backward pass turns them back by it, k_s^{t-1} =
k_s^t + b_t c_s w_t, and takes the gradients off them. G is that of the keys after t, and c_s and g_s = G_s . w_t are 0
unless s < t:

    dq_t = sum_s d_ts k_s^t        G_s <- G_s + d_ts q_t        db_t = - sum_s g_s c_s
    dw_t = -b_t sum_s (g_s k_s^{t-1} + c_s G_s)        G_s <- G_s - b_t g_s w_t

Sums over tiles of keys are added outside, so the result does not depend on the order in which programs run.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, together
from chomsky_ladder.models.operations.path.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

TILE = 16  # keys of a program
CHUNK = 2  # tokens that are read at once: of four, going back, not all fits into registers
SPAN = 64  # tokens over which keys are turned back
PER_WARP = 256  # elements of a tile; so few, as what lies along keys or channels alone is held many times


def turned_scores(q_BHLK: Tensor, k_BHLK: Tensor, w_BHLK: Tensor, beta_BHL: Tensor) -> Tensor:
    """Scores [B, H, L, L] in fp32, -inf ahead; it stacks under vmap."""
    given = (*map(together, (q_BHLK, k_BHLK, w_BHLK)), beta_BHL)
    assert all(x.dtype == torch.float32 for x in given), "the kernel takes fp32 alone"
    return _turn(*(x[None] for x in given), torch.is_grad_enabled())[0][0]


@torch.library.custom_op("chomsky_ladder::path", mutates_args=())
def _turn(
    q_RBHLK: Tensor, k_RBHLK: Tensor, w_RBHLK: Tensor, b_RBHL: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """All scores; and, if a backward pass is to come, how far keys lay along w, and the keys at the end of every span.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = (*map(together, (q_RBHLK, k_RBHLK, w_RBHLK)), b_RBHL)
    written, plan = _written(*given, keep), _Plan.of(q_RBHLK)
    with torch.cuda.device_of(q_RBHLK):
        forward_kernel[plan.grid](
            *given, *written, *(x.stride()[:4] for x in given), *plan.sizes, keep, num_warps=plan.warps
        )
    return written


@_turn.register_fake
def _written(
    q_RBHLK: Tensor, k_RBHLK: Tensor, w_RBHLK: Tensor, b_RBHL: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    (*heads, length, width), plan = q_RBHLK.shape, _Plan.of(q_RBHLK)
    kept = length if keep else 0
    ends = (*heads, plan.tiles, triton.cdiv(kept, SPAN), TILE, width)
    return (
        _room((*heads, length, length), q_RBHLK),
        _room((*heads, kept, kept), q_RBHLK),
        _room(ends, q_RBHLK),
    )


@torch.library.custom_op("chomsky_ladder::path_back", mutates_args=())
def _turn_back(
    q_RBHLK: Tensor, w_RBHLK: Tensor, b_RBHL: Tensor, along_RBHLL: Tensor, ends_RBHTNSK: Tensor, d_scores_RBHLL: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of q, w and b by tiles of keys, that of k whole."""
    given = (*map(together, (q_RBHLK, w_RBHLK)), b_RBHL)
    written, plan = _written_back(*given, along_RBHLL, ends_RBHTNSK, d_scores_RBHLL), _Plan.of(q_RBHLK)
    with torch.cuda.device_of(q_RBHLK):
        backward_kernel[plan.grid](
            *given, along_RBHLL, ends_RBHTNSK, d_scores_RBHLL.contiguous(), *written, *(x.stride()[:4] for x in given),
            *plan.sizes, num_warps=plan.warps,
        )  # fmt: skip
    return written


@_turn_back.register_fake
def _written_back(
    q_RBHLK: Tensor, w_RBHLK: Tensor, b_RBHL: Tensor, along_RBHLL: Tensor, ends_RBHTNSK: Tensor, d_scores_RBHLL: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tiles = _Plan.of(q_RBHLK).tiles
    d_q, d_w = (by_token(_room, (tiles, *q_RBHLK.shape), q_RBHLK) for _ in "qw")
    d_b = by_token(_room, (tiles, *b_RBHL.shape, 1), q_RBHLK)[..., 0]
    return d_q, by_token(_room, q_RBHLK.shape, q_RBHLK), d_w, d_b


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    q, _, w, b, _ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(q, w, b, *output[1:])


def _gradients(ctx: Any, d_scores: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    d_q, d_k, d_w, d_b = _turn_back(*ctx.saved_tensors, d_scores)
    d_q, d_w, d_b = (x[0] if len(x) == 1 else x.sum(0) for x in (d_q, d_w, d_b))
    return d_q, d_k, d_w, d_b, None


_turn.register_autograd(_gradients, setup_context=_keep)


@_turn.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, keep = inputs
    return unfold_replicas(_turn(*fold_replicas(tensors, in_dims[:-1], info.batch_size), keep), info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of the kernels, in their order
    tiles: int
    warps: int

    @classmethod
    def of(cls, q_RBHLK: Tensor) -> "_Plan":
        replicas, batch, heads, length, width = q_RBHLK.shape
        padded, tiles = triton.next_power_of_2(width), triton.cdiv(length, TILE)
        sizes = (batch, heads, length, width, padded, TILE, CHUNK, SPAN)
        return cls((replicas * batch * heads * tiles,), sizes, tiles, max(1, TILE * padded // PER_WARP))


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
