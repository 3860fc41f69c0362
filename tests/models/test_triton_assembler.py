"""The assembler of our Triton kernels is one that adds 64 bits as it should, and that one does not is seen."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from support.triton_kernels import MISSING, compiled_for_an_h100

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

import triton

from chomsky_ladder.models.kernels.triton import assembler
from chomsky_ladder.models.operations.decayed import gpu as decayed

RIGHT = """
        /*2460*/              @P1  UIADD3 UR8, UP0, UR4, 0x40, URZ ;             /* 0x0000 */
        /*2470*/                   UMOV UR4, URZ ;                               /* 0x0000 */
        /*2480*/                   UIADD3.X UR9, UR4, -0x7fffffe0, URZ, UP0, !UPT ; /* 0x0000 */
        /*2490*/                   IADD3 R2, P0, R4, 0x8, RZ ;
        /*24a0*/                   IADD3.X R3, R5, RZ, RZ, P0, !PT ;
"""


def products_on_the_chip() -> Any:
    """RetNet's way back, compiled: heads of 32 keys, which are one block."""
    constants = decayed.tiles(32, 64, 39, torch.bfloat16)
    return compiled_for_an_h100(
        decayed.backward_kernel, constants, axes=4, warps=constants["num_warps"], of="bf16", fp32=("decay", "gdecay")
    )


@pytest.mark.full
@pytest.mark.parametrize("moved", [True, False])
def test_a_low_word_that_is_taken_for_a_high_one_is_found(moved: bool) -> None:
    from instruments.machine_code import lost_zeros

    code = RIGHT if moved else RIGHT.replace("UMOV UR4", "UMOV UR6")
    assert lost_zeros(code) == ([] if moved else ["UIADD3.X UR9, UR4, -0x7fffffe0, URZ, UP0, !UPT ;"])


@pytest.mark.full
def test_a_sum_that_lies_where_its_low_word_was_is_no_high_word() -> None:
    from instruments.machine_code import lost_zeros

    code = RIGHT.replace("UMOV UR4", "UMOV UR6").replace("UR8, UP0, UR4", "UR4, UP0, UR4")
    assert len(lost_zeros(code)) == 1


@pytest.mark.full
def test_products_of_ours_are_where_they_were_put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from instruments.machine_code import disassembled, lost_zeros

    assert lost_zeros(disassembled(products_on_the_chip().asm["cubin"], tmp_path)) == []
    monkeypatch.delenv(assembler.PATH)
    if assembler.release(triton.knobs.nvidia.ptxas.version) >= assembler.RIGHT:
        pytest.skip("Triton's own assembler is right")
    assembler.compiler.get_ptxas_version.cache_clear()  # or it would find what the other one made
    try:
        with pytest.raises(AssertionError, match="reads elsewhere"):
            products_on_the_chip()
    finally:
        assembler.compiler.get_ptxas_version.cache_clear()


class Tools:
    """Of a Triton whose own assembler is of one release, and that for Blackwell of another."""

    def __init__(self, environment: dict[str, str], own: str, other: str) -> None:
        self.environment, self.own = environment, own
        self.ptxas_blackwell = SimpleNamespace(version=other, path=f"/{other}")

    @property
    def ptxas(self) -> Any:
        path = self.environment.get(assembler.PATH, f"/{self.own}")
        return SimpleNamespace(version=path[1:], path=path)


@pytest.mark.parametrize(
    ("own", "other", "before", "chosen"),
    [
        ("12.8", "12.9", None, "/12.9"),
        ("12.8", "12.9", "/13.0", "/13.0"),
        ("12.9", "13.0", None, None),
        ("13.1", "12.9", None, None),
    ],
)
def test_the_newer_assembler_is_taken_where_the_own_one_is_wrong(
    own: str, other: str, before: str | None, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {} if before is None else {assembler.PATH: before}
    monkeypatch.setattr(assembler.triton, "knobs", SimpleNamespace(nvidia=Tools(environment, own, other)))
    monkeypatch.setattr(assembler.os, "environ", environment)
    assembler.choose_assembler()
    assert environment.get(assembler.PATH) == chosen


@pytest.mark.parametrize(("other", "before"), [("12.8", None), ("12.9", "/12.4")])
def test_without_a_right_one_there_are_no_such_kernels(
    other: str, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {} if before is None else {assembler.PATH: before}
    monkeypatch.setattr(assembler.triton, "knobs", SimpleNamespace(nvidia=Tools(environment, "12.8", other)))
    monkeypatch.setattr(assembler.os, "environ", environment)
    with pytest.raises(ImportError, match=r"elsewhere than it is told: TRITON_PTXAS_PATH may name 12\.9 or later"):
        assembler.choose_assembler()
