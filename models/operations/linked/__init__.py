"""A turn of DNC's memory, whose links know in what order its rows were written; and all turns of the machine at once.

    *memory, read_BHW = linked_turn(ctx, asked_BX, memory_BWN, usage_BN, write_BN, precedence_BN, link_BNN, weight_BHN)

In torch a turn is some sixty passes over the memories and links of all strings, and as many in the backward pass. In C
and Triton they stay in the nearest cache or in registers, and the backward pass takes the turn again. `linked_machine`
has kernels alone: one launch for all tokens, in place of ten a token with a kernel for the turn and 400 without.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.linked.reference import linked_machine as machine
from chomsky_ladder.models.operations.linked.reference import linked_turn as plain
from chomsky_ladder.models.operations.operation import Operation

ROWS, WIDTH = 64, 32  # of a memory in Triton: links and memory stay in registers

_TURN = Loops(
    "linked",
    "asked: B X, memory memories: B W N, usage write precedence usages writes precedences: B N, link links: B N N,"
    " weight weights: B H N, reads: B H W",
    forward="asked memory usage write precedence link weight -> memories usages writes precedences links weights reads",
    backward="d_memories d_usages d_writes d_precedences d_links d_weights d_reads"
    " asked memory usage write precedence link weight"
    " -> d_asked d_memory d_usage d_write d_precedence d_link d_weight",
    sizes="B H N W",
)


def _takes(memory_BWN: Tensor, ctx: Context) -> bool:
    return memory_BWN.shape[-1] <= ROWS and memory_BWN.shape[-2] <= WIDTH


linked_turn = Operation(plain, serves=("dnc",), shown=lambda asked, memory, *others: memory)
linked_turn.in_c(_TURN, name="native_linked", rank=8)
linked_turn.in_triton(f"{__name__}.gpu", name="triton_linked", rank=51, takes=_takes)

linked_machine = Operation(
    machine, serves=("dnc",), shown=lambda gates, weights, state: state[2], calls={"turn": linked_turn}
)
linked_machine.in_triton(f"{__name__}.gpu_machine", name="triton_linked_machine", rank=53, takes=_takes)
