"""The Triton programs of Mamba's scan, forward and backward; gpu.py calls them.

A program has one row and one tile of channels. What is read comes with its strides over replicas, rows and positions;
what is written lies as it is named.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false
# (what a tuple holds that grows in a loop has no type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin, read, write
from chomsky_ladder.models.kernels.triton.recurrence import LOG2_E, softplus


@triton.jit
def _sigmoid(x: tl.tensor) -> tl.tensor:
    return 1 / (1 + tl.exp2(-x * LOG2_E))


@triton.jit
def _transition(dt_E: tl.tensor, A_NE: tl.tensor, SIGNED: tl.constexpr) -> tl.tensor:
    """From A over log 2: the machine's own exponential has the base 2."""
    a_NE = tl.exp2(dt_E[None, :] * A_NE)
    if SIGNED:
        a_NE = 2 * a_NE - 1
    return a_NE


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    v: tl.tensor,
    dt: tl.tensor,
    bias: tl.tensor,
    A: tl.tensor,
    B: tl.tensor,
    C: tl.tensor,
    D: tl.tensor,
    z: tl.tensor,
    first: tl.tensor,
    y: tl.tensor,
    last: tl.tensor,
    starts: tl.tensor,
    of_v: tl.tuple,
    of_dt: tl.tuple,
    of_B: tl.tuple,
    of_C: tl.tuple,
    of_z: tl.tuple,
    of_bias: tl.tuple,
    of_A: tl.tuple,
    of_D: tl.tuple,
    of_first: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    E: tl.constexpr,
    STATES: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SIGNED: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    n, e = tl.arange(0, STATES), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_NE, in_NE = n[:, None] * E + e[None, :], (n < N)[:, None] & (e < E)[None, :]
    v, dt = begin(v, of_v, row, batch) + e, begin(dt, of_dt, row, batch) + e
    z, y = begin(z, of_z, row, batch) + e, y + row * length * E + e
    B, C = begin(B, of_B, row, batch) + n, begin(C, of_C, row, batch) + n
    starts += row * tl.cdiv(length, CHUNK) * N * E + at_NE

    bias_E = read(bias + row // batch * of_bias[0] + e, e < E)
    D_E = read(D + row // batch * of_D[0] + e, e < E)
    A_NE = read(A + row // batch * of_A[0] + at_NE, in_NE) * LOG2_E
    h_NE = read(first + row // batch * of_first[0] + row % batch * N * E + at_NE, in_NE)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            tl.store(starts + start // CHUNK * N * E, h_NE, mask=in_NE)
        given = ()  # read before anything is written, behind which no read is brought forward
        for k in tl.static_range(CHUNK):
            t = start + k
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            of_E = read(dt + t * of_dt[2], in_E), read(v + t * of_v[2], in_E), read(z + t * of_z[2], in_E)
            given += ((of_E, (read(B + t * of_B[2], in_N), read(C + t * of_C[2], in_N))),)
        for k in tl.static_range(CHUNK):
            t = start + k
            in_E = (e < E) & (t < length)
            of_E, of_N = given[k]
            x_E, v_E, z_E = of_E
            B_N, C_N = of_N
            dt_E, _ = softplus(x_E + bias_E)
            dt_E = tl.where(in_E, dt_E, 0.0)
            h_NE = _transition(dt_E, A_NE, SIGNED) * h_NE + B_N[:, None] * (dt_E * v_E)[None, :]
            p_E = tl.sum(C_N[:, None] * h_NE, 0) + D_E * v_E
            write(y + t * E, p_E * z_E * _sigmoid(z_E), in_E)
        start += CHUNK
    write(last + row * N * E + at_NE, h_NE, in_NE)


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    v: tl.tensor,
    dt: tl.tensor,
    bias: tl.tensor,
    A: tl.tensor,
    B: tl.tensor,
    C: tl.tensor,
    D: tl.tensor,
    z: tl.tensor,
    starts: tl.tensor,
    gy: tl.tensor,
    glast: tl.tensor,
    gv: tl.tensor,
    gdt: tl.tensor,
    gz: tl.tensor,
    gfirst: tl.tensor,
    gbias: tl.tensor,
    gD: tl.tensor,
    gA: tl.tensor,
    gB: tl.tensor,
    gC: tl.tensor,
    of_v: tl.tuple,
    of_dt: tl.tuple,
    of_B: tl.tuple,
    of_C: tl.tuple,
    of_z: tl.tuple,
    of_bias: tl.tuple,
    of_A: tl.tuple,
    of_D: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    E: tl.constexpr,
    STATES: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SIGNED: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    program = tl.program_id(0).to(tl.int64)
    row = program // TILES
    n, e = tl.arange(0, STATES), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_NE, in_NE = n[:, None] * E + e[None, :], (n < N)[:, None] & (e < E)[None, :]
    v, dt = begin(v, of_v, row, batch) + e, begin(dt, of_dt, row, batch) + e
    z, gy = begin(z, of_z, row, batch) + e, gy + row * length * E + e
    B, C = begin(B, of_B, row, batch) + n, begin(C, of_C, row, batch) + n
    gv, gdt, gz = gv + row * length * E + e, gdt + row * length * E + e, gz + row * length * E + e
    gB, gC = gB + program * length * N + n, gC + program * length * N + n
    chunks = tl.cdiv(length, CHUNK)
    starts += row * chunks * N * E + at_NE

    bias_E = read(bias + row // batch * of_bias[0] + e, e < E)
    D_E = read(D + row // batch * of_D[0] + e, e < E)
    A_NE = read(A + row // batch * of_A[0] + at_NE, in_NE) * LOG2_E
    g_NE = read(glast + row * N * E + at_NE, in_NE)
    gA_NE, gbias_E, gD_E = tl.zeros_like(A_NE), tl.zeros_like(bias_E), tl.zeros_like(D_E)
    start = chunks * CHUNK
    while start > 0:
        start -= CHUNK
        h_NE = read(starts + start // CHUNK * N * E, in_NE)
        before = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            dt_E, _ = softplus(read(dt + t * of_dt[2], in_E) + bias_E)
            dt_E = tl.where(in_E, dt_E, 0.0)
            v_E, B_N = read(v + t * of_v[2], in_E), read(B + t * of_B[2], in_N)
            before += (h_NE,)
            h_NE = _transition(dt_E, A_NE, SIGNED) * h_NE + B_N[:, None] * (dt_E * v_E)[None, :]
        for k in tl.static_range(CHUNK - 1, -1, -1):
            t = start + k
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            dt_E, slope_E = softplus(read(dt + t * of_dt[2], in_E) + bias_E)
            dt_E, slope_E = tl.where(in_E, dt_E, 0.0), tl.where(in_E, slope_E, 0.0)
            v_E, z_E, gy_E = read(v + t * of_v[2], in_E), read(z + t * of_z[2], in_E), read(gy + t * E, in_E)
            B_N, C_N = read(B + t * of_B[2], in_N), read(C + t * of_C[2], in_N)
            s_E = _sigmoid(z_E)
            p_E = tl.sum(C_N[:, None] * h_NE, 0) + D_E * v_E
            write(gz + t * E, gy_E * p_E * s_E * (1 + z_E * (1 - s_E)), in_E)
            gp_E = gy_E * z_E * s_E
            gD_E += gp_E * v_E
            g_NE += C_N[:, None] * gp_E[None, :]
            tl.store(gC + t * N, tl.sum(gp_E[None, :] * h_NE, 1), mask=in_N)
            tl.store(gB + t * N, tl.sum((dt_E * v_E)[None, :] * g_NE, 1), mask=in_N)
            gu_E = tl.sum(B_N[:, None] * g_NE, 0)
            write(gv + t * E, D_E * gp_E + dt_E * gu_E, in_E)
            h_NE = before[k]
            a_NE = _transition(dt_E, A_NE, SIGNED)
            w_NE = g_NE * h_NE * (a_NE + 1 if SIGNED else a_NE)
            gdt_E = slope_E * (v_E * gu_E + tl.sum(w_NE * A_NE, 0) / LOG2_E)
            write(gdt + t * E, gdt_E, in_E)
            gbias_E += gdt_E
            gA_NE += w_NE * dt_E[None, :]
            g_NE *= a_NE
    tl.store(gbias + row * E + e, gbias_E, mask=e < E)
    tl.store(gD + row * E + e, gD_E, mask=e < E)
    tl.store(gA + row * N * E + at_NE, gA_NE, mask=in_NE)
    write(gfirst + row * N * E + at_NE, g_NE, in_NE)
