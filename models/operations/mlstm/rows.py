"""The whole mLSTM layer over short inputs on a CPU, from its norm's output to what it adds to the stream.

It computes the same as models/xlstm.py's layer with `mlstm_parallel` (reference.py), whose speed on a CPU is
limited by passes over memory. With a hand-written backward pass, in pieces of rows that stay in the cache, forward and
backward of [256, 39, 64] with one head take 75 ms on one core, through autograd 200. Under autocast the projections
(projections.py) are products in its precision. Everything between them stays in fp32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv1d, layer_norm, linear, logsigmoid, pad, silu

from chomsky_ladder.models.operations.mlstm.projections import (
    RowWeights,
    for_products,
    project_down,
    project_down_back,
    project_up,
    project_up_back,
    sum_down,
)
from chomsky_ladder.models.operations.mlstm.reference import EPS, LARGEST, mlstm_parallel
from chomsky_ladder.models.scans.convolution import convolve, convolve_back
from chomsky_ladder.models.scans.function import Function

BLOCK = 4  # channels of a block of the block-diagonal maps
WIDE_BLOCK = 32  # eight blocks with zeros between, which torch multiplies three times as fast
NORM_EPS = 1e-5
LOG2_E = math.log2(math.e)


class Kept(NamedTuple):
    """The tensors of some rows that the backward pass reads."""

    wide_XBLE: Tensor
    square_XHBLL: Tensor
    small_XBHL: Tensor

    def rows(self, at: slice) -> "Kept":
        return Kept(self.wide_XBLE[:, at], self.square_XHBLL[:, :, at], self.small_XBHL[:, at])


@dataclass(frozen=True)
class Form:
    """A way to compute a piece of rows, forward and backward."""

    forward: Callable[..., None]
    back: Callable[..., None]
    prepare: Callable[[Tensor], tuple[Tensor, ...]]  # from the input to the last arguments of both
    cached: int  # elements of a piece's [B, L, E]: more leave the cache, fewer cost more calls
    squares: int  # kept, [H, B, L, L]
    small: int  # kept, [B, H, L]


def mlstm_layer(x_BLD: Tensor, weights: RowWeights, *, heads: int) -> Tensor:
    """The definition: the layer of models/xlstm.py over a whole string, from what its norm gives to what it adds."""
    u_BLE, z_BLE = linear(x_BLD, weights.up_XD).chunk(2, -1)
    taps, inner = len(weights.conv_WE), u_BLE.shape[-1]
    conv_E1W, padded_BEX = weights.conv_WE.mT[:, None], pad(u_BLE.mT, (taps - 1, 0))
    c_BLE = silu(conv1d(padded_BEX, conv_E1W, weights.conv_bias_E, groups=inner).mT)
    q_BLE, v_BLE = (
        (x_BLE.unflatten(-1, (-1, 1, BLOCK)) * weight_IE.mT.unflatten(0, (-1, BLOCK))).sum(-1).flatten(-2)
        for x_BLE, weight_IE in ((c_BLE, weights.query_key_IE), (u_BLE, weights.value_IE))
    )
    gates_BLG = linear(c_BLE, weights.gates_c_GE, weights.gates_bias_G) + linear(u_BLE, weights.gates_u_GE)
    i_BHL, f_BHL = gates_BLG.mT.chunk(2, 1)
    q_BHLK, k_BHLK, v_BHLK = (x_BLE.unflatten(-1, (heads, -1)).transpose(1, 2) for x_BLE in (q_BLE, c_BLE, v_BLE))
    h_BLHK = mlstm_parallel(q_BHLK, k_BHLK, v_BHLK, i_BHL, f_BHL).transpose(1, 2)
    h_BLE = layer_norm(h_BLHK, h_BLHK.shape[-1:], eps=NORM_EPS).flatten(-2) * weights.norm_E
    return linear((h_BLE + weights.skip_E * c_BLE) * silu(z_BLE), weights.down_DE)


def layer_by_rows(x_BLD: Tensor, weights: RowWeights, *, heads: int, form: Form) -> Tensor:
    """Compute `mlstm_layer` a piece of rows at a time; it stacks under vmap."""
    device = x_BLD.device.type
    is_mixed = x_BLD.dtype == torch.float32 and torch.is_autocast_enabled(device)
    products = torch.get_autocast_dtype(device) if is_mixed else x_BLD.dtype
    return _Rows.apply(x_BLD, *weights, heads, form, products)[0]


class _Rows(Function):
    """The layer by pieces of rows. Six tensors [B, L, E] are kept; the rest is cheaper to recompute than to fetch."""

    @staticmethod
    def forward(x_BLD: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        *weights, heads, form, products = rest
        weights, x_BLD = for_products(weights, products), x_BLD.contiguous()
        batch, length, _ = x_BLD.shape
        inner = weights.skip_E.shape[0]
        y_BLD = torch.empty_like(x_BLD)
        kept = Kept(
            wide_XBLE=x_BLD.new_empty(6, batch, length, inner),
            square_XHBLL=x_BLD.new_empty(form.squares, heads, batch, length, length),
            small_XBHL=x_BLD.new_empty(form.small, batch, heads, length),
        )
        prepared = form.prepare(x_BLD)
        with torch.autocast(x_BLD.device.type, enabled=False):
            for at in _pieces(x_BLD, inner, form):
                form.forward(x_BLD[at], y_BLD[at], weights, kept.rows(at), *prepared)
        return y_BLD, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        *tensors, _, ctx.form, ctx.products = inputs
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy_BLD: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        x_BLD, *rest = ctx.saved_tensors
        count = len(RowWeights._fields)
        weights, kept = for_products(rest[:count], ctx.products), Kept(*rest[count:])
        x_BLD, gy_BLD = x_BLD.contiguous(), gy_BLD.contiguous()
        sums = RowWeights(*(x_BLD.new_zeros(weight.shape) for weight in weights))
        gx_BLD = torch.empty_like(x_BLD)
        prepared = ctx.form.prepare(x_BLD)
        with torch.autocast(x_BLD.device.type, enabled=False):
            for at in _pieces(x_BLD, weights.skip_E.shape[0], ctx.form):
                ctx.form.back(gy_BLD[at], x_BLD[at], gx_BLD[at], weights, sums, kept.rows(at), *prepared)
        return gx_BLD, *sums, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        """Process replicas one after the other, since each fills the cache alone."""
        columns = (
            [x] * info.batch_size if dim is None else x.unbind(dim) for x, dim in zip(inputs, in_dims, strict=True)
        )
        outputs = [_Rows.apply(*replica) for replica in zip(*columns, strict=True)]
        return (torch.stack([output[0] for output in outputs]), *outputs[0][1:]), (0, None, None, None)


def _pieces(x_BLD: Tensor, inner: int, form: Form) -> list[slice]:
    batch, length, _ = x_BLD.shape
    rows = max(1, form.cached // (length * inner))
    return [slice(start, start + rows) for start in range(0, batch, rows)]


def _between(x_BLD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums over s < i <= t for all t and s as a matrix [L, L * L], and the added mask: -inf where s > t."""
    at_L = torch.arange(x_BLD.shape[1], device=x_BLD.device)
    i_L11, t_L1 = at_L[:, None, None], at_L[:, None]
    between_LX = ((at_L < i_L11) & (i_L11 <= t_L1)).flatten(1).to(x_BLD.dtype)
    never_X = torch.where(at_L > t_L1, -torch.inf, 0.0).flatten().to(x_BLD.dtype)
    return between_LX, never_X


