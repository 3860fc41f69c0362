"""`gated_scan` (models/scans/selective.py) on a CPU in C: four states of sixteen channels stay in registers.

Nothing of the size of all states is ever written: the way back finds them again, from one of every `CHUNK`.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, in_rows, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 32
LOG2_E = math.log2(math.e)


def native_gated_scan(
    v_BLE: Tensor,
    dt_BLE: Tensor,
    bias_E: Tensor,
    A_NE: Tensor,
    B_BLN: Tensor,
    C_BLN: Tensor,
    D_E: Tensor,
    z_BLE: Tensor,
    h_BNE: Tensor,
    signed: bool,
) -> tuple[Tensor, Tensor]:
    """As `gated_scan`, in the precision of v, below which none may be; it stacks under vmap."""
    given = (v_BLE, dt_BLE, bias_E, A_NE, B_BLN, C_BLN, D_E, z_BLE, h_BNE)
    y_1BLE, h_1BNE, _ = _Scan.apply(*(x.to(v_BLE.dtype)[None] for x in given), signed)
    return y_1BLE.squeeze(0), h_1BNE.squeeze(0)


class _Scan(Function):
    """With an axis R in front, of replicas that differ in their weights too: what vmap adds folds into it."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        *tensors, first_RBNE, signed = inputs
        given, sizes = _for_c(tensors, signed)
        v_RBLE, A_RNE = given[0], given[3]
        replicas, batch, length, _ = v_RBLE.shape
        starts_RBKNE = v_RBLE.new_empty(replicas, batch, -(-length // CHUNK), *A_RNE.shape[1:])
        first_RBNE = first_RBNE.contiguous()
        y_RBLE, last_RBNE = torch.empty_like(v_RBLE), torch.empty_like(first_RBNE)
        kernel("scan_forward", v_RBLE.dtype)(*given, first_RBNE, y_RBLE, last_RBNE, starts_RBKNE, sizes=sizes)
        return y_RBLE, last_RBNE, starts_RBKNE

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
        *tensors, _, ctx.signed = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_RBLE: Tensor | None, d_h_RBNE: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        *tensors, starts_RBKNE = ctx.saved_tensors
        given, sizes = _for_c(tensors, ctx.signed)
        d_y_RBLE = torch.zeros_like(given[0]) if d_y_RBLE is None else d_y_RBLE.contiguous()
        first_RBNE = torch.zeros_like(starts_RBKNE[:, :, 0], memory_format=torch.contiguous_format)
        if d_h_RBNE is not None:
            first_RBNE += d_h_RBNE
        added_to = {2, 3, 6}  # bias, A and D
        written = [(torch.zeros if i in added_to else torch.empty)(x.shape, dtype=x.dtype) for i, x in enumerate(given)]
        act = kernel("scan_backward", d_y_RBLE.dtype)
        act(*given, starts_RBKNE.contiguous(), d_y_RBLE, first_RBNE, *written, sizes=sizes)
        return *written, first_RBNE, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        *tensors, signed = inputs
        outputs = _Scan.apply(*fold_replicas(tensors, in_dims[:-1], info.batch_size), signed)
        return unfold_replicas(outputs, info.batch_size)


def _for_c(tensors: list[Tensor], signed: bool) -> tuple[list[Tensor], object]:
    v_RBLE, dt_RBLE, bias_RE, A_RNE, B_RBLN, C_RBLN, D_RE, z_RBLE = tensors
    (B_RBLN, B_apart), (C_RBLN, C_apart), (z_RBLE, z_apart) = (in_rows(x) for x in (B_RBLN, C_RBLN, z_RBLE))
    whole = [x.contiguous() for x in (v_RBLE, dt_RBLE, bias_RE, A_RNE * LOG2_E)]
    replicas, batch, length, channels = v_RBLE.shape
    sizes = (replicas, batch, length, A_RNE.shape[1], channels, CHUNK, int(signed), z_apart, B_apart, C_apart)
    return [*whole, B_RBLN, C_RBLN, D_RE.contiguous(), z_RBLE], integers(*sizes)


register(
    Kernel(
        name="native_scan",
        computes="gated_scan",
        reference="chomsky_ladder.models.scans.selective.gated_scan",
        call=native_gated_scan,
        serves=("mamba",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=20,
    )
)
