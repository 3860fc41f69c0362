"""Every operation's kernels in Triton compiled for an H100, without one: what they take of registers and shared memory.

LSTM, GRU, RNN and sLSTM have a file of their own (tests/models/test_triton_recurrences_compiled.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from support.triton_kernels import MISSING, compiled_for_an_h100, registers_and_spilled

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

from chomsky_ladder.models.operations.block_steps import gpu as block_steps
from chomsky_ladder.models.operations.conv import gpu as conv
from chomsky_ladder.models.operations.decayed import gpu as decayed
from chomsky_ladder.models.operations.delta import gpu as delta
from chomsky_ladder.models.operations.diagonal import gpu as diagonal
from chomsky_ladder.models.operations.fast_weights import gpu as fast_weights
from chomsky_ladder.models.operations.linked import gpu as linked
from chomsky_ladder.models.operations.matrix_rnn import gpu as matrix_rnn
from chomsky_ladder.models.operations.mesa import gpu as mesa
from chomsky_ladder.models.operations.mlstm import gpu as mlstm
from chomsky_ladder.models.operations.momentum import gpu as momentum
from chomsky_ladder.models.operations.one_hot import gpu as one_hot
from chomsky_ladder.models.operations.one_hot import gpu_programs as one_hot_programs
from chomsky_ladder.models.operations.path import gpu as path
from chomsky_ladder.models.operations.scan import gpu as scan
from chomsky_ladder.models.operations.slots import gpu as slots
from chomsky_ladder.models.operations.turing import gpu as turing
from chomsky_ladder.models.operations.wkv import gpu as wkv

pytestmark = pytest.mark.full
WAYS = ("forward", "backward")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The settings a kernel is compiled with, and the most registers that a thread may take."""

    constants: Mapping[str, Any]
    warps: int
    axes: int = 0
    of: str = "fp32"
    fp32: Sequence[str] = ()
    registers: int = 255
    spilled: tuple[int, int] = (0, 0)  # bytes, forward and backward
    shared: int | None = None


def of_programs(module: ModuleType, narrow: Sequence[str], of: str = "fp32", **sizes: int) -> Launch:
    """Return the launch that a declaration plans. Inputs that are not `narrow` stay in fp32."""
    given = {"R": 1, "B": 1, "H": 4, "L": 40, "KEEP": True, **sizes}
    planned = module.plan(given)
    names = {*module.forward_kernel.arg_names, *module.backward_kernel.arg_names}
    fp32 = [name for name in names if name not in narrow]
    return Launch(constants=given | planned.constants, warps=planned.warps, axes=4, of=of, fp32=fp32)


def of_slots(width: int, of: str) -> Launch:
    given = {"R": 1, "B": 1, "H": 1, "L": 40, "K": width, "M": width, "KEEP": True}
    planned = slots.plan(given)
    fp32 = ("first", "y", "last", "starts", "d_y", "d_last", "d_first")
    fp32 = (*fp32, *(("d_q", "d_k") if planned.sizes["T"] > 1 else ()))
    return Launch(constants=given | planned.constants, warps=planned.warps, axes=4, of=of, fp32=fp32, shared=1024)


def of_delta(
    keys: int, values: int, decays: int, spilled: int, *, steps: int = 1, erases: bool = True, of: str = "fp32"
) -> Launch:
    tokens = (
        torch.empty(1, 2, 3, 40 * n, width) for n, width in ((1, keys), (steps, keys), (steps, values), (1, decays))
    )
    plan = delta._Plan.of(*tokens)
    names = delta.forward_kernel.arg_names[delta.forward_kernel.arg_names.index("batch") :]
    constants = dict(list(zip(names, plan.sizes, strict=False))[3:])
    constants |= {"ERASES": erases, "READS_BEFORE": False, "KEEP": True}
    fp32 = ("decay", "first", "y", "last", "starts", "d_y", "d_last", "d_decay", "d_first")
    return Launch(constants=constants, warps=plan.warps, axes=4, of=of, fp32=fp32, spilled=(0, spilled), shared=1024)


def of_pairs(constants: dict[str, int], of: str, fp32: Sequence[str], spilled: int = 0) -> Launch:
    warps = constants["num_warps"]
    return Launch(constants=constants, warps=warps, axes=4, of=of, fp32=fp32, spilled=(0, spilled))


