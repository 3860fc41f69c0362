"""Run what Triton compiles for a GPU on a CPU: a program's PTX, all threads of a block in step.

The numbers of a kernel as compiled, where there is no GPU: of layouts that the compiler chose, what it keeps in shared
memory and where, products of matrices among threads (ptx_matrices.py). A register holds a number of every
thread. What it cannot show are races, since no thread is ahead of another (one that parts from the others fails), what
the assembler makes of it (machine_code.py), and approximations: e^x and quotients are NumPy's.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from support.bits import TYPES, bf16_of, fp32_of

Array = np.ndarray[Any, Any]
Memory = list[tuple[int, Array]]  # where it begins, and its bytes

SHARED = 1 << 20  # where shared memory begins
_LINE = re.compile(r"^(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*?);$")
_PLACE = re.compile(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")
_WAITS = ("bar", "fence", "membar", "griddepcontrol")
_NO_WORK = ("wgmma.fence", "wgmma.commit", "wgmma.wait", "cp.async.wait", "cp.async.commit")
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
_COMPARE["ge"] = np.greater_equal
_LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.not_equal, "not": np.logical_not}


class Program:
    """Instructions, and where each label is."""

    def __init__(self, ptx: str) -> None:
        entry = ptx[ptx.index(".entry") :]
        head, body = entry.split("{", 1)
        self.parameters = re.findall(r"(\w+_param_\d+)", head)
        self.code: list[tuple[str | None, bool, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in re.sub(r"//[^\n]*", "", body).split("\n"):
            if label := re.match(r"\s*(\$\w+):", line):
                self.labels[label[1]] = len(self.code)
            elif (line := line.strip()) and line[0] not in ".{}":
                found = _LINE.match(line)
                assert found, line
                self.code.append((found[2], found[1] == "!", found[3], operands(found[4])))


def operands(text: str) -> list[str]:
    """Apart by commas, but for those in brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text) if part.strip()]


def names(group: str) -> list[str]:
    return [name.strip() for name in group.strip("{}").split(",")]


