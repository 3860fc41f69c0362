"""The Triton programs of a machine whose cells move, forward and backward; gpu_machine.py calls them.

A program has one machine, which is one row of one replica, for all its tokens: h and c in registers, memories where
they are kept (moves_programs.py). Of memories there is room for those before each token and behind the last where a
backward pass is to come, and else for two; of everything else for all tokens, or for one.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.controller import cell, cell_back, product, product_back
from chomsky_ladder.models.kernels.triton.memory import begin, read
from chomsky_ladder.models.kernels.triton.recurrence import tanh
from chomsky_ladder.models.operations.moves.gpu_programs import turn, turn_back


@triton.jit
def relu(x: tl.tensor) -> tl.tensor:
    return tl.where(x > 0, x, 0.0)


@triton.jit
def far(jumps: tl.tensor, row: tl.tensor, jump: tl.tensor, BY_ROW: tl.constexpr) -> tl.tensor:
    """How many cells a far move goes at the first token."""
    if BY_ROW:
        jump = tl.load(jumps + row)
    return jump


@triton.jit
def around(jump: tl.tensor, N: tl.constexpr) -> tl.tensor:
    return ((jump % N + N) % N).to(tl.int32)


@triton.jit
def top(memories: tl.tensor, k: tl.tensor, D: tl.constexpr, N: tl.constexpr, W: tl.constexpr) -> tl.tensor:
    """Where that number of a first cell lies which is the k-th of what a controller is given of the past."""
    r = k - D
    return memories + r // W * N * W + r % W


@triton.jit(do_not_specialize=["batch", "length", "jump"])
def forward_kernel(
    x: tl.tensor,
    W_y: tl.tensor,
    A: tl.tensor,
    bias: tl.tensor,
    W_2: tl.tensor,
    bias_2: tl.tensor,
    W_3: tl.tensor,
    bias_3: tl.tensor,
    first_h: tl.tensor,
    first_c: tl.tensor,
    first_memory: tl.tensor,
    jumps: tl.tensor | None,
    y: tl.tensor,
    last_c: tl.tensor,
    last_memory: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    hidden: tl.tensor,
    written: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    of_x: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    jump: tl.tensor,
    GROWS: tl.constexpr,
    CORE: tl.constexpr,
    D: tl.constexpr,
    HIDDEN: tl.constexpr,
    N: tl.constexpr,
    W: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    HS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_H: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    STACK: tl.constexpr = HIDDEN == 0
    ACTIONS: tl.constexpr = 3 if STACK else 5
    ASKED: tl.constexpr = ACTIONS + (W if STACK else 0)
    NEW: tl.constexpr = ASKED if STACK else W
    G: tl.constexpr = 4 * D if CORE == "lstm" else D
    R: tl.constexpr = HEADS * W
    X: tl.constexpr = HEADS * ASKED + HIDDEN
    K: tl.constexpr = D + R
    HNW: tl.constexpr = HEADS * N * W
    row, d, k, i = tl.program_id(0).to(tl.int64), tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, HS)
    replica, kept = row // batch, row * (length if KEEP else 1)
    x, y = begin(x, of_x, row, batch), y + row * length * D
    W_y, A, bias = W_y + replica * G * K, A + replica * X * D, bias + replica * X
    W_2, bias_2 = W_2 + replica * HIDDEN * HIDDEN, bias_2 + replica * HIDDEN
    W_3, bias_3 = W_3 + replica * R * HIDDEN, bias_3 + replica * R
    gates, asked, hidden, written = gates + kept * G, asked + kept * X, hidden + kept * HIDDEN, written + kept * R
    c_all, memories = c_all + kept * D, memories + row * ((length if KEEP else 1) + 1) * HNW
    jump = far(jumps, row, jump, jumps is not None)

    copy(first_memory + row * HNW, memories, HNW, ROWS * WIDTH)
    tl.debug_barrier()
    c_D = tl.zeros((DS,), tl.float32)
    if CORE == "lstm":
        c_D = read(first_c + row * D + d, d < D)
    past_K = read(first_h + row * D + k, k < D) + read(top(memories, k, D, N, W), (k >= D) & (k < K))
    t = 0
    while t < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            at, before, after = t, t, t + 1
        else:
            at, before, after = 0, t % 2, (t + 1) % 2
        product(gates + at * G, x + t * of_x[2], W_y, past_K, G, K, BLOCK_K)
        tl.debug_barrier()
        if CORE == "lstm":
            if KEEP:
                tl.store(c_all + t * D + d, c_D, mask=d < D)
            h_D, c_D = cell(gates + at * G, c_D, d, D)
        else:
            sum_D = read(gates + at * G + d, d < D)
            h_D = relu(sum_D) if CORE == "relu" else tanh(sum_D)
        tl.store(y + t * D + d, h_D, mask=d < D)
        product(asked + at * X, bias, A, h_D, X, D, BLOCK_D)
        tl.debug_barrier()
        if STACK:
            new = asked + at * X + ACTIONS
        else:
            first_H = relu(read(asked + at * X + HEADS * ASKED + i, i < HIDDEN))
            product(hidden + at * HIDDEN, bias_2, W_2, first_H, HIDDEN, HIDDEN, BLOCK_H)
            tl.debug_barrier()
            second_H = relu(read(hidden + at * HIDDEN + i, i < HIDDEN))
            product(written + at * R, bias_3, W_3, second_H, R, HIDDEN, BLOCK_H)
            tl.debug_barrier()
            new = written + at * R
        turn(
            asked + at * X, new, memories + before * HNW, memories + after * HNW,
            around(jump + (t if GROWS else 0), N), N, W, HEADS, ACTIONS, ASKED, NEW, WIDTH, ROWS, STACK,
        )  # fmt: skip
        tl.debug_barrier()
        tops_K = read(top(memories + after * HNW, k, D, N, W), (k >= D) & (k < K))
        past_K = read(y + t * D + k, k < D) + tops_K
        t += 1
    end = length if KEEP else length % 2
    copy(memories + end * HNW, last_memory + row * HNW, HNW, ROWS * WIDTH)
    if CORE == "lstm":
        tl.store(last_c + row * D + d, c_D, mask=d < D)


@triton.jit
def copy(of: tl.tensor, to: tl.tensor, COUNT: tl.constexpr, BLOCK: tl.constexpr) -> None:
    for start in tl.range(0, COUNT, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(to + at, read(of + at, at < COUNT), mask=at < COUNT)


@triton.jit(do_not_specialize=["batch", "length", "jump"])
def backward_kernel(
    d_y: tl.tensor,
    d_last_c: tl.tensor | None,
    d_last_memory: tl.tensor | None,
    W_y: tl.tensor,
    A: tl.tensor,
    W_2: tl.tensor,
    W_3: tl.tensor,
    y: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    hidden: tl.tensor,
    written: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    jumps: tl.tensor | None,
    d_gates: tl.tensor,
    d_asked: tl.tensor,
    d_hidden: tl.tensor,
    d_written: tl.tensor,
    d_first_h: tl.tensor,
    d_first_c: tl.tensor,
    d_first_memory: tl.tensor,
    d_memories: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    jump: tl.tensor,
    GROWS: tl.constexpr,
    CORE: tl.constexpr,
    D: tl.constexpr,
    HIDDEN: tl.constexpr,
    N: tl.constexpr,
    W: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    HS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    STACK: tl.constexpr = HIDDEN == 0
    ACTIONS: tl.constexpr = 3 if STACK else 5
    ASKED: tl.constexpr = ACTIONS + (W if STACK else 0)
    NEW: tl.constexpr = ASKED if STACK else W
    G: tl.constexpr = 4 * D if CORE == "lstm" else D
    R: tl.constexpr = HEADS * W
    X: tl.constexpr = HEADS * ASKED + HIDDEN
    K: tl.constexpr = D + R
    HNW: tl.constexpr = HEADS * N * W
    row, d, k, i = tl.program_id(0).to(tl.int64), tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, HS)
    replica, kept = row // batch, row * length
    W_y, A, d_y, y = W_y + replica * G * K, A + replica * X * D, d_y + kept * D, y + kept * D
    W_2, W_3 = W_2 + replica * HIDDEN * HIDDEN, W_3 + replica * R * HIDDEN
    gates, asked, hidden, written = gates + kept * G, asked + kept * X, hidden + kept * HIDDEN, written + kept * R
    c_all, memories = c_all + kept * D, memories + row * (length + 1) * HNW
    d_gates, d_asked, d_hidden = d_gates + kept * G, d_asked + kept * X, d_hidden + kept * HIDDEN
    d_written, d_memories = d_written + kept * R, d_memories + row * 2 * HNW
    d_first_h, d_first_memory = d_first_h + row * D, d_first_memory + row * HNW
    jump = far(jumps, row, jump, jumps is not None)

    last = d_memories + (length - 1) % 2 * HNW
    if d_last_memory is not None:
        copy(d_last_memory + row * HNW, last, HNW, ROWS * WIDTH)
    else:
        blank(last, HNW, ROWS * WIDTH)
    d_c_D = tl.zeros((DS,), tl.float32)
    if CORE == "lstm" and d_last_c is not None:
        d_c_D = read(d_last_c + row * D + d, d < D)
    tl.store(d_first_h + d, tl.zeros((DS,), tl.float32), mask=d < D)  # until then that of the h before a token
    t = length
    while t > 0:
        t -= 1
        d_after, d_before = d_memories + t % 2 * HNW, d_memories + (t + 1) % 2 * HNW
        if STACK:
            new, d_new = asked + t * X + ACTIONS, d_asked + t * X + ACTIONS
        else:
            new, d_new = written + t * R, d_written + t * R
        tl.debug_barrier()
        turn_back(
            d_after, d_before, asked + t * X, new, memories + t * HNW, d_asked + t * X, d_new,
            around(jump + (t if GROWS else 0), N), N, W, HEADS, ACTIONS, ASKED, NEW, WIDTH, ROWS, STACK,
        )  # fmt: skip
        tl.debug_barrier()
        if not STACK:
            second_H, first_H = hidden + t * HIDDEN + i, asked + t * X + HEADS * ASKED + i
            d_second_H = product_back(d_written + t * R, W_3, R, HIDDEN, BLOCK_H, HS)
            d_second_H = tl.where(read(second_H, i < HIDDEN) > 0, d_second_H, 0.0)
            tl.store(d_hidden + t * HIDDEN + i, d_second_H, mask=i < HIDDEN)
            tl.debug_barrier()
            d_first_H = product_back(d_hidden + t * HIDDEN, W_2, HIDDEN, HIDDEN, BLOCK_H, HS)
            d_first_H = tl.where(read(first_H, i < HIDDEN) > 0, d_first_H, 0.0)
            tl.store(d_asked + t * X + HEADS * ASKED + i, d_first_H, mask=i < HIDDEN)
            tl.debug_barrier()
        d_h_D = read(d_y + t * D + d, d < D) + read(d_first_h + d, d < D)
        d_h_D += product_back(d_asked + t * X, A, X, D, BLOCK_D, DS)
        if CORE == "lstm":
            d_c_D = cell_back(gates + t * G, d_gates + t * G, read(c_all + t * D + d, d < D), d_h_D, d_c_D, d, D)
        else:
            h_D = read(y + t * D + d, d < D)
            d_sum_D = tl.where(h_D > 0, d_h_D, 0.0) if CORE == "relu" else d_h_D * (1 - h_D * h_D)
            tl.store(d_gates + t * G + d, d_sum_D, mask=d < D)
        tl.debug_barrier()
        d_past_K = product_back(d_gates + t * G, W_y, G, K, BLOCK_K, KS)
        tl.store(d_first_h + k, d_past_K, mask=k < D)
        d_top, is_top = top(d_before, k, D, N, W), (k >= D) & (k < K)
        tl.store(d_top, read(d_top, is_top) + d_past_K, mask=is_top)
    tl.debug_barrier()
    copy(d_memories + HNW, d_first_memory, HNW, ROWS * WIDTH)
    if CORE == "lstm":
        tl.store(d_first_c + row * D + d, d_c_D, mask=d < D)


@triton.jit
def blank(to: tl.tensor, COUNT: tl.constexpr, BLOCK: tl.constexpr) -> None:
    for start in tl.range(0, COUNT, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(to + at, tl.zeros((BLOCK,), tl.float32), mask=at < COUNT)
