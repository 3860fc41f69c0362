"""The two Triton kernels of short mLSTM heads (gpu.py), forward and backward.

A program has one head of one string, whose tokens [TOKENS] and their pairs [TOKENS, TOKENS] stay on the chip. Channels
come a block at a time, with the maps among them, of 4 each, as one matrix that is 0 elsewhere. Loops over blocks are
not unrolled: that took eight times as long to compile, and registers spilled.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# (in a kernel nothing has a type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import read, write
from chomsky_ladder.models.kernels.triton.pairs import channels, in_parts, product, sums_between, sums_between_back
from chomsky_ladder.models.kernels.triton.recurrence import softplus

EPS = tl.constexpr(1e-6)  # as in models/operations/mlstm/reference.py, like what follows
LARGEST = tl.constexpr(80.0)
OF_MAP = tl.constexpr(4)  # channels


@triton.jit
def _at(
    x: tl.tensor, strides: tl.tuple, batch: tl.tensor, heads: tl.tensor, t: tl.tensor, step: tl.tensor
) -> tl.tensor:
    """Where this program's head has its tokens, if heads are `step` apart."""
    line, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    return x + line // batch * strides[0] + line % batch * strides[1] + head * step + t * strides[2]


@triton.jit
def _of_head(maps: tl.tensor, strides: tl.tuple, batch: tl.tensor, heads: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """Where the maps of this program's head begin."""
    replica, head = (tl.program_id(0) // heads // batch).to(tl.int64), tl.program_id(0) % heads
    return maps + replica * strides[0] + head * WIDTH * OF_MAP


@triton.jit
def _map(at: tl.tensor, start: tl.tensor, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> tl.tuple:
    """Where entries [channel read, channel written] lie, and which there are: of channels of one map."""
    x = start + tl.arange(0, BLOCK)
    there = (x[:, None] // OF_MAP == x[None, :] // OF_MAP) & (x < WIDTH)[None, :]
    return at + x[None, :] * OF_MAP + x[:, None] % OF_MAP, there


@triton.jit
def _gates(at_i: tl.tensor, at_f: tl.tensor, t: tl.tensor, in_T: tl.tensor) -> tl.tuple:
    """log D [t, s], -inf for s > t, the largest of each t, and the slope of log sigmoid(f)."""
    i_T = tl.load(at_i, mask=in_T, other=float("-inf")).to(tl.float32)
    less_T, slope_T = softplus(-read(at_f, in_T))
    log_D = sums_between(-less_T, t) + i_T[None, :]
    return log_D, tl.max(log_D, 1), slope_T


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    c: tl.tensor,
    u: tl.tensor,
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    i: tl.tensor,
    f: tl.tensor,
    h: tl.tensor,
    of_c: tl.tuple,
    of_u: tl.tuple,
    of_query: tl.tuple,
    of_key: tl.tuple,
    of_value: tl.tuple,
    of_i: tl.tuple,
    of_f: tl.tuple,
    of_h: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    t = tl.arange(0, TOKENS)
    in_T = t < length
    kind = c.dtype.element_ty
    query, key, value = (
        _of_head(query, of_query, batch, heads, WIDTH), _of_head(key, of_key, batch, heads, WIDTH),
        _of_head(value, of_value, batch, heads, WIDTH)
    )  # fmt: skip
    c, u, h = (
        _at(c, of_c, batch, heads, t, WIDTH), _at(u, of_u, batch, heads, t, WIDTH), _at(h, of_h, batch, heads, t, WIDTH)
    )  # fmt: skip
    pairs = tl.zeros((TOKENS, TOKENS), tl.float32)
    for start in tl.range(0, WIDTH, BLOCK, num_stages=1):
        at, there = channels(c, in_T, start, WIDTH, BLOCK)
        c_TX = tl.load(at, mask=there, other=0.0)
        at_query, of_map = _map(query, start, WIDTH, BLOCK)
        at_key, of_map = _map(key, start, WIDTH, BLOCK)
        q_TX = product(c_TX, read(at_query, of_map).to(kind)).to(kind)
        k_TX = product(c_TX, read(at_key, of_map).to(kind)).to(kind)
        pairs += product(q_TX, tl.trans(k_TX))
    log_D, m_T, _ = _gates(
        _at(i, of_i, batch, heads, t, of_i[3]), _at(f, of_f, batch, heads, t, of_f[3]), t, in_T
    )  # fmt: skip
    weights = pairs * WIDTH**-0.5 * tl.exp(log_D - m_T[:, None])
    largest_T = tl.maximum(tl.abs(tl.sum(weights, 1)), tl.exp(tl.minimum(-m_T, LARGEST)))
    weights = weights / (largest_T + EPS)[:, None]
    for start in tl.range(0, WIDTH, BLOCK, num_stages=1):
        at, there = channels(u, in_T, start, WIDTH, BLOCK)
        at_value, of_map = _map(value, start, WIDTH, BLOCK)
        v_TX = product(tl.load(at, mask=there, other=0.0), read(at_value, of_map).to(kind)).to(kind)
        at, there = channels(h, in_T, start, WIDTH, BLOCK)
        write(at, in_parts(weights, v_TX), there)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    c: tl.tensor,
    u: tl.tensor,
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    i: tl.tensor,
    f: tl.tensor,
    gh: tl.tensor,
    gc: tl.tensor,
    gu: tl.tensor,
    gmaps: tl.tensor,
    gi: tl.tensor,
    gf: tl.tensor,
    of_c: tl.tuple,
    of_u: tl.tuple,
    of_query: tl.tuple,
    of_key: tl.tuple,
    of_value: tl.tuple,
    of_i: tl.tuple,
    of_f: tl.tuple,
    of_gh: tl.tuple,
    of_gc: tl.tuple,
    of_gi: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    t = tl.arange(0, TOKENS)
    in_T = t < length
    kind = c.dtype.element_ty
    line, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    query, key, value = (
        _of_head(query, of_query, batch, heads, WIDTH), _of_head(key, of_key, batch, heads, WIDTH),
        _of_head(value, of_value, batch, heads, WIDTH)
    )  # fmt: skip
    c, u = _at(c, of_c, batch, heads, t, WIDTH), _at(u, of_u, batch, heads, t, WIDTH)
    gh = _at(gh, of_gh, batch, heads, t, WIDTH)
    gc, gu = _at(gc, of_gc, batch, heads, t, WIDTH), _at(gu, of_gc, batch, heads, t, WIDTH)
    gmaps += (line * 3 * heads + head) * WIDTH * OF_MAP
    every: tl.constexpr = WIDTH * OF_MAP
    pairs, gy_v = tl.zeros((TOKENS, TOKENS), tl.float32), tl.zeros((TOKENS, TOKENS), tl.float32)
    for start in tl.range(0, WIDTH, BLOCK, num_stages=1):
        at, there = channels(c, in_T, start, WIDTH, BLOCK)
        c_TX = tl.load(at, mask=there, other=0.0)
        at_query, of_map = _map(query, start, WIDTH, BLOCK)
        at_key, of_map = _map(key, start, WIDTH, BLOCK)
        at_value, of_map = _map(value, start, WIDTH, BLOCK)
        q_TX = product(c_TX, read(at_query, of_map).to(kind)).to(kind)
        k_TX = product(c_TX, read(at_key, of_map).to(kind)).to(kind)
        pairs += product(q_TX, tl.trans(k_TX))
        at, there = channels(u, in_T, start, WIDTH, BLOCK)
        v_TX = product(tl.load(at, mask=there, other=0.0), read(at_value, of_map).to(kind)).to(kind)
        at, there = channels(gh, in_T, start, WIDTH, BLOCK)
        gy_v += product(tl.load(at, mask=there, other=0.0), tl.trans(v_TX))

    log_D, m_T, slope_T = _gates(
        _at(i, of_i, batch, heads, t, of_i[3]), _at(f, of_f, batch, heads, t, of_f[3]), t, in_T
    )  # fmt: skip
    D = tl.exp(log_D - m_T[:, None])
    weights = pairs * WIDTH**-0.5 * D
    n_T, floor_T = tl.sum(weights, 1), tl.exp(tl.minimum(-m_T, LARGEST))
    over_T = 1 / (tl.maximum(tl.abs(n_T), floor_T) + EPS)
    glargest_T = -tl.sum(weights * gy_v, 1) * over_T * over_T
    share_T = tl.where(tl.abs(n_T) > floor_T, 1.0, tl.where(tl.abs(n_T) == floor_T, 0.5, 0.0))
    gn_T = glargest_T * share_T * tl.where(n_T > 0, 1.0, tl.where(n_T < 0, -1.0, 0.0))
    gweights = gy_v * over_T[:, None] + gn_T[:, None]
    glog_D = gweights * weights
    gm_T = tl.where(-m_T <= LARGEST, glargest_T * (share_T - 1) * floor_T, 0.0) - tl.sum(glog_D, 1)
    highest = tl.where(log_D == m_T[:, None], 1.0, 0.0)
    glog_D += highest * (gm_T / tl.sum(highest, 1))[:, None]
    tl.store(_at(gi, of_gi, batch, heads, t, of_gi[3]), tl.sum(glog_D, 0), mask=in_T)
    tl.store(_at(gf, of_gi, batch, heads, t, of_gi[3]), sums_between_back(glog_D, t) * slope_T, mask=in_T)

    weights *= over_T[:, None]
    gpairs = gweights * D * WIDTH**-0.5
    for start in tl.range(0, WIDTH, BLOCK, num_stages=1):
        at_value, of_map = _map(value, start, WIDTH, BLOCK)
        at, there = channels(gh, in_T, start, WIDTH, BLOCK)
        gv_TX = in_parts(tl.trans(weights), tl.load(at, mask=there, other=0.0)).to(kind)
        at, there = channels(gu, in_T, start, WIDTH, BLOCK)
        write(at, product(gv_TX, tl.trans(read(at_value, of_map).to(kind))), there)
        at, there = channels(u, in_T, start, WIDTH, BLOCK)
        gvalue, of_map = _map(gmaps + 2 * heads * every, start, WIDTH, BLOCK)
        tl.store(gvalue, product(tl.trans(tl.load(at, mask=there, other=0.0)), gv_TX), mask=of_map)

        at_query, of_map = _map(query, start, WIDTH, BLOCK)
        at_key, of_map = _map(key, start, WIDTH, BLOCK)
        query_XX, key_XX = read(at_query, of_map).to(kind), read(at_key, of_map).to(kind)
        at, there = channels(c, in_T, start, WIDTH, BLOCK)
        c_TX = tl.load(at, mask=there, other=0.0)
        gq_TX = in_parts(gpairs, product(c_TX, key_XX).to(kind)).to(kind)
        gk_TX = in_parts(tl.trans(gpairs), product(c_TX, query_XX).to(kind)).to(kind)
        at, there = channels(gc, in_T, start, WIDTH, BLOCK)
        write(at, product(gq_TX, tl.trans(query_XX)) + product(gk_TX, tl.trans(key_XX)), there)
        gquery, of_map = _map(gmaps, start, WIDTH, BLOCK)
        tl.store(gquery, product(tl.trans(c_TX), gq_TX), mask=of_map)
        gkey, of_map = _map(gmaps + heads * every, start, WIDTH, BLOCK)
        tl.store(gkey, product(tl.trans(c_TX), gk_TX), mask=of_map)