class Machine:
    """A block of threads at one program of a grid."""

    def __init__(
        self,
        warps: int,
        shared: int,
        block: Sequence[int],
        grid: Sequence[int],
        memory: Memory,
        counts: bool,
    ) -> None:
        self.threads, self.registers, self.memory = 32 * warps, {}, memory
        self.counts, self.cycles = counts, 0  # of shared memory's loads and stores
        self.shared = np.zeros(shared, np.uint8)
        self.thread = np.arange(self.threads, dtype=np.uint32)
        self.known = {f"%ctaid.{axis}": at for axis, at in zip("xyz", block, strict=True)}
        self.known |= {f"%nctaid.{axis}": size for axis, size in zip("xyz", grid, strict=True)}
        self.known["global_smem"] = SHARED

    def run(self, program: Program, values: Sequence[int]) -> None:
        from instruments.ptx_matrices import MATRICES

        given = dict(zip(program.parameters, values, strict=False))
        at = 0
        while at < len(program.code):
            guard, unless, op, words = program.code[at]
            at += 1
            parts = op.split(".")
            active = np.ones(self.threads, bool) if guard is None else self.registers[guard] ^ unless
            if op.startswith(("ret", "exit")):
                break
            if parts[0] == "bra":
                assert active.all() or not active.any(), "threads part from each other"
                at = program.labels[words[0]] if active.all() else at
            elif parts[0] in _WAITS or op.startswith(_NO_WORK):
                continue
            elif op.startswith("ld.param"):
                self.parameter(words[0], parts[-1], given, words[1])
            elif matrices := next((MATRICES[name] for name in MATRICES if op.startswith(name)), None):
                matrices(self, op, words)
            elif parts[0] in ("ld", "st"):
                self.move(parts, words, active)
            elif op.startswith("cp.async"):
                self.copy(words, active)
            elif parts[0] == "mov" and words[0].startswith("{"):
                self.part(names(words[0]), self.get(words[1], parts[-1]))
            else:
                self.put(words[0].split("|")[0], self.result(parts, words), active)  # | what nobody reads

    def parameter(self, to: str, kind: str, given: dict[str, int], word: str) -> None:
        name = re.match(r"\[(\w+)", word)
        assert name, word
        bits = int(kind[1:])
        value = np.full(self.threads, given.get(name[1], 0) & (1 << bits) - 1, f"u{bits // 8}").view(TYPES[kind])
        self.put(to, value.astype(np.int64) if to.startswith("%rd") and bits < 64 else value)

    def get(self, word: str, kind: str) -> Array:
        dtype = np.dtype(TYPES[kind])
        if word == "%tid.x":
            return self.thread.astype(dtype)
        if word in self.known:
            return np.full(self.threads, self.known[word], np.int64).astype(dtype)
        if word.startswith("%"):
            value = self.registers[word]
            if value.dtype.itemsize > dtype.itemsize:  # its lower half
                value = value.astype(f"u{dtype.itemsize}")
            assert value.dtype.itemsize == dtype.itemsize, (word, kind, value.dtype)
            return value.view(dtype)
        bits = int(word[2:], 16) if word[:2] in ("0f", "0F") else int(word.rstrip("U"), 0)
        return np.full(self.threads, bits & (1 << 8 * dtype.itemsize) - 1, f"u{dtype.itemsize}").view(dtype)

    def put(self, to: str, value: Array, active: Array | None = None) -> None:
        if to == "_":
            return
        before = self.registers.get(to)
        if active is not None and not active.all() and before is not None:
            value = np.where(active, value, before if before.dtype == bool else before.view(value.dtype))
        self.registers[to] = value

    def place(self, word: str) -> Array:
        found = _PLACE.match(word)
        assert found, word
        return self.get(found[1], "s64" if found[1].startswith("%rd") else "u32").astype(np.int64) + int(found[2] or 0)

    def bytes_of(self, at: Array, size: int, active: Array) -> tuple[Array, Array]:
        """The memory, shared or a tensor's, that holds what active threads name, and where in it."""
        if not active.any():
            return np.zeros(size, np.uint8), np.zeros(self.threads, np.int64)
        least, most = int(at[active].min()), int(at[active].max()) + size
        for begin, held in ((SHARED, self.shared), *self.memory):
            if begin <= least and most <= begin + held.size:
                return held, np.where(active, at - begin, 0)
        raise AssertionError(f"memory at {least:#x} to {most:#x} belongs to no tensor")

    def move(self, parts: list[str], words: list[str], active: Array) -> None:
        """A load or a store, of several numbers side by side."""
        loads, width = parts[0] == "ld", np.dtype(TYPES[parts[-1]]).itemsize
        group, where = (words[0], words[1]) if loads else (words[1], words[0])
        registers = names(group)
        held, at = self.bytes_of(self.place(where), width * len(registers), active)
        if self.counts and held is self.shared:
            self.cycles += _cycles(at, width * len(registers), active)
        for place, register in enumerate(registers):
            index = at[:, None] + place * width + np.arange(width)
            if loads:
                self.put(register, np.ascontiguousarray(held[index]).view(f"u{width}")[:, 0], active)
            else:
                value = np.ascontiguousarray(self.get(register, f"b{8 * width}")).view(np.uint8).reshape(-1, width)
                held[index[active]] = value[active]

    def copy(self, words: list[str], active: Array) -> None:
        """Copy from a tensor to shared memory; zeros where there is less than asked."""
        size = int(words[2], 0)
        there = self.get(words[3], "u32") if len(words) > 3 else np.full(self.threads, size, np.uint32)
        to, to_at = self.bytes_of(self.place(words[0]), size, active)
        reads = active & (there > 0)
        held, at = self.bytes_of(self.place(words[1]), size, reads)
        for thread in np.flatnonzero(active):
            value = held[at[thread] : at[thread] + size] if reads[thread] else 0
            to[to_at[thread] : to_at[thread] + size] = value

    def result(self, parts: list[str], words: list[str]) -> Array:
        """Return the result of an instruction among registers."""
        root, kind = parts[0], parts[-1]
        if root == "mov":
            return self.moved(kind, words)
        if root == "cvt":
            return self.converted(parts[-2], kind, words[1:])
        if root == "selp":
            return np.where(self.registers[words[3]], self.get(words[1], kind), self.get(words[2], kind))
        if root == "setp":
            return _compared(parts[1], self.get(words[1], kind), self.get(words[2], kind))
        if kind == "pred":
            x, *y = (self.registers[word] for word in words[1:])
            return (
                ~x if root == "not" else {"and": np.logical_and, "or": np.logical_or, "xor": np.not_equal}[root](x, *y)
            )
        if root == "shfl":
            source = self.get(words[2], "u32")
            lane = self.thread % 32 ^ source if "bfly" in parts else source % 32
            assert "bfly" in parts or "idx" in parts, parts
            return self.get(words[1], "b32")[self.thread // 32 * 32 + lane]
        if root == "prmt":
            return _bytes_chosen(self.get(words[1], "b32"), self.get(words[2], "b32"), int(words[3].rstrip("U"), 0))
        if root == "bfe":
            return _bits(kind, *(self.get(word, "u32") for word in words[1:]))
        if root in ("shl", "shr"):
            x = self.get(words[1], kind)
            shift = self.get(words[2], "u32").astype(x.dtype)
            return np.left_shift(x, shift) if root == "shl" else np.right_shift(x, shift)
        if "wide" in parts:
            wide = TYPES[kind[0] + str(2 * int(kind[1:]))]
            product = self.get(words[1], kind).astype(wide) * self.get(words[2], kind).astype(wide)
            return product if root == "mul" else product + self.get(words[3], kind[0] + str(2 * int(kind[1:])))
        if "hi" in parts:
            wide, shift = (np.int64 if kind[0] == "s" else np.uint64), int(kind[1:])
            x, y = (self.get(word, kind).astype(wide) for word in words[1:])
            return (x * y >> wide(shift)).astype(TYPES[kind])
        with np.errstate(all="ignore"):
            return _ARITHMETIC[root](*(self.get(word, kind) for word in words[1:]))

    def part(self, registers: list[str], value: Array) -> None:
        width = value.dtype.itemsize // len(registers)
        for at, register in enumerate(registers):
            self.put(register, (value >> value.dtype.type(8 * width * at)).astype(f"u{width}"))

    def moved(self, kind: str, words: list[str]) -> Array:
        if words[1].startswith("{"):  # together
            registers = names(words[1])
            width = int(kind[1:]) // len(registers)
            value = np.zeros(self.threads, TYPES[kind])
            for at, register in enumerate(registers):
                value |= self.get(register, f"b{width}").astype(value.dtype) << value.dtype.type(width * at)
            return value
        if kind == "pred":
            return self.registers[words[1]] if words[1] in self.registers else np.full(self.threads, words[1] != "0")
        return self.get(words[1], kind)

    def converted(self, to: str, of: str, words: list[str]) -> Array:
        if to == "bf16x2":
            high, low = (bf16_of(self.get(word, "f32")).astype(np.uint32) for word in words)
            return high << np.uint32(16) | low
        if to == "bf16":
            return bf16_of(self.get(words[0], "f32"))
        if to == "tf32":  # to nearest, away from 0
            return (self.get(words[0], "b32") + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return fp32_of(self.get(words[0], "b16")) if of == "bf16" else self.get(words[0], of).astype(TYPES[to])


def _cycles(at: Array, size: int, active: Array) -> int:
    """Return the cycles of a warp's access to shared memory.

    Threads that together ask for 128 bytes are served at a time. That takes as many cycles as words are asked of the
    most used of 32 banks.
    """
    words, together = at[:, None] // 4 + np.arange(max(1, size // 4)), min(32, 128 // size)
    groups = [slice(first, first + together) for first in range(0, len(at), together)]
    asked = [np.unique(words[group][active[group]]) for group in groups]
    return sum(int(np.bincount(word % 32).max()) for word in asked if word.size)


def _compared(how: str, x: Array, y: Array) -> Array:
    unordered = np.isnan(x) | np.isnan(y) if x.dtype == np.float32 else np.zeros(x.shape, bool)
    if how in ("nan", "num"):
        return unordered if how == "nan" else ~unordered
    if how in _COMPARE:
        return _COMPARE[how](x, y) & ~unordered
    return _COMPARE[how[:-1]](x, y) | unordered  # as in `neu`


def _bits(kind: str, x: Array, at: Array, width: Array) -> Array:
    """Extract `width` bits from `at` on; for s32 the last one is the sign."""
    at, width = at.astype(np.int64), width.astype(np.int64)
    value = x.astype(np.int64) >> at & (1 << width) - 1
    signed = np.where(value >> width - 1, value - (1 << width), value) if kind == "s32" else value
    return (signed & 0xFFFFFFFF).astype(np.uint32)


def _bytes_chosen(x: Array, y: Array, chosen: int) -> Array:
    both = x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)
    pieces: Iterable[Array] = (both >> np.uint64(8 * (chosen >> 4 * at & 7)) & np.uint64(255) for at in range(4))
    return sum(piece.astype(np.uint32) << np.uint32(8 * at) for at, piece in enumerate(pieces))


def _multiplied(x: Array, y: Array, added: Array) -> Array:
    """Rounded once."""
    return (x.astype(np.float64) * y + added).astype(np.float32) if x.dtype == np.float32 else x * y + added


def _divided(x: Array, y: Array) -> Array:
    """Whole numbers towards 0."""
    if x.dtype == np.float32:
        return x / y
    y = np.where(y == 0, 1, y).astype(x.dtype)
    return (x - np.fmod(x, y)) // y


_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert, "abs": np.abs, "max": np.fmax, "min": np.fmin, "rem": np.fmod,
    "neg": np.negative, "ex2": np.exp2, "lg2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "rcp": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x), "fma": _multiplied, "mad": _multiplied, "div": _divided,
}  # fmt: skip
