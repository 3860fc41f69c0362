"""Which of the assemblers that come with Triton makes our kernels: not the one that gets addresses wrong.

Release 12.8 of ptxas, which Triton takes for all before Blackwell, loses a zero. Of `add.s64 y, zext(x), c` it makes

    UIADD3   y0, P, x, c0            the low word, and its carry
    UIADD3.X y1, x, c1, P            the high word: of x, where it must be of 0

if nothing makes it move something else into x's register in between. Such sums are where a product of 16 bits has its
matrices on the chip, so that it reads elsewhere: on an H200 the gradients of mLSTM heads of 20 channels were off by as
much as nine times themselves, and those of RetNet ended by an illegal access; the same code with heads of 64 was right.
Release 12.9, which Triton has for Blackwell, adds as it should. Tests look for that pair in what is assembled.
"""

import os

import triton
from triton.backends.nvidia import compiler

PATH = "TRITON_PTXAS_PATH"  # an environment's, so that processes which compile for this one have it, too
RIGHT = (12, 9)


def choose_assembler() -> None:
    """The newer one, unless somebody chose already; with one that is wrong these kernels are none."""
    tools = triton.knobs.nvidia
    if PATH not in os.environ and release(tools.ptxas.version) < RIGHT:
        os.environ[PATH] = tools.ptxas_blackwell.path
        compiler.get_ptxas_version.cache_clear()  # or what the other one made would be taken from the cache
    if release(tools.ptxas.version) < RIGHT:
        wanted = ".".join(map(str, RIGHT))
        raise ImportError(
            f"ptxas {tools.ptxas.version} reads elsewhere than it is told: {PATH} may name {wanted} or later"
        )


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
