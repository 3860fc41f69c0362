"""Instructions of PTX that are a warp's or four warps' together: matrices to and from shared memory, and products.

Of a warp thread l = 4 g + q has, of 16 rows by 8 columns, the numbers at columns 2 q and 2 q + 1 of rows g and g + 8.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from instruments.ptx_machine import SHARED, Array, Machine, names
from support.bits import halves

LANE = np.arange(32)
G, Q = LANE // 4, LANE % 4
SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes of a row, by a descriptor's last bits
TURNS = {128: 7, 64: 3, 32: 1, 16: 0}


def matrices_moved(machine: Machine, op: str, words: list[str]) -> None:
    """Move matrices of 8 x 8 numbers of 16 bits. Eight threads give the places of a matrix's rows of 16 bytes."""
    loads = op.startswith("ldmatrix")
    group, where = (words[0], words[1]) if loads else (words[1], words[0])
    registers = names(group)
    speaks = machine.thread % 32 < 8 * len(registers)
    held, at = machine.bytes_of(machine.place(where), 16, speaks)
    for place, register in enumerate(registers):
        value = np.zeros(machine.threads, np.uint32)
        for warp in range(machine.threads // 32):
            rows = at[32 * warp + 8 * place :][:8, None] + np.arange(16)
            threads = slice(32 * warp, 32 * warp + 32)
            if loads:
                matrix = np.ascontiguousarray(held[rows]).view(np.uint16)
                matrix = np.ascontiguousarray(matrix.T if ".trans" in op else matrix)
                value[threads] = matrix.view(np.uint32).reshape(32)
            else:
                matrix = np.ascontiguousarray(machine.get(register, "b32")[threads]).view(np.uint16).reshape(8, 8)
                matrix = np.ascontiguousarray(matrix.T if ".trans" in op else matrix)
                held[rows] = matrix.view(np.uint8)
        if loads:
            machine.put(register, value)


def warps_product(machine: Machine, op: str, words: list[str]) -> None:
    """D = A B + C of a warp, 16 x 8, in bf16 with 16 inner numbers or in tf32 with 8."""
    halved = ".bf16" in op
    assert re.search(r"m16n8k16.*bf16|m16n8k8.*tf32", op), op
    d, a, b, c = map(names, words)
    for warp in range(machine.threads // 32):
        threads = slice(32 * warp, 32 * warp + 32)
        A, B, C = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
        for place, register in enumerate(a):
            row = G + 8 * (place % 2)
            if halved:
                A[row, 2 * Q + 8 * (place // 2)], A[row, 2 * Q + 1 + 8 * (place // 2)] = halves(
                    machine.get(register, "b32")[threads]
                )
            else:
                A[row, Q + 4 * (place // 2)] = _tf32(machine.get(register, "b32")[threads])
        for place, register in enumerate(b):
            if halved:
                B[2 * Q + 8 * place, G], B[2 * Q + 1 + 8 * place, G] = halves(machine.get(register, "b32")[threads])
            else:
                B[Q + 4 * place, G] = _tf32(machine.get(register, "b32")[threads])
        for place, register in enumerate(c):
            C[G + 8 * (place // 2), 2 * Q + place % 2] = machine.get(register, "f32")[threads]
        D = (A @ B + C).astype(np.float32)
        for place, register in enumerate(d):
            before = machine.registers.get(register)
            value = np.zeros(machine.threads, np.float32) if before is None else before.view(np.float32).copy()
            value[threads] = D[G + 8 * (place // 2), 2 * Q + place % 2]
            machine.put(register, value)


def four_warps_product(machine: Machine, op: str, words: list[str]) -> None:
    """D = A B + D, 64 x N with 16 inner numbers of bf16: B in shared memory, A there or in registers."""
    size = re.search(r"m64n(\d+)k16\.f32\.bf16\.bf16", op)
    assert size and machine.threads == 128, op
    d, in_registers = names(words[0]), words[1].startswith("{")
    adds = machine.registers[words[3]].all() if words[3].startswith("%") else words[3] != "0"
    *_, turned_a, turned_b = [0, *map(int, words[4:])] if in_registers else map(int, words[4:])
    lane = machine.thread % 32
    row, q = 16 * (machine.thread // 32) + lane // 4, lane % 4
    A = np.zeros((64, 16))
    if in_registers:
        for place, register in enumerate(names(words[1])):
            at = row + 8 * (place % 2), 2 * q + 8 * (place // 2)
            A[at[0], at[1]], A[at[0], at[1] + 1] = halves(machine.get(register, "b32"))
        turned_b = int(words[-1])
    else:
        A = _described(machine, words[1], 64, bool(turned_a))
    D = A @ _described(machine, words[2], int(size[1]), bool(turned_b)).T
    for place, register in enumerate(d):
        sums = D[row + 8 * (place % 4 // 2), 8 * (place // 4) + 2 * q + place % 2]
        machine.put(register, (sums + (machine.get(register, "f32") if adds else 0)).astype(np.float32))


def _described(machine: Machine, register: str, rows: int, turned: bool) -> Array:
    """[rows, 16] of shared memory, by a descriptor: where it begins, how far groups of eight lie apart, how it is
    swizzled; turned, its rows lie side by side."""
    described = int(machine.get(register, "u64")[0])
    begin, lead, stride = ((described >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    wide = SWIZZLES[described >> 62]
    r, k = np.meshgrid(np.arange(rows), np.arange(16), indexing="ij")
    at = k // 8 * stride + k % 8 * wide + 2 * r // wide * lead + 2 * r % wide
    if not turned:
        at = r // 8 * stride + r % 8 * wide + 2 * k
    at = begin + at
    at ^= (at >> 7 & TURNS[wide]) << 4
    at -= SHARED & 0x3FFFF
    assert at.min() >= 0 and at.max() + 2 <= machine.shared.size, f"{register} describes what is no shared memory"
    low, high = machine.shared[at].astype(np.uint32), machine.shared[at + 1].astype(np.uint32)
    return halves(high << np.uint32(8) | low)[0]


def _tf32(bits: Array) -> Array:
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


MATRICES: dict[str, Callable[[Machine, str, list[str]], Any]] = {
    "ldmatrix": matrices_moved,
    "stmatrix": matrices_moved,
    "mma.sync": warps_product,
    "wgmma.mma_async": four_warps_product,
}