def _forward_rows(
    x_BLD: Tensor,
    y_BLD: Tensor,
    weights: RowWeights,
    kept: Kept,
    between_LX: Tensor,
    never_X: Tensor,
) -> None:
    """Fill in y and what is kept for `_back_rows`."""
    wide_XBLE, square_XHBLL, small_XBHL = kept
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = wide_XBLE
    c_BLE = torch.empty_like(u_BLE)
    u_TE, c_TE = u_BLE.flatten(0, 1), c_BLE.flatten(0, 1)
    project_up(x_BLD, weights, u_BLE, z_BLE)
    convolve(u_BLE, weights.conv_WE, weights.conv_bias_E, p_BLE)
    torch.ops.aten.silu.out(p_BLE, out=c_BLE)
    torch.bmm(grouped(c_BLE), together(weights.query_key_IE), out=grouped(q_BLE))
    torch.bmm(grouped(u_BLE), together(weights.value_IE), out=grouped(v_BLE))

    gates_TG = torch.addmm(weights.gates_bias_G, c_TE, weights.gates_c_GE.mT).addmm_(u_TE, weights.gates_u_GE.mT)
    i_BHL, f_BHL = gates_TG.unflatten(0, x_BLD.shape[:2]).mT.chunk(2, dim=1)
    slope_BHL, sign_BHL, share_BHL, top_BHL, rstd_BHL = small_XBHL
    torch.sigmoid(-f_BHL, out=slope_BHL)
    log_f_BHL = logsigmoid(f_BHL) * LOG2_E  # log D and m are in base 2: exp2 is faster on a CPU
    log_D_TX = torch.addmm(never_X, log_f_BHL.flatten(0, 1), between_LX)
    log_D_BHLL = log_D_TX.view(*i_BHL.shape, -1).add_((i_BHL * LOG2_E)[..., None, :])
    m_BHL, top = log_D_BHLL.max(-1)
    top_BHL.copy_(top)  # an index, which fits in fp32
    D_BHLL = log_D_BHLL.sub_(m_BHL[..., None]).exp2_()

    P_BHLL, scaled_D_BHLL = square_XHBLL.transpose(1, 2)
    for q, k, P in zip(
        in_heads(q_BLE, P_BHLL.shape[1]), in_heads(c_BLE, P_BHLL.shape[1]), P_BHLL.unbind(1), strict=True
    ):
        torch.bmm(q, k.mT, out=P)
    P_BHLL.mul_(D_BHLL)
    n_BHL = P_BHLL.sum(-1)
    floor_BHL = torch.exp2(torch.clamp(-m_BHL, max=LARGEST * LOG2_E))
    above_BHL = n_BHL.abs() > floor_BHL
    inverse_BHL = 1 / (torch.maximum(n_BHL.abs(), floor_BHL) + EPS)
    torch.mul(n_BHL.sign(), above_BHL, out=sign_BHL)
    # m divides y and n alike: h depends on it through eps, or through a floor at its largest, where h rounds to 0.
    torch.mul(inverse_BHL, EPS, out=share_BHL)
    P_BHLL.mul_(inverse_BHL[..., None])
    torch.mul(D_BHLL, inverse_BHL[..., None], out=scaled_D_BHLL)
    for P, v, h in zip(
        P_BHLL.unbind(1), in_heads(v_BLE, P_BHLL.shape[1]), in_heads(h_BLE, P_BHLL.shape[1]), strict=True
    ):
        multiply(P, v, h)

    h_BLHV = h_BLE.view(*x_BLD.shape[:2], P_BHLL.shape[1], -1)
    rstd_BLH1 = rstd_BHL.mT[..., None]
    h_BLHV.sub_(h_BLHV.mean(-1, keepdim=True))
    mean_square = torch.linalg.vector_norm(h_BLHV, dim=-1, keepdim=True).square_() / h_BLHV.shape[-1]
    rstd_BLH1.copy_(mean_square.add_(NORM_EPS).rsqrt_())
    h_BLHV.mul_(rstd_BLH1)
    a_BLE = c_BLE.mul_(weights.skip_E).addcmul_(h_BLE, weights.norm_E)
    project_down(a_BLE.mul_(silu(z_BLE)), weights, y_BLD)


