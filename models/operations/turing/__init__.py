"""A turn of a Turing machine's memory (NTM), found by content and by shifts; and all turns of the machine at once.

    weight_BHN, memory_BWN, read_BHW = turing_turn(ctx, asked_BX, weight_BHN, memory_BWN, shifts=3)

In torch a turn is some forty passes over the memories of all strings, and as many in the backward pass. In C and Triton
a memory stays in the nearest cache or in registers, and the backward pass takes the turn again. `turing_machine` has
kernels alone: one launch for all tokens, in place of ten a token with a kernel for the turn and 200 without.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.turing.reference import turing_machine as machine
from chomsky_ladder.models.operations.turing.reference import turing_turn as plain

LARGEST = 8192  # numbers of a memory in Triton, its axes padded to powers of two

_TURN = Loops(
    "turing",
    "asked: B X, weight weights: B H N, memory memories: B W N, reads: B readers W",
    forward="asked weight memory -> weights memories reads",
    backward="d_weights d_memories d_reads asked weight memory -> d_asked d_weight d_memory",
    sizes="B readers N W shifts",
    settings="shifts",
    derived=lambda sizes: {"readers": sizes["H"] // 2},
)


def _in_c(asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, *, shifts: int) -> tuple[Tensor, Tensor, Tensor]:
    """C version of `turing_turn`."""
    weight_BHN, memory_BWN, read_BHW = _TURN(asked_BX, weight_BHN, memory_BWN, shifts)
    return weight_BHN, memory_BWN, read_BHW


def _takes(memory_BWN: Tensor, ctx: Context) -> bool:
    width, rows = (1 << (size - 1).bit_length() for size in memory_BWN.shape[-2:])
    return width * rows <= LARGEST


turing_turn = Operation(plain, serves=("ntm",), shown=lambda asked, weight, memory, *, shifts: memory)
turing_turn.in_c(_in_c, name="native_turing", rank=8)
turing_turn.in_triton(f"{__name__}.gpu", name="triton_turing", rank=50, takes=_takes)

turing_machine = Operation(
    machine,
    serves=("ntm",),
    shown=lambda gates, weights, state, *, shifts, core="lstm": state[-3] if core == "lstm" else None,
    calls={"turn": turing_turn},
)
turing_machine.in_triton(f"{__name__}.gpu_machine", name="triton_turing_machine", rank=52, takes=_takes)
