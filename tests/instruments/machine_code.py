"""Find a fault in the machine code that Triton's assembler makes of a kernel.

An addition of 64 bits is two instructions, of which the second takes the high words and the first one's carry:

    UIADD3 UR22, UP0, UR20, 0x40, URZ        UIADD3.X UR23, UR20, -0x7fffffe0, URZ, UP0, !UPT

Here it takes the low word again, where the high one is 0 (models/kernels/triton/assembler.py). It is correct if
something was moved into that register in between.
"""

import re
import subprocess
from pathlib import Path

_ADD = re.compile(r"U?IADD3 (U?R\d+), (U?P\d), (-?U?R\d+), ")
_HIGH = re.compile(r"U?IADD3\.X (U?R\d+), (-?U?R\d+), -?0x\w+, \w+, (U?P\d)")
_COMMENT, _GUARD = re.compile(r"/\*.*?\*/"), re.compile(r"^@!?U?P\w+\s+")
_WRITES = re.compile(r"\S+ (?:U?P\w+, )?(U?R\d+)")


def lost_zeros(code: str) -> list[str]:
    """The second instruction of each such pair that takes a low word for a high one."""
    found, carried, written = [], {}, {}  # carried: of a predicate, when it was made, and of which low word
    for at, line in enumerate(code.splitlines()):
        text = _GUARD.sub("", _COMMENT.sub("", line).strip())
        if high := _HIGH.match(text):
            made, low = carried.get(high[3], (-1, ""))
            if high[2] == low and written.get(low, -1) <= made:
                found.append(text)
        if add := _ADD.match(text):
            carried[add[2]] = (at, add[3])
        if writes := _WRITES.match(text):
            written[writes[1]] = at
    return found


def disassembled(cubin: bytes, folder: Path) -> str:
    import triton

    (folder / "cubin").write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    return subprocess.run([tool, "-c", folder / "cubin"], capture_output=True, text=True, check=True).stdout