def _back_rows(
    gy_BLD: Tensor,
    x_BLD: Tensor,
    gx_BLD: Tensor,
    weights: RowWeights,
    sums: RowWeights,
    kept: Kept,
    between_LX: Tensor,
    _: Tensor,
) -> None:
    """Return the gradient of x, and add these rows' part to those of the weights."""
    wide_XBLE, square_XHBLL, small_XBHL = kept
    u_BLE, p_BLE, z_BLE, q_BLE, v_BLE, h_BLE = wide_XBLE
    slope_BHL, sign_BHL, share_BHL, top_BHL, rstd_BHL = small_XBHL
    P_BHLL, scaled_D_BHLL = square_XHBLL.transpose(1, 2)
    room_BLE, a_BLE, g_BLE, c_BLE, gh_BLE, gq_BLE = torch.empty_like(wide_XBLE)
    gz_BLE, gc_BLE, gu_BLE = a_BLE, g_BLE, gh_BLE  # reuse buffers that are no longer needed, to stay in the cache

    torch.ops.aten.silu.out(p_BLE, out=c_BLE)
    torch.ops.aten.silu.out(z_BLE, out=g_BLE)
    torch.mul(c_BLE, weights.skip_E, out=a_BLE).addcmul_(h_BLE, weights.norm_E)
    sum_down(gy_BLD, torch.mul(a_BLE, g_BLE, out=room_BLE), weights, sums)
    project_down_back(gy_BLD, weights, room_BLE)
    torch.ops.aten.silu_backward.grad_input(a_BLE.mul_(room_BLE), z_BLE, grad_input=gz_BLE)
    ga_BLE = room_BLE.mul_(g_BLE)
    torch.mul(ga_BLE, weights.skip_E, out=gc_BLE)
    torch.mul(ga_BLE, weights.norm_E, out=gh_BLE)
    sums.skip_E.add_(torch.mul(ga_BLE, c_BLE, out=gq_BLE).sum((0, 1)))
    sums.norm_E.add_(ga_BLE.mul_(h_BLE).sum((0, 1)))

    gh_BLHV, h_BLHV, room_BLHV = (y.view(*y.shape[:2], P_BHLL.shape[1], -1) for y in (gh_BLE, h_BLE, room_BLE))
    along_BLH1 = torch.mul(gh_BLHV, h_BLHV, out=room_BLHV).mean(-1, keepdim=True)
    gh_BLHV.sub_(gh_BLHV.mean(-1, keepdim=True)).addcmul_(h_BLHV, along_BLH1, value=-1).mul_(rstd_BHL.mT[..., None])

    gP_BHLL, gv_BLE = torch.empty_like(square_XHBLL[0]).transpose(0, 1), room_BLE
    heads = [in_heads(y, P_BHLL.shape[1]) for y in (gh_BLE, v_BLE, gv_BLE)]
    for gh, v, gv, P, gP in zip(*heads, P_BHLL.unbind(1), gP_BHLL.unbind(1), strict=True):
        torch.bmm(gh, v.mT, out=gP)
        multiply(P.mT, gh, gv)
    total_BHL = (gP_BHLL * P_BHLL).sum(-1)
    gP_BHLL.sub_((total_BHL * sign_BHL)[..., None])
    g_log_D_BHLL = torch.mul(P_BHLL, gP_BHLL, out=P_BHLL.new_empty(P_BHLL.shape))
    g_log_D_BHLL.scatter_add_(-1, top_BHL.long()[..., None], -(total_BHL * share_BHL)[..., None])
    gi_BHL = g_log_D_BHLL.sum(-2)
    gf_BHL = (g_log_D_BHLL.flatten(0, 1).flatten(1) @ between_LX.mT).view_as(slope_BHL).mul_(slope_BHL)
    gS_BHLL = gP_BHLL.mul_(scaled_D_BHLL)
    heads = [in_heads(y, P_BHLL.shape[1]) for y in (q_BLE, c_BLE, gq_BLE, gc_BLE)]
    for q, c, gq, gc, gS in zip(*heads, gS_BHLL.unbind(1), strict=True):
        multiply(gS, c, gq)
        multiply(gS.mT, q, gc, add=True)

    u_NTJ, gu_NTJ, gv_NTJ = map(grouped, (u_BLE, gu_BLE, gv_BLE))
    c_NTJ, gc_NTJ, gq_NTJ = map(grouped, (c_BLE, gc_BLE, gq_BLE))
    torch.bmm(gv_NTJ, together(weights.value_IE).mT, out=gu_NTJ)
    gc_NTJ.baddbmm_(gq_NTJ, together(weights.query_key_IE).mT)
    sums.value_IE.add_(apart(u_NTJ.mT @ gv_NTJ))
    sums.query_key_IE.add_(apart(c_NTJ.mT @ gq_NTJ))
    u_TE, c_TE, gu_TE, gc_TE = (y.flatten(0, 1) for y in (u_BLE, c_BLE, gu_BLE, gc_BLE))
    ggates_TG = torch.cat([gi_BHL, gf_BHL], 1).mT.flatten(0, 1)
    gc_TE.addmm_(ggates_TG, weights.gates_c_GE)
    gu_TE.addmm_(ggates_TG, weights.gates_u_GE)
    sums.gates_c_GE.addmm_(ggates_TG.mT, c_TE)
    sums.gates_u_GE.addmm_(ggates_TG.mT, u_TE)
    sums.gates_bias_G.add_(ggates_TG.sum(0))

    gp_BLE = torch.ops.aten.silu_backward.grad_input(gc_BLE, p_BLE, grad_input=gq_BLE)
    gconv_WE, gbias_E = convolve_back(gp_BLE, u_BLE, weights.conv_WE, gu_BLE, room_BLE)
    sums.conv_WE.add_(gconv_WE)
    sums.conv_bias_E.add_(gbias_E)
    project_up_back(gu_BLE, gz_BLE, x_BLD, weights, sums, gx_BLD)