def of_fast_weights(keys: int, size: int, of: str) -> Launch:
    """Some of what a loop needs once may spill, for one more program at a time."""
    plan = fast_weights._Plan.of(torch.empty(1, 1, 4, 40, keys), torch.empty(1, size))
    constants = dict(zip(("K", "SIZE", "KEYS", "TOKENS"), plan.sizes[3:], strict=True))
    constants |= {"KEEP": True, "BLOCK": fast_weights.BLOCK}
    names = {*fast_weights.forward_kernel.arg_names, *fast_weights.backward_kernel.arg_names}
    fp32 = [name for name in names if name not in ("q", "k", "v", "d_q", "d_k", "d_v")]
    return Launch(constants=constants, warps=plan.warps, axes=4, of=of, fp32=fp32, spilled=(24, 24))


def of_block_steps(block: int) -> Launch:
    heads, block, whole, tile = block_steps._shape(torch.empty(1, 1, 32, block))
    constants = {"H": heads, "K": block, "WHOLE": whole, "TILE": tile, "CHUNK": block_steps.CHUNK, "STEPS": 40}
    return Launch(constants=constants, warps=block_steps.WARPS, axes=3)


def of_scan(of: str) -> Launch:
    tiling = scan._Tiling.of(16, 256)
    constants = {"N": 16, "E": 256, "STATES": tiling.states, "TILE": tiling.tile, "CHUNK": scan.CHUNK}
    constants |= {"SIGNED": of == "bf16", "KEEP": True}
    fp32 = ("bias", "A", "D", "first", "last", "starts", "glast", "gfirst", "gbias", "gD", "gA", "gB", "gC")
    return Launch(constants=constants, warps=tiling.warps, axes=3, of=of, fp32=fp32, spilled=(0, 160), shared=1024)


def of_turing(heads: int, rows: int, width: int) -> Launch:
    plan = turing.Plan.of(torch.empty(1, 2 * heads, rows), torch.empty(1, width, rows), 3)
    constants = dict(zip(("W", "N", "HEADS", "SHIFTS", "WIDTH", "ROWS"), plan.sizes, strict=True))
    return Launch(constants=constants, warps=plan.warps)


def of_linked(heads: int, rows: int, width: int) -> Launch:
    plan = linked.Plan.of(torch.empty(1, width, rows), torch.empty(1, heads, rows))
    return Launch(constants=dict(zip(("W", "N", "HEADS", "WIDTH", "ROWS"), plan.sizes, strict=True)), warps=plan.warps)


OF_DELTA = (
    of_delta(32, 32, 32, 136),
    of_delta(32, 32, 32, 128, erases=False, of="bf16"),  # as RWKV's and GLA's
    of_delta(16, 16, 1, 0),
    of_delta(64, 64, 64, 0, steps=2),
    of_delta(64, 65, 1, 384, erases=False),  # as xLSTM's: rows of an odd width are read in other layouts
)
OF_MAPS = ("query", "key", "value", "i", "f", "gmaps", "gi", "gf")
OF_AVERAGES = ("rate", "bonus", "sums", "top", "last", "last_top", "starts", "glast", "gboth", "gfirst")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PAIRS: list[tuple[ModuleType, Launch]] = [
    *((delta, launch) for launch in OF_DELTA),
    *((decayed, of_pairs(decayed.tiles(32, 64, 40, kind), of, ("decay", "gdecay"))) for of, kind in DTYPES.items()),
    (diagonal, Launch(constants={"D": 256, "TILE": diagonal.TILE, "CHUNK": diagonal.CHUNK}, warps=1, axes=3)),
    (
        wkv,
        Launch(
            constants={"D": 128, "KEEP": True, "TILE": wkv.TILE, "CHUNK": wkv.CHUNK},
            warps=1,
            axes=3,
            of="bf16",
            fp32=OF_AVERAGES,
            registers=168,
        ),
    ),
    *(
        (mlstm, of_pairs(mlstm.tiles(width, 40, kind), of, OF_MAPS, 64 if of == "bf16" else 0))
        for width in (64, 128)
        for of, kind in DTYPES.items()
    ),
    *((slots, of_slots(*size)) for size in ((64, "fp32"), (64, "bf16"), (16, "fp32"), (32, "fp32"))),
    *((slots, of_slots(128, of)) for of in DTYPES),
    *(
        (momentum, of_programs(momentum, ("q", "k", "v", "d_v"), of, K=keys, V=values))
        for keys, values in ((64, 64), (32, 32), (16, 16), (33, 20))
        for of in DTYPES
    ),
    *((path, of_programs(path, (), K=width)) for width in (32, 64, 16, 33)),
    (
        matrix_rnn,
        Launch(constants={**dict.fromkeys(("K", "V", "KP", "VP"), 32), "KEPT": True}, warps=matrix_rnn.WARPS),
    ),
    *((fast_weights, of_fast_weights(*size, "fp32")) for size in ((32, 16), (64, 16), (16, 16), (32, 32), (16, 64))),
    *((fast_weights, of_fast_weights(*size)) for size in ((33, 3, "fp32"), (32, 16, "bf16"), (64, 16, "bf16"))),
    *((block_steps, of_block_steps(block)) for block in (1, 4, 3, 16)),
    *(
        (
            conv,
            Launch(
                constants={"E": 256, "W": 4, "BIAS": True, "TILE": conv.TILE, "CHUNK": conv.CHUNK},
                warps=1,
                axes=3,
                of=of,
                fp32=("weight", "bias", "gtaps"),
                registers=128,
            ),
        )
        for of in DTYPES
    ),
    *((scan, of_scan(of)) for of in DTYPES),
    *((turing, of_turing(*size)) for size in ((4, 128, 20), (1, 128, 20), (1, 7, 5), (2, 128, 64))),
    *((linked, of_linked(*size)) for size in ((1, 64, 16), (4, 64, 16), (2, 7, 5), (1, 30, 32), (1, 64, 32))),
]


