"""`turing_turn` through our own Triton kernel (models/kernels/triton/turing.py), for memories of up to 8,192 numbers.

What it stands in for are some hundred kernels a turn, and as many on the way back.
"""

from torch import Tensor, float32

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 8192  # numbers of a memory, its axes padded to powers of two

_MODULE = f"{__package__}.triton.turing"


def triton_turing(
    asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, *, shifts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`turing_turn` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_turing")(asked_BX, weight_BHN, memory_BWN, shifts=shifts)


def takes(memory_BWN: Tensor, ctx: Context) -> bool:
    width, rows = (1 << (size - 1).bit_length() for size in memory_BWN.shape[-2:])
    return width * rows <= LARGEST


register(
    Kernel(
        name="triton_turing",
        computes="turing_turn",
        reference="chomsky_ladder.models.scans.turing_memory.turing_turn",
        call=triton_turing,
        serves=("ntm",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=50,
    )
)
