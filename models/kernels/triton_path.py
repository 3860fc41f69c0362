"""`attended` of PaTH (models/path_attention.py) with scores of our own Triton kernel (models/kernels/triton/path.py).

What it stands in for are chunks, each of a few products and a triangular system, and for each a softmax. It takes
heads of up to 64 channels; what follows the scores is left to the compiler.
"""

from torch import Tensor, autocast, float32, softmax

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 64  # channels of a head

_MODULE = f"{__package__}.triton.path"


def triton_path(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, w_BHLK: Tensor, beta_BHL: Tensor, total_BHL: Tensor | None
) -> Tensor:
    """As `attended`; it stacks under vmap."""
    scores_BHLL = member(_MODULE, "turned_scores")(q_BHLK, k_BHLK, w_BHLK, beta_BHL)
    if total_BHL is not None:
        scores_BHLL = scores_BHLL + (total_BHL[..., None] - total_BHL[..., None, :])
    with autocast(v_BHLK.device.type, enabled=False):
        return softmax(scores_BHLL * q_BHLK.shape[-1] ** -0.5, -1) @ v_BHLK


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return q_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="triton_path",
        computes="path_attended",
        reference="chomsky_ladder.models.path_attention.attended",
        call=triton_path,
        serves=("path_attention",),
        dtypes=(float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=54,
    )
)
