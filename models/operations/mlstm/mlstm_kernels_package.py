"""The chunkwise mLSTM of xLSTM's authors, in Triton, for any length. By name alone: its fp32 products are TF32.

Its gradients leave out what goes through the denominator max(|n . q|, ..), which only scales what a head reads: behind
the norm of each head, as in xLSTM's block, that is 0.
"""

import warnings
from typing import Any

from torch import Tensor

from chomsky_ladder.models.kernels.kernel import member

MODULE = "mlstm_kernels.torch.backend_module"
_made: list[Any] = []  # no lru_cache: torch.compile looks through one


def mlstm_scan(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor) -> Tensor:
    """`mlstm_parallel`, through the chunkwise Triton kernels of mlstm_kernels; k is divided by sqrt(K)."""
    if not _made:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports now, about others
            _made.append(_backend())
    unscaled_BHLK = k_BHLK * k_BHLK.shape[-1] ** 0.5  # the kernel divides
    return _made[0](q=q_BHLK, k=unscaled_BHLK, v=v_BHLV, i=i_BHL, f=f_BHL)


def _backend() -> Any:
    settings = member(MODULE, "mLSTMBackendConfig")(
        chunkwise_kernel="chunkwise--triton_xl_chunk", mode="train_with_padding", return_last_states=False
    )
    return member(MODULE, "mLSTMBackend")(settings)