def named(value: object) -> str | None:
    return value.__name__.split(".")[-2] if isinstance(value, ModuleType) else None


@pytest.mark.parametrize(("module", "launch"), PAIRS, ids=named)
@pytest.mark.parametrize("way", WAYS)
def test_a_pair_of_kernels(tmp_path: Path, way: str, module: ModuleType, launch: Launch) -> None:
    registers, spilled, shared = taken(getattr(module, f"{way}_kernel"), launch, tmp_path)
    assert registers <= launch.registers and spilled <= launch.spilled[WAYS.index(way)]
    assert launch.shared is None or shared <= launch.shared


@pytest.mark.parametrize(("width", "most"), [(32, 176), (16, 0), (64, 80)])
@pytest.mark.parametrize("kernel", ["states", "read", "solve_back", "read_back", "write_back"])
def test_the_kernels_of_mesa(tmp_path: Path, kernel: str, width: int, most: int) -> None:
    constants = mesa.constants(width, width) | {"STEPS": width + 4}
    launch = Launch(constants=constants, warps=constants["num_warps"], axes=4)
    registers, spilled, _ = taken(getattr(mesa, f"{kernel}_kernel"), launch, tmp_path)
    assert registers <= 255 and spilled <= most


@pytest.mark.parametrize(
    ("kernel", "gathers"),
    [("places", True), *((name, way) for name in ("states", "back", "maps") for way in (True, False))],
)
def test_the_kernels_of_one_hot_maps(tmp_path: Path, kernel: str, gathers: bool) -> None:
    """Programs of two warps spill, and more of them at work at once are faster than of eight, by a third on an H200."""
    tiles = one_hot._tiles(torch.empty(1, 8, 128, 128))
    of_states = kernel in ("states", "back")
    warps = one_hot._warps_of_states(tiles) if of_states else one_hot._warps(tiles)
    program = getattr(one_hot_programs, f"{kernel}_kernel")
    compiled = compiled_for_an_h100(program, {**tiles, "GATHERS": gathers}, warps=warps, i32=("place",))
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= (128 if of_states else 0)


@pytest.mark.parametrize(("maps", "places"), [(1, 64), (2, 64), (8, 32), (16, 256), (32, 64)])
def test_a_row_of_maps_stays_in_registers(tmp_path: Path, maps: int, places: int) -> None:
    tiles = one_hot._tiles(torch.empty(1, maps, places, places))
    for gathers in (True, False):
        launch = Launch(constants={**tiles, "GATHERS": gathers}, warps=one_hot._warps(tiles))
        assert taken(one_hot_programs.maps_kernel, launch, tmp_path)[1] <= 8


def taken(kernel: Callable[..., None], launch: Launch, folder: Path) -> tuple[int, int, int]:
    """Return registers and spilled bytes of a thread, and shared memory."""
    compiled = compiled_for_an_h100(
        kernel, launch.constants, axes=launch.axes, warps=launch.warps, of=launch.of, fp32=launch.fp32
    )
    return *registers_and_spilled(compiled.asm["cubin"], folder), compiled.metadata.shared
