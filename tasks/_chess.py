"""The rules of chess on whole batches of boards. A set of squares is a 64-bit integer, bit 8 * rank + file, a1 first.

A board is seen by the player to move, who plays up the board: after every move it is turned upside down and the sides
change places. So the rules know one colour only. Nine integers are a board: mine, theirs, the pawns, knights, diagonal
movers, straight movers and kings of both (a queen is in two), the rooks that may castle, and the square that a pawn has
just jumped over. The legal moves are 76 sets of squares, one for each way to move, with the squares that it leads to:

    0..27     up, 1..7 squares, to the north-west, north, north-east and east      28..55    down, the opposite ways
    56..63    a knight's jumps      64..75    promotions to knight, bishop, rook and queen, each in three directions

A player's moves go by no copy of the board. Pieces between the own king and a line of theirs (pins), what gives check
and what the king would walk into all come from the same fills of the board's lines, for all games at once. Every move
is legal by all rules but those of draws: a game ends by mate or stalemate alone. (Neither fifty moves without a capture
nor bare kings come up within 60 plies, and a repetition draws only if a player claims it.)
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._bits import signed
from chomsky_ladder.tasks._kept import kept

Array = Any  # a tensor, or the ndarray of the numpy twin

UP = ((-1, 1), (0, 1), (1, 1), (1, 0))  # files and ranks of a step; down has the opposite ones
JUMPS = ((-2, 1), (-1, 2), (1, 2), (2, 1))
WAYS = 76
_DISTANCES, DOWN, KNIGHTS, PROMOTIONS = 7, 28, 56, 64
TWO_UP = 5  # the way of a pawn's first jump
RANK_1, _RANK_3, _RANK_8 = 0xFF, 0xFF0000, signed(0xFF << 56)


class Lanes(NamedTuple):
    """Constants of the four directions, [4, 1], and of the two castlings, [2, 1]."""

    shift: Array  # of a step up
    up: Array  # squares that a step up can lead to, without those it would reach around the rim
    down: Array
    jump: Array
    jump_up: Array
    jump_down: Array
    captures: Array  # all squares, in the directions in which a pawn captures
    pushes: Array
    rook: Array
    between: Array  # must be empty
    walked: Array  # must not be attacked
    king_to: Array
    hides: Array  # [2, 1]: none, then all squares
    of_foes: Array  # bool [4, 1, 1]: the second is True


@kept
def lanes_of(device: torch.device | None) -> Lanes:
    """Return the constants for tensors on a device, or for numpy arrays."""

    def reached(steps: tuple[tuple[int, int], ...], sign: int) -> np.ndarray:
        return column(*(sum(1 << to for to in range(64) if stepped(to, (x, y), -sign) is not None) for x, y in steps))

    every = (1 << 64) - 1
    lanes = Lanes(
        shift=column(*(8 * y + x for x, y in UP)),
        up=reached(UP, 1),
        down=reached(UP, -1),
        jump=column(*(8 * y + x for x, y in JUMPS)),
        jump_up=reached(JUMPS, 1),
        jump_down=reached(JUMPS, -1),
        captures=column(every, 0, every, 0),
        pushes=column(0, every, 0, 0),
        rook=column(1 << 7, 1),
        between=column(0b01100000, 0b00001110),
        walked=column(0b01110000, 0b00011100),
        king_to=column(1 << 6, 1 << 2),
        hides=column(0, every),
        of_foes=np.arange(4)[:, None, None] == 1,
    )
    return Lanes(*(on_device(table, device) for table in lanes))


def stepped(square: int, step: tuple[int, int], times: int) -> int | None:
    """Return the square so many steps away; None beyond the rim."""
    file, rank = square % 8 + step[0] * times, square // 8 + step[1] * times
    return 8 * rank + file if 0 <= file < 8 and 0 <= rank < 8 else None


def legal_moves(board_9B: Array) -> Array:
    """Return the legal moves of the player to move: 76 sets of squares to move to."""
    mine, theirs, pawns, knights, _, straight, kings, rights, jumped = board_9B
    xp, lanes = library_of(board_9B), lanes_of(device_of(board_9B))
    sliders_DB = xp.concat([board_9B[4:6], board_9B[4:6]])  # diagonal, straight, diagonal, straight
    taken: Array = mine | theirs
    king = kings & mine
    foes_DB, their_pawns, nothing = sliders_DB & theirs, pawns & theirs, mine * 0

    # What king and enemy lines see. The king hides no square behind it. Without both pawns of a capture in passing, the
    # king may be seen.
    passed = jumped >> 8
    from_2B = (jumped & lanes.up[::2]) >> lanes.shift[::2]
    blocked_WB = xp.concat([taken ^ (lanes.hides & king), (taken ^ passed ^ jumped) ^ from_2B])
    start_WDB = xp.where(lanes.of_foes, foes_DB, king)
    up_WDB, down_WDB = _seen(start_WDB, ~blocked_WB[:, None], lanes)
    king_up_DB, foe_up_DB, king_down_DB, foe_down_DB = up_WDB[0], up_WDB[1], down_WDB[0], down_WDB[1]
    pinned_DB = (king_up_DB & foe_down_DB | king_down_DB & foe_up_DB) & mine
    pinned = pinned_DB.sum(0)
    free_DB = mine & ~(pinned ^ pinned_DB)  # who may move along each line

    # Steps of kings and pawns, and jumps of knights.
    step_up_DB, step_down_DB = (king << lanes.shift) & lanes.up, (king >> lanes.shift) & lanes.down
    their_king = kings & theirs
    near_up_DB = (their_king << lanes.shift) & lanes.up
    near_down_DB = ((their_king | their_pawns & lanes.captures) >> lanes.shift) & lanes.down
    their_knights = knights & theirs
    jumpers_3B = _rows(xp, king, their_knights, knights & mine & ~pinned)[:, None]
    jump_up_3DB = (jumpers_3B << lanes.jump) & lanes.jump_up
    jump_down_3DB = (jumpers_3B >> lanes.jump) & lanes.jump_down

    # Checks, and where they can be met.
    ray_RB = xp.concat([king_up_DB, king_down_DB])
    hit_RB = ray_RB & xp.concat([foes_DB, foes_DB])
    line = xp.where(hit_RB != 0, ray_RB, 0).sum(0)
    close = ((jump_up_3DB[0] | jump_down_3DB[0]) & their_knights | step_up_DB & lanes.captures & their_pawns).sum(0)
    checks = hit_RB.sum(0) + close
    meets = xp.where(checks == 0, -1, xp.where(checks & (checks - 1) == 0, line | checks, 0))
    targets = meets & ~mine

    # Moves along lines.
    up, down, empty_up, empty_down = targets & lanes.up, targets & lanes.down, ~taken & lanes.up, ~taken & lanes.down
    x_up = x_down = free_DB & sliders_DB
    ups, downs = [], []
    for _ in range(_DISTANCES):
        x_up, x_down = x_up << lanes.shift, x_down >> lanes.shift
        ups.append(x_up & up)
        downs.append(x_down & down)
        x_up, x_down = x_up & empty_up, x_down & empty_down

    # Pawns: a push and captures; two pushes at once; in passing, if no line then sees the king and nothing close does.
    pawns_DB = free_DB & pawns
    moved_DB = (pawns_DB << lanes.shift) & lanes.up & (lanes.captures & theirs | lanes.pushes & ~taken)
    two = ((moved_DB[1] & _RANK_3) << 8) & ~taken & targets
    moved_DB = moved_DB & targets
    last_DB = moved_DB[:3] & _RANK_8
    seen_2B = (((up_WDB[2:] | down_WDB[2:]) & foes_DB) != 0).any(1)
    in_passing_2B = xp.where((from_2B & pawns & mine != 0) & ~seen_2B & (close & ~passed == 0), jumped, 0)

    # The king: one step, or castling.
    attacked_DB = foe_up_DB | foe_down_DB | near_up_DB | near_down_DB | jump_up_3DB[1] | jump_down_3DB[1]
    attacked_2B = attacked_DB[:2] | attacked_DB[2:]
    attacked = attacked_2B[0] | attacked_2B[1]
    safe = ~(mine | attacked)
    rooks = rights & straight & mine
    can_2B = (rooks & lanes.rook != 0) & (taken & lanes.between == 0) & (attacked & lanes.walked == 0)
    castled_2B = can_2B * lanes.king_to

    passing_DB = _rows(xp, in_passing_2B[0], nothing, in_passing_2B[1], nothing)
    ups[0] = ups[0] | (moved_DB & ~_RANK_8) | (step_up_DB & safe) | passing_DB
    ups[1] = ups[1] | _rows(xp, nothing, two, nothing, castled_2B[0])
    downs[0] = downs[0] | (step_down_DB & safe)
    downs[1] = xp.concat([downs[1][:3], downs[1][3:] | castled_2B[1:]])
    knights_up_DB, knights_down_DB = jump_up_3DB[2] & targets, jump_down_3DB[2] & targets
    return xp.concat([*ups, *downs, knights_up_DB, knights_down_DB, last_DB, last_DB, last_DB, last_DB])


def _rows(xp: Any, *lines: Array) -> Array:
    """Stack arrays. With numpy, joining them takes half the time of `stack`."""
    return xp.concat([line[None] for line in lines])


def _seen(start_WDB: Array, empty_WDB: Array, lanes: Lanes) -> tuple[Array, Array]:
    """Return what is seen up and down each line from these squares, up to the first piece and including it."""
    shift, twice, four_times = lanes.shift, 2 * lanes.shift, 4 * lanes.shift
    open_up, open_down = empty_WDB & lanes.up, empty_WDB & lanes.down
    up = start_WDB | open_up & (start_WDB << shift)
    down = start_WDB | open_down & (start_WDB >> shift)
    open_up, open_down = open_up & (open_up << shift), open_down & (open_down >> shift)
    up, down = up | open_up & (up << twice), down | open_down & (down >> twice)
    open_up, open_down = open_up & (open_up << twice), open_down & (open_down >> twice)
    up, down = up | open_up & (up << four_times), down | open_down & (down >> four_times)
    return (up << shift) & lanes.up, (down >> shift) & lanes.down


def column(*words: int) -> np.ndarray:
    """Return unsigned 64-bit integers as signed ones, one in each row."""
    return np.array(list(map(signed, words)))[:, None]


def on_device(table: np.ndarray, device: torch.device | None) -> Array:
    return table if device is None else torch.tensor(table, device=device)


def device_of(array: Array) -> torch.device | None:
    """Return the device of a tensor, None for an ndarray."""
    return array.device if isinstance(array, Tensor) else None


def library_of(array: Array) -> Any:
    """Return the library of an array's functions. Those used here have one name in both."""
    return torch if isinstance(array, Tensor) else np
