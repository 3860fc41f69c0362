"""The Triton programs of memories that move: all actions of a token, forward and backward (reference.py).

    memory'[n] = sum over actions a of share_a cells[source_a(n)]

A memory [H, N, W] lies where the program wrote it, so that an action is a reading from other places, and a stack's 0
from beyond its end a mask. Of a stack the new cell lies in front of the first, where push brings it from; of a ring it
stands in the first one's place. On the way back each cell's gradient is read from where the actions brought it.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import read


@triton.jit
def shares(asked: tl.tensor, ACTIONS: tl.constexpr) -> tl.tensor:
    a = tl.arange(0, triton.next_power_of_2(ACTIONS))
    asked_A = tl.load(asked + a, mask=a < ACTIONS, other=-float("inf"))
    power_A = tl.exp(asked_A - tl.max(asked_A, 0))
    return power_A / tl.sum(power_A, 0)


@triton.jit
def one_of(share_A: tl.tensor, action: tl.constexpr) -> tl.tensor:
    return tl.sum(tl.where(tl.arange(0, share_A.shape[0]) == action, share_A, 0.0), 0)


@triton.jit
def place(
    n: tl.tensor, jump: tl.tensor, action: tl.constexpr, WAY: tl.constexpr, N: tl.constexpr, STACK: tl.constexpr
) -> tl.tensor:
    """Where that was which an action brings to place n, or (WAY = -1) where it brings what was there; 0 <= jump < N.

    What is pushed was at -1.
    """
    found = n
    if STACK:  # push, pop, stay
        if action == 0:
            found = n - WAY
        if action == 1:
            found = n + WAY
    else:  # stay, left, right, far left, far right
        if action == 1:
            found = (n + N + WAY) % N
        if action == 2:
            found = (n + N - WAY) % N
        if action == 3:
            found = (n + N + WAY * jump) % N
        if action == 4:
            found = (n + N - WAY * jump) % N
    return found


@triton.jit
def brought(
    cells: tl.tensor, new_1W: tl.tensor, n: tl.tensor, w: tl.tensor, jump: tl.tensor,
    action: tl.constexpr, N: tl.constexpr, W: tl.constexpr, STACK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Of one memory, by one action: [N, W]."""
    from_N1 = place(n, jump, action, 1, N, STACK)
    there = (from_N1 >= 0) & (from_N1 < N) & (n < N)
    return tl.where(from_N1 == (-1 if STACK else 0), new_1W, read(cells + from_N1 * W + w, there & (w < W)))


@triton.jit
def turn(
    asked: tl.tensor, new: tl.tensor, before: tl.tensor, after: tl.tensor, jump: tl.tensor,
    N: tl.constexpr, W: tl.constexpr, HEADS: tl.constexpr, ACTIONS: tl.constexpr, ASKED: tl.constexpr,
    NEW: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, STACK: tl.constexpr,
) -> None:  # fmt: skip
    """Writes the memories after a token. The actions asked for lie `ASKED` apart, new cells `NEW`."""
    n, w = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    for head in tl.static_range(HEADS):
        share_A, cells = shares(asked + head * ASKED, ACTIONS), before + head * N * W
        new_1W, sum_NW = read(new + head * NEW + w, w < W), tl.zeros((ROWS, WIDTH), tl.float32)
        for action in tl.static_range(ACTIONS):
            sum_NW += one_of(share_A, action) * brought(cells, new_1W, n, w, jump, action, N, W, STACK)
        tl.store(after + head * N * W + n * W + w, sum_NW, mask=(n < N) & (w < W))


@triton.jit
def turn_back(
    d_after: tl.tensor, d_before: tl.tensor, asked: tl.tensor, new: tl.tensor, before: tl.tensor, d_asked: tl.tensor,
    d_new: tl.tensor, jump: tl.tensor,
    N: tl.constexpr, W: tl.constexpr, HEADS: tl.constexpr, ACTIONS: tl.constexpr, ASKED: tl.constexpr,
    NEW: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, STACK: tl.constexpr,
) -> None:  # fmt: skip
    """Writes the gradients of the memories before a token, of actions asked for, and of new cells."""
    n, w, a = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH), tl.arange(0, triton.next_power_of_2(ACTIONS))
    in_NW = (n < N) & (w < W)[None, :]
    for head in tl.static_range(HEADS):
        share_A, cells, d_cells = shares(asked + head * ASKED, ACTIONS), before + head * N * W, d_after + head * N * W
        new_1W, d_NW = read(new + head * NEW + w, w < W)[None, :], read(d_cells + n * W + w[None, :], in_NW)
        d_share_A, sum_NW = tl.zeros_like(share_A), tl.zeros((ROWS, WIDTH), tl.float32)
        for action in tl.static_range(ACTIONS):
            from_NW = brought(cells, new_1W, n, w[None, :], jump, action, N, W, STACK)
            d_share = tl.sum(tl.sum(tl.where(in_NW, d_NW * from_NW, 0.0), 0), 0)
            d_share_A += tl.where(a == action, d_share, 0.0)
            to_N1 = place(n, jump, action, -1, N, STACK)
            there = (to_N1 >= 0) & (to_N1 < N) & in_NW
            sum_NW += one_of(share_A, action) * read(d_cells + to_N1 * W + w[None, :], there)
        if STACK:
            d_new_W = one_of(share_A, 0) * read(d_cells + w, w < W)
        else:
            d_new_W = tl.sum(tl.where(n == 0, sum_NW, 0.0), 0)
            sum_NW = tl.where(n == 0, 0.0, sum_NW)
        tl.store(d_before + head * N * W + n * W + w[None, :], sum_NW, mask=in_NW)
        tl.store(d_new + head * NEW + w, d_new_W, mask=w < W)
        d_asked_A = share_A * (d_share_A - tl.sum(share_A * d_share_A, 0))
        tl.store(d_asked + head * ASKED + a, d_asked_A, mask=a < ACTIONS)
