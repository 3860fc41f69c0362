"""The chunkwise mLSTM of xLSTM's authors, in Triton, for any length. By name alone: its fp32 products are TF32."""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

_MODULE = "mlstm_kernels.torch.backend_module"


def mlstm_scan(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor) -> Tensor:
    """`mlstm_parallel`, through the chunkwise Triton kernels of mlstm_kernels; k is divided by sqrt(K)."""
    settings = member(_MODULE, "mLSTMBackendConfig")(
        chunkwise_kernel="chunkwise--triton_xl_chunk", mode="train_with_padding", return_last_states=False
    )
    unscaled_BHLK = k_BHLK * k_BHLK.shape[-1] ** 0.5  # the kernel divides
    return member(_MODULE, "mLSTMBackend")(settings)(q=q_BHLK, k=unscaled_BHLK, v=v_BHLV, i=i_BHL, f=f_BHL)


register(
    Kernel(
        name="mlstm_kernels",
        computes="mlstm_parallel",
        reference="chomsky_ladder.models.scans.mlstm.mlstm_parallel",
        call=mlstm_scan,
        serves=("xlstm",),
        dtypes=(torch.float32, torch.bfloat16),
        missing=cuda_module(_MODULE, needs="mLSTMBackend"),
        when="named",
        rank=36,
    )
)
