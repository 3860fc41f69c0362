"""Memories of cells that move, a stack or a tape, after actions of which each is taken for a share; and whole machines.

    memory_BHNW = after_moves(ctx, new_BHW, memory_BHNW, share_BHA, moves, replaces=False)

In torch a memory is written once for every action before the shares are taken. In C each move is a pass over cells that
stay in the nearest cache. `stack_machine` and `tape_machine` have kernels alone, all tokens in one launch, in place of
fifty and of eighty launches a token and as many in the backward pass.
"""

from collections.abc import Sequence
from itertools import chain

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops, Sizes
from chomsky_ladder.models.operations.moves import machines
from chomsky_ladder.models.operations.moves.reference import Move, moved
from chomsky_ladder.models.operations.operation import Operation

LARGEST = 8192  # numbers of one stack or tape in Triton, its axes padded to powers of two


def _derived(sizes: Sizes) -> Sizes:
    moves = tuple(chain.from_iterable(sizes["moves"]))
    return {"rows": sizes["B"] * sizes["H"], "count": len(sizes["moves"]), "moves": moves}


_MOVED = Loops(
    "moves",
    "new: B H W, memory moved: B H N W, share: B H A",
    forward="new memory share -> moved",
    backward="d_moved new memory share -> d_new d_memory d_share",
    sizes="rows N W A replaces count moves",
    settings="replaces moves",
    derived=_derived,
)


def _in_c(new_BHW: Tensor, memory_BHNW: Tensor, share_BHA: Tensor, moves: Sequence[Move], *, replaces: bool) -> Tensor:
    """C version of `moved`."""
    return _MOVED(new_BHW, memory_BHNW, share_BHA, int(replaces), tuple(moves))[0]


def _takes(memory_BHNW: Tensor, ctx: Context) -> bool:
    cells, cell = (1 << (size - 1).bit_length() for size in memory_BHNW.shape[-2:])
    return cells * cell <= LARGEST


after_moves = Operation(
    moved,
    name="moves",
    serves=("stack_rnn", "tape_rnn", "stack_attention"),
    shown=lambda new, memory, share, moves, *, replaces: memory,
)
after_moves.in_c(_in_c, name="native_moves", rank=8)

stack_machine = Operation(
    machines.stack_machine,
    serves=("stack_rnn",),
    shown=lambda gates, weights, state, *, core: state[-1],
    calls={"moves": after_moves},
)
stack_machine.in_triton(f"{__name__}.gpu_machine", name="triton_stack_machine", rank=55, takes=_takes)

tape_machine = Operation(
    machines.tape_machine,
    serves=("tape_rnn",),
    shown=lambda gates, weights, state, *, core, jump, grows: state[-1],
    calls={"moves": after_moves},
)
tape_machine.in_triton(f"{__name__}.gpu_machine", name="triton_tape_machine", rank=56, takes=_takes)
