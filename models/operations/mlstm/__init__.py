"""The mLSTM's matrix memory, of a string from its start and from a state; and the whole layer around it.

    h_BHLV, state = by_exponential_gates(q_BHLK, k_BHLK, v_BHLV, i_BHL, f_BHL, state, ctx)

A string from its start has three operations, each inside the one before: `mlstm_rows` is the whole layer on a CPU,
`mlstm_heads` the maps to q, k and v with the memory, `mlstm_parallel` the memory alone. All kernels are by hand: rows
go through the cache in pieces with torch's products between the loops of C, and gradients of the heads' maps are sums
over strings, which no declaration has.

In Triton nothing that is of pairs of tokens leaves the chip. In plain torch such products and maps, written and read
again in fp32, are more than half of what a step of xLSTM[1:0] moves. Longer strings go token by token, as the delta
rule.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import cuda_module
from chomsky_ladder.models.kernels.native import untraced
from chomsky_ladder.models.operations.delta import delta_loop
from chomsky_ladder.models.operations.delta.rules import fastest
from chomsky_ladder.models.operations.mlstm import mlstm_kernels_package, reference
from chomsky_ladder.models.operations.mlstm.in_c import NATIVE
from chomsky_ladder.models.operations.mlstm.reference import SHORT, Carried, mlstm_chunks, mlstm_tokens
from chomsky_ladder.models.operations.mlstm.rows import PLAIN, layer_by_rows, mlstm_layer
from chomsky_ladder.models.operations.operation import Operation

MIDDLING = 1024  # tokens; up to here whole squares take less time than chunks: a third of it at 256, half at 512


def _first(x: Tensor, *others: object, **options: object) -> Tensor:
    return x


def _in_c_takes(x_BLD: Tensor, ctx: Context) -> bool:
    return untraced(x_BLD, ctx) and x_BLD.shape[1] <= MIDDLING


def _is_short(x_BLD: Tensor, ctx: Context) -> bool:
    return x_BLD.shape[1] <= SHORT


mlstm_parallel = Operation(reference.mlstm_parallel, serves=("xlstm", "xlstm_large"), shown=_first)
mlstm_parallel.register(
    mlstm_kernels_package.mlstm_scan,
    name="mlstm_kernels",
    rank=36,
    device="cuda",
    dtypes=(torch.float32, torch.bfloat16),
    missing=cuda_module(mlstm_kernels_package.MODULE, needs="mLSTMBackend"),
    stacks=False,
    when="named",
)

mlstm_heads = Operation(reference.mlstm_heads, serves=("xlstm",), shown=_first)
mlstm_heads.in_triton(
    f"{__name__}.gpu", name="triton_mlstm", rank=41, takes=_is_short, dtypes=(torch.float32, torch.bfloat16)
)

mlstm_rows = Operation(mlstm_layer, name="mlstm_rows", serves=("xlstm",), shown=_first)
mlstm_rows.register(
    partial(layer_by_rows, form=PLAIN), name="fused_mlstm", rank=5, device="cpu", takes=_is_short, when="always"
)
mlstm_rows.in_c(partial(layer_by_rows, form=NATIVE), name="native_mlstm", rank=22, takes=_in_c_takes)


class Largest(NamedTuple):
    """The largest part of a layer that one function computes of a string from its start; at most one is there."""

    rows: Callable[..., Tensor] | None = None
    heads: Callable[..., Tensor] | None = None
    memory: Callable[..., Tensor] | None = None


def largest_part(x_BLD: Tensor, ctx: Context, *, has_whole_blocks: bool, in_one_precision: bool) -> Largest:
    """Choose among kernels for a layer's input; none of the three: the string goes through chunks or tokens.

    has_whole_blocks: heads of whole blocks of 4, without which a kernel computes the memory alone
    in_one_precision: x in that of the weights, as rows want it
    """
    memory = mlstm_parallel.chosen(x_BLD, ctx)
    if memory is None and has_whole_blocks:
        if heads := mlstm_heads.chosen(x_BLD, ctx):
            return Largest(heads=heads)
        if in_one_precision and (rows := mlstm_rows.chosen(x_BLD, ctx)):
            return Largest(rows=rows)
    return Largest(memory=memory or (mlstm_parallel.reference if x_BLD.shape[1] <= SHORT else None))


def memory_at_once(x_BLD: Tensor, keys_BHLK: Tensor, ctx: Context) -> Callable[..., Tensor] | None:
    """Choose what computes the memory of a whole string; None: chunks or tokens are faster."""
    kernel = mlstm_parallel.chosen(x_BLD, ctx)
    if kernel is None and (x_BLD.shape[1] > SHORT or _has_fast_tokens(keys_BHLK, ctx)):
        return None
    return kernel or mlstm_parallel.reference


def by_exponential_gates(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor, state: Carried, ctx: Context
) -> tuple[Tensor, Carried]:
    """Return all h [B, H, L, V] and the state behind them: token by token where a kernel does that, or in chunks."""
    loop = fastest(delta_loop, q_BHLK, ctx)
    if loop is None:
        return mlstm_chunks(q_BHLK, k_BHLK, v_BHLV, i_BHL, f_BHL, state)
    return mlstm_tokens(loop, q_BHLK, k_BHLK, v_BHLV, i_BHL, f_BHL, state)


def _has_fast_tokens(k_BHLK: Tensor, ctx: Context) -> bool:
    """Say whether tokens one by one are faster than the squares of a short string: in C they are, even at eight."""
    return k_BHLK.device.type == "cpu" and fastest(delta_loop, k_BHLK, ctx) is not None
