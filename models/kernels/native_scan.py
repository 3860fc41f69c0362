"""`scan_loop` (models/scans/selective.py) on a CPU in C: a row's states stay in the cache from its start to its end.

Nothing of the size of all states is ever written: the way back finds them again, from one of every `CHUNK`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 64


def native_selective_scan(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """All y and the last state, in the precision of u; it stacks under vmap."""
    y_1BLE, h_1BNE, _ = _Scan.apply(*(x[None] for x in (u_BLE, dt_BLE, A_NE, B_BLN, C_BLN, h_BNE)), signed)
    return y_1BLE[0], h_1BNE[0]


class _Scan(torch.autograd.Function):
    """With an axis R in front, of replicas that differ in A too: what vmap adds folds into it."""

    @staticmethod
    def forward(
        u_RBLE: Tensor, dt_RBLE: Tensor, A_RNE: Tensor, B_RBLN: Tensor, C_RBLN: Tensor, h_RBNE: Tensor, signed: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs = [x.contiguous() for x in (u_RBLE, dt_RBLE, A_RNE, B_RBLN, C_RBLN, h_RBNE)]
        replicas, batch, length, _ = u_RBLE.shape
        y_RBLE, last_RBNE = torch.empty_like(inputs[0]), torch.empty_like(inputs[-1])
        starts_RBKNE = u_RBLE.new_empty(replicas, batch, -(-length // CHUNK), *A_RNE.shape[1:])
        sizes = _sizes(u_RBLE, A_RNE, signed)
        kernel("scan_forward", u_RBLE.dtype)(*inputs, y_RBLE, last_RBNE, starts_RBKNE, sizes=sizes)
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
        *inputs, starts_RBKNE = (x.contiguous() for x in ctx.saved_tensors)
        u_RBLE, dt_RBLE, A_RNE, B_RBLN, C_RBLN = inputs
        d_y_RBLE = torch.zeros_like(u_RBLE) if d_y_RBLE is None else d_y_RBLE.contiguous()
        first_RBNE = torch.zeros_like(starts_RBKNE[:, :, 0], memory_format=torch.contiguous_format)
        if d_h_RBNE is not None:
            first_RBNE += d_h_RBNE
        d_u_RBLE, d_dt_RBLE, d_B_RBLN, d_C_RBLN = map(torch.empty_like, (u_RBLE, dt_RBLE, B_RBLN, C_RBLN))
        d_A_RNE = torch.zeros_like(A_RNE)
        written = (d_u_RBLE, d_dt_RBLE, d_A_RNE, d_B_RBLN, d_C_RBLN)
        sizes = _sizes(u_RBLE, A_RNE, ctx.signed)
        kernel("scan_backward", u_RBLE.dtype)(*inputs, starts_RBKNE, d_y_RBLE, first_RBNE, *written, sizes=sizes)
        return *written, first_RBNE, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        *tensors, signed = inputs
        outputs = _Scan.apply(*fold_replicas(tensors, in_dims[:-1], info.batch_size), signed)
        return unfold_replicas(outputs, info.batch_size)


def _sizes(u_RBLE: Tensor, A_RNE: Tensor, signed: bool) -> object:
    replicas, batch, length, channels = u_RBLE.shape
    return integers(replicas, batch, length, A_RNE.shape[1], channels, CHUNK, int(signed))


register(
    Kernel(
        name="native_scan",
        computes="scan_loop",
        reference="chomsky_ladder.models.scans.selective.scan_loop",
        call=native_selective_scan,
        serves=("mamba",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=20,
    )
)
