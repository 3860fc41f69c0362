"""`decayed_slots` (models/scans/slots.py) on a CPU in C: a state's rows are vectors of slots, whose decays are one.

Measured for B = 64, H = 4, L = 40, K = M = 16, forward and backward on one thread: 2.9 ms, where chunks take 24;
K = M = 64 takes 33 for 106.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """As `decayed_slots`; it stacks under vmap."""
    given = (x.to(state_BHKM.dtype).transpose(1, 2) for x in (q_BHLK, k_BHLK, s_BHLM, decay_BHLM))
    y_BLHM, last_BHKM = _Slots.apply(*given, state_BHKM)
    return y_BLHM.transpose(1, 2), last_BHKM


class _Slots(Function):
    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        q_BLHK, _, s_BLHM, _, state_BHKM = given = [x.contiguous() for x in inputs]
        y_BLHM, last_BHKM = torch.empty_like(s_BLHM), torch.empty_like(state_BHKM)
        kernel("slots_forward", s_BLHM.dtype)(*given, y_BLHM, last_BHKM, sizes=_sizes(q_BLHK, s_BLHM))
        return y_BLHM, last_BHKM

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLHM: Tensor | None, d_last_BHKM: Tensor | None) -> tuple[Tensor, ...]:
        q_BLHK, _, s_BLHM, _, state_BHKM = given = [x.contiguous() for x in ctx.saved_tensors]
        d_y_BLHM = torch.zeros_like(s_BLHM) if d_y_BLHM is None else d_y_BLHM.contiguous()
        d_BHKM = torch.zeros_like(state_BHKM)
        if d_last_BHKM is not None:
            d_BHKM += d_last_BHKM
        written = [*map(torch.empty_like, given[:4]), d_BHKM]
        kernel("slots_backward", s_BLHM.dtype)(*given, d_y_BLHM, *written, sizes=_sizes(q_BLHK, s_BLHM))
        return tuple(written)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Replicas are so many more rows."""
        return unfold_replicas(_Slots.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


def _sizes(q_BLHK: Tensor, s_BLHM: Tensor) -> object:
    return integers(*q_BLHK.shape, s_BLHM.shape[-1])


register(
    Kernel(
        name="native_slots",
        computes="decayed_slots",
        reference="chomsky_ladder.models.scans.slots.decayed_slots",
        call=native_slots,
        serves=("gated_slot_attention",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=13,
    )
)
