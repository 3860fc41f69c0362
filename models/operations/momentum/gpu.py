"""The delta rule with momentum as two Triton kernels: `momentum_delta_rule` of reference.py.

    e_t = k_t M_{t-1} - v_t        S_t = h_t S_{t-1} - r_t k_t^T e_t        M_t = a_t M_{t-1} + S_t        y_t = q_t M_t

Columns of M and S have nothing to do with one another, so a program walks through time for one head of one row and one
tile of values, both states [K, tile] in registers. The forward pass writes the states before every chunk of `CHUNK`
tokens; the backward pass goes from the last chunk to the first, computes its states and errors again, and takes the
gradients off them, where G and N are those of M_t and S_t:

    G <- G + q_t dy_t^T        N <- N + G        dw_t = -k_t N        de_t = r_t dw_t        dv_t = -de_t
    dq_t = M_t dy_t        dk_t = M_{t-1} de_t - r_t N e_t
    da_t = sum G M_{t-1}        dh_t = sum N S_{t-1}        dr_t = sum dw_t e_t
    dL/dM_{t-1} = a_t G + k_t de_t^T        dL/dS_{t-1} = h_t N

Sums over tiles of values are added outside, so the result does not depend on the order in which programs run.
"""

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.operations.in_c import Sizes
from chomsky_ladder.models.operations.in_triton import Plan, Programs
from chomsky_ladder.models.operations.momentum.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.operations.momentum.reference import Held

CHUNK = 4  # tokens, of which one warp holds all states going back
PER_PROGRAM = 512  # elements of a state, for one warp: sums over keys and over values then wait for no other


def triton_momentum(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """Triton version of `momentum_delta_rule`, in fp32; q, k and v may be of 16 bits."""
    given = (q_BHLK, k_BHLK, v_BHLV)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in given), "the kernel takes fp32 and bf16 alone"
    assert all(x.dtype == torch.float32 for x in state), "states are in fp32"
    gates = (rate_BHL.float(), torch.exp(log_decay_BHL.float()), torch.exp(log_momentum_BHL.float()))
    y_BHLV, M_BHKV, S_BHKV = _PROGRAMS(*given, *gates, *state)
    return y_BHLV, (M_BHKV, S_BHKV)


def plan(sizes: Sizes) -> Plan:
    padded = triton.next_power_of_2(sizes["K"])
    tile = max(16, min(PER_PROGRAM // padded, triton.next_power_of_2(sizes["V"])))
    tiles, elements = triton.cdiv(sizes["V"], tile), padded * tile
    return Plan(
        sizes["R"] * sizes["B"] * sizes["H"] * tiles,
        # Where one warp does not hold it, more of them wait for each other anyway.
        warps=1 if elements <= PER_PROGRAM else 2 * elements // PER_PROGRAM,
        constants={"KEYS": padded, "TILE": tile, "CHUNK": CHUNK},
        sizes={"T": tiles, "N": triton.cdiv(sizes["L"], CHUNK) if sizes["KEEP"] else 0},
    )


_PROGRAMS = Programs(
    "momentum",
    (forward_kernel, backward_kernel),
    inputs="q k: B H L K, v: B H L V, r a h: B H L, first_M first_S: B H K V",
    outputs="y: B H L V, last_M last_S: B H K V",
    kept="starts: B H N 2 K V",
    parts="d_q d_k: T R B H L K, d_r d_a d_h: T R B H L",
    plan=plan,
)
