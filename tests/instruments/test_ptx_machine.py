"""The CPU that runs a GPU's instructions does what they say, and what it cannot do it refuses."""

import numpy as np
import pytest

from instruments.ptx_machine import Machine, Program

pytestmark = pytest.mark.full

HEAD = ".visible .entry k(\n .param .u64 k_param_0,\n .param .u32 k_param_1\n)\n{\n.reg .b32 %r<9>;\n"
STORE = "ld.param.b64 %rd1, [k_param_0];\nmul.wide.u32 %rd2, %tid.x, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"


def run(code: str, *, size: int = 32, begins: int = 4096, given: int = 3) -> np.ndarray:
    """32 numbers that a warp writes, which begin at an address that the first parameter is."""
    held = np.zeros(4 * size, np.uint8)
    machine = Machine(1, 256, (2, 0, 0), (5, 1, 1), [(begins, held)], False)
    machine.run(Program(HEAD + "ld.param.b32 %r8, [k_param_1];\n" + STORE + code + "\nret;\n}\n"), [4096, given])
    return held.view(np.uint32)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("mad.lo.s32 %r1, %tid.x, %r8, 1;", lambda t: 3 * t + 1),
        ("mul.hi.u32 %r1, %tid.x, 0x80000000;", lambda t: t // 2),
        ("bfe.u32 %r1, %tid.x, 1, 2;", lambda t: t // 2 % 4),
        ("bfe.s32 %r1, %tid.x, 1, 2;", lambda t: [0, 1, -2, -1][t // 2 % 4] & 0xFFFFFFFF),
        ("sub.s32 %r2, 3, %tid.x;\nrem.s32 %r1, %r2, 2;", lambda t: (1 if t < 3 else -1) * ((3 - t) % 2) & 0xFFFFFFFF),
        ("sub.s32 %r2, 1, %tid.x;\ndiv.s32 %r1, %r2, 2;", lambda t: -(abs(1 - t) // 2) & 0xFFFFFFFF),
        ("shfl.sync.bfly.b32 %r1|%p9, %tid.x, 3, 31, -1;", lambda t: t ^ 3),
        ("shfl.sync.idx.b32 %r1, %tid.x, 5, 31, -1;", lambda t: 5),
        ("mov.u32 %r1, %ctaid.x;", lambda t: 2),
        ("mov.u32 %r1, 7;\nsetp.lt.u32 %p1, %tid.x, 4;\n@%p1 mov.u32 %r1, 9;", lambda t: 9 if t < 4 else 7),
        ("mov.b32 {%rs1, %rs2}, 0x00050004;\nmov.b32 %r1, {%rs2, %rs1};", lambda t: 0x00040005),
        ("prmt.b32 %r1, 0x03020100, 0x07060504, 0x7410;", lambda t: 0x07040100),
        ("mov.u32 %r1, 0;\n$L:\nadd.s32 %r1, %r1, 2;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra $L;", lambda t: 10),
        ("setp.num.f32 %p1, 0f7FC00000, 0f3F800000;\nselp.b32 %r1, 1, 0, %p1;", lambda t: 0),
        ("cvt.rn.bf16x2.f32 %r1, 0f3F800000, 0f40000000;", lambda t: 0x3F804000),
        ("mov.b32 %r2, global_smem;\nst.shared.b32 [%r2], %r8;\nld.shared.b32 %r1, [%r2+0];", lambda t: 3),
    ],
    ids=lambda value: value.replace("\n", " ") if isinstance(value, str) else "",
)
def test_instructions(code: str, expected: object) -> None:
    found = run(code + "\nst.global.b32 [ %rd3 + 0 ], %r1;")
    assert callable(expected) and found.tolist() == [expected(t) for t in range(32)]


def test_a_thread_that_may_not_writes_nothing() -> None:
    found = run("setp.lt.u32 %p1, %tid.x, 4;\n@!%p1 st.global.b32 [ %rd3 + 0 ], %r8;")
    assert found.tolist() == [0] * 4 + [3] * 28


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("st.global.b32 [ %rd3 + 4 ], %r8;", "belongs to no tensor"),
        ("mov.b32 %r2, global_smem;\nst.shared.b32 [%r2+256], %r8;", "belongs to no tensor"),
        ("setp.lt.u32 %p1, %tid.x, 4;\n@%p1 bra $L;\n$L:", "threads part"),
    ],
)
def test_what_a_kernel_may_not_do_is_found(code: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        run(code)
