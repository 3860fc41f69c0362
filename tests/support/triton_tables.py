"""The kernels in Triton with their tables and sizes that are awkward on a GPU. The checks are in triton_checks.py."""

import torch

from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.decayed import decayed_pairs
from chomsky_ladder.models.operations.diagonal import diagonal_loop
from chomsky_ladder.models.operations.mesa import by_steps
from chomsky_ladder.models.operations.mlstm import mlstm_heads
from chomsky_ladder.models.operations.wkv import averages
from chomsky_ladder.models.operations.wkv.reference import NOTHING_YET
from support.operation_tables import TABLES, Draw, Table, half, log_half, unit
from support.tables_by_hand import BY_HAND, mixed
from support.triton_checks import InTriton, Sizes

IN_C = {table.kernel: table for table in (*TABLES, *BY_HAND)}

DECAYED = Table(
    kernel="triton_decayed",
    operation=decayed_pairs,
    inputs="q k: B H L K, v: B H L V, log_decay: B H L",
    draws={"log_decay": lambda x: -x.exp()},
    calls=(
        lambda act, *given: act(*given),
        lambda act, q, k, v, log_decay: act(q[:, :1], k[:, :1], v, log_decay[:1]),
    ),
    changed=(("log_decay", -1e4), ("log_decay", 0.0)),
)
DIAGONAL = Table(
    kernel="triton_diagonal",
    operation=diagonal_loop,
    inputs="a u: B P L D, h: B P D",
    draws={"a": half},
    calls=(
        lambda act, *given: act(*given),
        lambda act, a, u, h: act(a[:, 0], u[:, 0], h[:, 0]),
        lambda act, a, u, h: act(a[:, :1].expand_as(u), u, h),
        lambda act, a, u, h: act(a[:, None], u[:, None], h[:, None]),
    ),
    changed=(("a", 0.0), ("a", 1.0)),
)
WKV = Table(
    kernel="triton_wkv",
    operation=averages,
    inputs="k v: B L D, rate bonus: D, sums: B 2 D, top: B D",
    draws={"rate": torch.exp, "sums": torch.exp},
    calls=(
        lambda act, *given: act(*given[:4], given[4:]),
        lambda act, k, v, rate, bonus, sums, top: act(
            30 * k, v, rate, bonus, (torch.zeros_like(sums), torch.full_like(top, NOTHING_YET))
        ),
        lambda act, k, v, rate, bonus, sums, top: act(300 * k, v, rate, bonus, (sums, top)),
    ),
)
MLSTM = Table(
    kernel="triton_mlstm",
    operation=mlstm_heads,
    inputs="c u: B L E, query key value: N 4 4, i f: B L H",
    derived=lambda sizes: {"E": sizes["H"] * sizes["K"], "N": sizes["H"] * sizes["K"] // 4},
    changed=(("f", 30.0), ("i", 10.0)),
)
MESA = Table(
    kernel="triton_mesa",
    operation=by_steps,
    inputs="q k: B H L K, v: B H L V, beta log_decay: B H L, H: B H K K, G: B H K V",
    draws={
        "k": unit,
        "beta": half,
        "log_decay": lambda x: -x.exp(),
        "H": lambda x: x @ x.mT / x.shape[-1],
    },
    calls=(
        lambda act, *given: act(*given[:5], given[5:]),
        lambda act, *given: act(given[0], 4 * given[1], *given[2:5], given[5:]),
    ),
    changed=(("log_decay", 0.0), ("log_decay", -2000.0), ("beta", 0.0)),
)


def to_parts(share: int) -> Draw:
    """Scores that fp32 holds and TF32 does not: else it takes another of two maps that are nearly equal."""
    return lambda x: (x * share).round() / share


def of_a_head(*sizes: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Lengths with keys and values."""
    return tuple(dict(zip("LKV", each, strict=False)) for each in sizes)


ROOM = "chomsky_ladder.models.operations"

KERNELS_IN_TRITON = (
    InTriton(
        kernel="triton_delta",
        table=IN_C["native_delta"],
        module=f"{ROOM}.delta.gpu",
        sizes=of_a_head((1,), (5, 4, 5), (3, 15, 17), (4, 16, 16), (11,), (5, 33, 3), (3, 64, 40), (2, 64, 65)),
        large=of_a_head((256, 32, 32), (100, 64, 64), (1000, 16, 32)),
        bf16=("r k v", "r f g k v", "v"),
        draws={"decay": half},
        models=tuple(sorted({*named("triton_delta").serves} - {"xlstm", "xlstm_large"})),  # short ones are one product
        limits=(((1, 1, 8, 64), True), ((1, 1, 8, 65), False)),
        lean=True,
    ),
    InTriton(
        kernel="triton_decayed",
        table=DECAYED,
        module=f"{ROOM}.decayed.gpu",
        sizes=of_a_head((1, 3, 5), (17, 16, 20), (33, 17, 40), (9, 8, 4)),
        large=of_a_head((39, 32, 64), (64, 100, 128)),
        bf16=("q k v",),
        rounds_all=True,
        like={0: "v"},
        models=("retention",),
        limits=(((1, 1, 64, 8), True), ((1, 1, 65, 8), False)),
    ),
    InTriton(
        kernel="triton_diagonal",
        table=DIAGONAL,
        module=f"{ROOM}.diagonal.gpu",
        sizes=(
            *({"P": 1, "L": 1, "D": 3}, {"P": 2, "L": 9, "D": 5}, {"P": 1, "L": 7, "D": 1}),
            *({"P": 3, "L": 8, "D": 128}, {"P": 1, "L": 19, "D": 133}, {"B": 1, "P": 1, "L": 40, "D": 20}),
        ),
        large=({"B": 256, "P": 1, "L": 1024, "D": 300}, {"B": 64, "P": 2, "L": 257, "D": 128}),
        bf16=("a u h", "u"),
        tolerance=1e-6,
        models=("min_gru", "hgrn", "rwkv4", "min_lstm"),
        limits=(((1, 2048, 1), True), ((1, 2049, 1), False)),
    ),
    InTriton(
        kernel="triton_wkv",
        table=WKV,
        module=f"{ROOM}.wkv.gpu",
        sizes=({"L": 1, "D": 3}, {"L": 5, "D": 4}, {"L": 3, "D": 1}, {"L": 4, "D": 128}, {"L": 14, "D": 133}),
        large=({"B": 256, "L": 39, "D": 128}, {"B": 4, "L": 1000, "D": 300}),
        bf16=("k v",),
        rounds_all=True,
        like={0: "k"},
        without=("top",),
        models=("rwkv4",),
        limits=(((1, 2048, 1), True), ((1, 2049, 1), False)),
        lean=True,
    ),
    InTriton(
        kernel="triton_mlstm",
        table=MLSTM,
        module=f"{ROOM}.mlstm.gpu",
        sizes=(
            *({"L": 1, "H": 1, "K": 4}, {"L": 9, "H": 2, "K": 16}, {"B": 1, "L": 33, "K": 20}),
            *({"L": 17, "H": 1, "K": 72}, {"B": 1, "L": 40, "H": 2, "K": 8}),
        ),
        large=({"B": 256, "L": 39, "H": 4, "K": 64}, {"B": 8, "L": 64, "H": 2, "K": 128}),
        models=("xlstm",),
        limits=(((1, 64, 8), True), ((1, 65, 8), False)),
        tolerance=2e-5,  # a GPU's exponentials and quotients are off by two units each
    ),
    InTriton(
        kernel="triton_slots",
        table=IN_C["native_slots"],
        module=f"{ROOM}.in_triton",
        sizes=of_a_head((1,), (5,), (7, 16, 16), (8, 15, 17), (9, 3, 70), (3, 64, 40), (2, 33, 64), (2, 128, 9)),
        large=of_a_head((256, 64, 64), (100, 32, 32), (1000, 16, 16), (40, 128, 128)),
        bf16=("q k s decay", "q k", "k s"),
        draws={"q": mixed},
        models=("gated_slot_attention",),
        limits=(
            *(((1, 1, 2, 128), True), ((1, 1, 2, 129), False), ((1, 1, 2048, 1), True)),
            *(((1, 1, 2049, 1), False), ((1, 1, 1, 16), False)),
        ),
        lean=True,
    ),
    InTriton(
        kernel="triton_momentum",
        table=IN_C["native_momentum"],
        module=f"{ROOM}.in_triton",
        sizes=of_a_head((1,), (5,), (2, 1, 1), (3, 15, 17), (4, 16, 16), (5, 33, 3), (3, 64, 40), (5, 32, 33)),
        large=of_a_head((256, 32, 32), (100, 64, 64), (1000, 16, 32)),
        bf16=("q k v",),
        draws={"q": mixed, "log_a": log_half, "log_h": log_half},
        models=("titans",),
        limits=(((1, 1, 64, 65), True), ((1, 1, 65, 64), False)),
    ),
    InTriton(
        kernel="triton_path",
        table=IN_C["native_path"],
        module=f"{ROOM}.in_triton",
        sizes=of_a_head((1, 4), (9, 4), (15, 1), (16, 5), (17, 33), (32, 32), (35, 64)),
        large=of_a_head((256, 32), (100, 64), (1000, 16)),
        models=("path_attention",),
        limits=(((1, 1, 65, 64), True), ((1, 1, 64, 65), False)),
    ),
    InTriton(
        kernel="triton_mesa",
        table=MESA,
        module=f"{ROOM}.mesa.gpu",
        sizes=of_a_head((1,), (5,), (7, 1, 1), (8, 16, 16), (9, 17, 3), (19,), (7, 33, 20)),
        large=of_a_head((256, 32, 32), (100, 64, 64), (1000, 16, 32)),
        bf16=("k v",),
        models=("mesa_net",),
        limits=(((1, 1, 65, 64), True), ((1, 1, 64, 65), False)),
    ),
    InTriton(
        kernel="triton_matrix_rnn",
        table=IN_C["native_matrix_rnn"],
        module=f"{ROOM}.matrix_rnn.gpu",
        sizes=of_a_head((1, 3, 5), (4, 4, 5), (9, 16, 16), (33, 17, 4), (5, 20, 33)),
        large=of_a_head((39, 32, 32), (100, 20, 32)),
        models=("m2rnn",),
        limits=(((1, 1, 32, 32), True), ((1, 1, 32, 33), False)),
        lean=True,
    ),
    InTriton(
        kernel="triton_fast_weights",
        table=IN_C["native_fast_weights"],
        module=f"{ROOM}.fast_weights.gpu",
        sizes=(
            *({"L": 1, "H": 2, "C": 3}, {"L": 7, "H": 2, "C": 3}, {"L": 3, "C": 3, "K": 17}, {"L": 5, "C": 1, "K": 6}),
            *({"L": 19, "C": 16, "K": 16}, {"L": 40, "H": 1, "C": 20, "K": 5}, {"B": 1, "L": 15, "H": 1, "K": 64}),
        ),
        large=({"L": 256, "C": 16, "K": 64}, {"L": 1000, "C": 64, "K": 16}, {"L": 100, "C": 32, "K": 32}),
        bf16=("q k v", "q v"),
        draws={"q": mixed, "k": mixed},
        models=("ttt_linear",),
        limits=tuple(
            case
            for size, keys in ((16, 64), (1, 33), (32, 32), (64, 1))
            for case in (
                ((1, 1, size, keys + 1, keys), True),
                ((1, 1, size, 1, 2 * keys if keys > 16 else 17), False),
            )
        ),
    ),
    InTriton(
        kernel="triton_block_steps",
        table=IN_C["native_block_steps"],
        module=f"{ROOM}.block_steps.gpu",
        sizes=(
            *({"L": 1, "H": 3, "K": 4}, {"L": 5, "H": 4, "K": 4}, {"L": 3, "H": 1, "K": 1}, {"L": 4, "H": 16, "K": 4}),
            *({"L": 11, "H": 5, "K": 3}, {"B": 1, "L": 5, "H": 3, "K": 16}, {"L": 3, "H": 9, "K": 9}),
        ),
        large=({"B": 256, "L": 1024, "H": 32, "K": 4}, {"B": 64, "L": 257, "H": 20, "K": 8}),
        bf16=("c b h", "c b"),
        models=("slice",),
        limits=(((1, 2048, 1, 16, 16), True), ((1, 2049, 1, 1, 1), False), ((1, 2, 1, 17, 17), False)),
    ),
    InTriton(
        kernel="triton_silu_conv",
        table=IN_C["native_silu_conv"],
        module=f"{ROOM}.conv.gpu",
        sizes=(
            *({"L": 1, "E": 3, "W": 4}, {"L": 9, "E": 5, "W": 4}, {"L": 7, "E": 1, "W": 3}, {"L": 8, "E": 128, "W": 4}),
            *({"L": 26, "E": 5, "W": 1}, {"L": 2, "E": 3, "W": 7}, {"B": 1, "L": 9, "E": 133, "W": 2}),
        ),
        large=({"B": 256, "L": 39, "E": 256, "W": 4}, {"B": 4, "L": 1000, "E": 300, "W": 3}),
        bf16=("x",),
        rounds_all=True,
        like={0: "x"},
        models=("mamba", "gated_delta_net", "titans"),
    ),
    InTriton(
        kernel="triton_scan",
        table=IN_C["native_scan"],
        module=f"{ROOM}.scan.gpu",
        sizes=(
            *({"L": 1, "E": 16, "N": 4}, {"L": 9, "E": 5, "N": 3}, {"B": 1, "L": 2, "E": 20, "N": 16}),
            *({"B": 1, "L": 7, "E": 72, "N": 16}, {"B": 3, "L": 8, "E": 1, "N": 1}, {"L": 16, "E": 20, "N": 4}),
            *(
                {"B": 1, "L": 9, "E": 130, "N": 4},
                {"B": 1, "L": 9, "E": 20, "N": 64},
                {"B": 1, "L": 17, "E": 40, "N": 16},
            ),
        ),
        large=({"B": 4, "L": 256, "E": 256, "N": 16}, {"B": 300, "L": 40, "E": 64, "N": 16}),
        bf16=("v dt bias A B C D z h", "dt B C z"),
        rounds_all=True,
        like={0: "z", 1: "h"},
        draws={"dt": lambda x: x - 1, "A": lambda x: -4 * x.abs()},
        models=("mamba",),
        lean=True,
    ),
    InTriton(
        kernel="triton_one_hot",
        table=IN_C["native_one_hot"],
        module=f"{ROOM}.one_hot.gpu",
        sizes=(
            {"L": 1, "V": 3, "K": 2},
            {"B": 3, "L": 7, "K": 3},
            {"L": 5, "V": 16, "K": 8},
            {"B": 1, "L": 3, "V": 33, "K": 1},
        ),
        large=({"B": 256, "L": 39, "V": 128, "K": 8}, {"B": 64, "L": 100, "V": 200, "K": 5}),
        draws={"share": to_parts(64), "maps": to_parts(2048), "d": lambda x: x},
        models=("pd_ssm",),
        limits=(((1, 1, 256, 2), True), ((1, 1, 257, 2), False)),
        constants={"PROGRAMS": 1},
    ),
    InTriton(
        kernel="triton_turing",
        table=IN_C["native_turing"],
        module=f"{ROOM}.turing.gpu",
        sizes=(
            *({"H": 1, "N": 1, "W": 1, "S": 1}, {"H": 1, "N": 7}, {"H": 2, "N": 16, "W": 4, "S": 5}),
            *(
                {"H": 3, "N": 4, "W": 3, "S": 1},
                {"H": 1, "N": 3, "W": 20},
                {"H": 2, "N": 7, "S": 7},
                {"H": 1, "N": 33, "W": 17},
            ),
        ),
        large=({"H": 1, "N": 128, "W": 20}, {"H": 4, "N": 128, "W": 20}),
        lies=("in a product",),
        models=("ntm",),
        limits=(((1, 64, 128), True), ((1, 65, 128), False)),
    ),
    InTriton(
        kernel="triton_linked",
        table=IN_C["native_linked"],
        module=f"{ROOM}.linked.gpu",
        sizes=(
            *({"H": 2, "N": 1, "W": 3}, {"H": 1, "N": 7}, {"H": 2, "N": 16, "W": 4}, {"H": 3, "N": 4, "W": 3}),
            *({"H": 1, "N": 3, "W": 20}, {"H": 1, "N": 33, "W": 17}),
        ),
        large=({"H": 1, "N": 64, "W": 16}, {"H": 4, "N": 64, "W": 16}, {"H": 1, "N": 64, "W": 32}),
        lies=("in a product",),
        models=("dnc",),
        limits=(((1, 32, 64), True), ((1, 16, 65), False), ((1, 33, 16), False)),
    ),
)
IN_TRITON = {it.kernel: it for it in KERNELS_IN_TRITON}
