"""`stack_machine` through our own Triton kernel (models/kernels/triton/moving_machine.py): all tokens in one launch.

What it stands in for are some fifty launches a token, and as many on the way back.
"""

from torch import Tensor, float32

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 8192  # numbers of one stack or tape, its axes padded to powers of two

_MODULE = f"{__package__}.triton.moving_machine"


def triton_stack_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...], *, core: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`stack_machine` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_stack_machine")(gates_BLG, weights, state, core=core)


def takes(memory_BHNW: Tensor, ctx: Context) -> bool:
    cells, cell = (1 << (size - 1).bit_length() for size in memory_BHNW.shape[-2:])
    return cells * cell <= LARGEST


register(
    Kernel(
        name="triton_stack_machine",
        computes="stack_machine",
        reference="chomsky_ladder.models.scans.moving_machines.stack_machine",
        call=triton_stack_machine,
        serves=("stack_rnn",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=55,
    )
)
