"""`tape_machine` through our own Triton kernel (models/kernels/triton/moving_machine.py): all tokens in one launch.

What it stands in for are some eighty launches a token, and as many on the way back.
"""

from torch import Tensor, float32

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.triton_stack_machine import takes

_MODULE = f"{__package__}.triton.moving_machine"


def triton_tape_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, ...],
    state: tuple[Tensor, ...],
    *,
    core: str,
    jump: int | Tensor,
    grows: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`tape_machine` in fp32 through our own Triton kernel, which stacks."""
    call = member(_MODULE, "triton_tape_machine")
    return call(gates_BLG, weights, state, core=core, jump=jump, grows=grows)


register(
    Kernel(
        name="triton_tape_machine",
        computes="tape_machine",
        reference="chomsky_ladder.models.scans.moving_machines.tape_machine",
        call=triton_tape_machine,
        serves=("tape_rnn",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=56,
    )
)