def in_heads(x_BLE: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Return each head's channels, [B, L, K]. As separate products they need no copy."""
    return x_BLE.view(*x_BLE.shape[:2], heads, -1).unbind(2)


def multiply(one: Tensor, other: Tensor, out: Tensor, *, add: bool = False) -> None:
    """Compute a product for each row. A copy replaces an output with gaps, which costs torch a call for each row."""
    if out.is_contiguous():
        out.baddbmm_(one, other, beta=float(add))
    elif add:
        out += torch.bmm(one, other)
    else:
        out.copy_(torch.bmm(one, other))


def grouped(x_BLE: Tensor) -> Tensor:
    """Return blocks of channels first, [N, B L, 32]."""
    return x_BLE.view(-1, x_BLE.shape[-1] // WIDE_BLOCK, WIDE_BLOCK).transpose(0, 1)


def together(weight_IE: Tensor) -> Tensor:
    """Return blocks of 4 as blocks of 32 with zeros between."""
    blocks_NMIJ = weight_IE.view(BLOCK, -1, WIDE_BLOCK // BLOCK, BLOCK).permute(1, 2, 0, 3)
    apart_MM = torch.eye(WIDE_BLOCK // BLOCK, dtype=weight_IE.dtype, device=weight_IE.device)
    return (blocks_NMIJ[:, :, :, None] * apart_MM[:, None, :, None]).flatten(3).flatten(1, 2)


def apart(wide_NJJ: Tensor) -> Tensor:
    """Return the content of the blocks of 4 on the diagonal."""
    count = WIDE_BLOCK // BLOCK
    return wide_NJJ.view(-1, count, BLOCK, count, BLOCK).diagonal(dim1=1, dim2=3).permute(1, 0, 3, 2).reshape(BLOCK, -1)


PLAIN = Form(
    forward=_forward_rows,
    back=_back_rows,
    prepare=_between,
    cached=2**18,  # with 2^16 99 ms for 75
    squares=2,
    small=5,
)
