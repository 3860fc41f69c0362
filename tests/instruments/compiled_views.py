"""Find where what Inductor compiled reads beyond what it allocates: in its output code, without running it.

    buf8 = empty_strided_cuda((9, 256, 4, 39, 32), (1277952, 4992, 32, 128, 1), torch.bfloat16)    # 11,501,568 numbers
    extern_kernels.bmm(reinterpret_tensor(buf8, (9216, 39, 32), (1280, 32, 1), 0), ..)              # reads 11,796,448

A view is laid over a buffer by strides that were read before the buffer's were settled (torch 2.11, of queries in
attention where strides of large tensors are lengthened). On a GPU this is a wrong number, or an illegal access, and no
error of the compiler.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._inductor.codecache import PyCodeCache

MADE = re.compile(r"\s*(buf\d+) = empty_strided\w*\((\([\d, ]*\)), (\([\d, ]*\)), ")
AGAIN = re.compile(r"\s*(buf\d+) = (?:reinterpret_tensor\()?(buf\d+)[,;] ")  # a buffer that takes another's memory
VIEW = re.compile(r"reinterpret_tensor\((buf\d+), (\([\d, ]*\)), (\([\d, ]*\)), (\d+)\)")


def extent(size: str, stride: str) -> int:
    """Numbers from the first to the last of a view."""
    sizes, strides = ast.literal_eval(size), ast.literal_eval(stride)
    return 0 if 0 in sizes else 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))


def beyond(code: str) -> list[str]:
    """Return the views that read too far, as `buf8: 11,796,448 of 11,501,568`."""
    room: dict[str, int] = {}
    found: dict[str, int] = {}
    for line in code.splitlines():
        for name, size, stride, offset in VIEW.findall(line):
            reads = int(offset) + extent(size, stride)
            if reads > room.get(name, reads):
                found[name] = max(reads, found.get(name, 0))
        if made := MADE.match(line):
            room[made[1]] = extent(made[2], made[3])
        elif (again := AGAIN.match(line)) and again[2] in room:
            room[again[1]] = room[again[2]]
    return [f"{name}: {reads:,} of {room[name]:,}" for name, reads in found.items()]


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect the views that read too far in all code compiled in this context."""
    found: list[str] = []
    write = PyCodeCache.write

    def looked_at(code: str, extra: str = "") -> Any:
        found.extend(beyond(code))
        return write(code, extra)

    PyCodeCache.write = looked_at  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield found
    finally:
        PyCodeCache.write = write  # pyright: ignore[reportAttributeAccessIssue]
