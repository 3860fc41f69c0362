"""The tables of operations with autograd functions by hand. tests/support/operation_tables.py says what a table has."""

from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.operations.delta import delta_loop, unit_delta_loop
from chomsky_ladder.models.operations.goose import goose_loop
from chomsky_ladder.models.operations.goose.reference import Channels
from chomsky_ladder.models.operations.mlstm import mlstm_rows
from chomsky_ladder.models.operations.mlstm.projections import RowWeights
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.recurrent import gru_layer, lstm_layer, rnn_layer
from chomsky_ladder.models.operations.slstm import slstm_scan
from support.operation_tables import Table, all_of, half, unit


def mixed(x: Tensor) -> Tensor:
    """Make a matrix that leaves its vectors about as long as they were."""
    return x / x.shape[-1] ** 0.5


def in_steps(x_BHLK: Tensor) -> Tensor:
    """Make three steps of each token."""
    return torch.stack([x_BHLK, 0.4 * x_BHLK, 0.2 + 0.3 * x_BHLK.flip(-1)], 3).flatten(2, 3)


def goose_call(act: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the present behind y."""
    y_BHLV, present_BHL1, S_BHKV = act(*given[:5], Channels(*given[5:8]), given[8])
    return torch.cat([y_BHLV, present_BHL1], -1), S_BHKV


def of_gates(sizes: dict[str, int]) -> dict[str, int]:
    return {"G": 4 * sizes["K"], "T": 3 * sizes["K"]}


def in_one_layer(sizes: dict[str, int]) -> dict[str, int]:
    """Whole blocks of 32 channels, and the gates of all heads."""
    return {"E": 32 * sizes["H"], "X": 64 * sizes["H"], "G": 2 * sizes["H"]}


RECURRENT: tuple[tuple[Operation[..., Any], str, tuple[Any, ...]], ...] = (
    (
        rnn_layer,
        "x: B L D, h: B K, ih: K D, hh: K K, bias: K",
        tuple(lambda act, *given, f=f: act(*given, activation=f) for f in ("tanh", "relu")),
    ),
    (gru_layer, "x: B L D, h: B K, ih: T D, hh: T K, bias: T, last: K", (lambda act, *given: act(*given),)),
    (lstm_layer, "x: B L D, h c: B K, ih: G D, hh: G K, bias: G", (lambda act, *given: act(*given),)),
)

ROWS_TOGETHER = (  # in C those with 1,024 channels: 146 and 4, 64 and 6, one at a time
    {"L": 2, "B": 150, "H": 2, "K": 7},
    {"L": 2, "B": 70, "H": 1, "K": 16},
    {"L": 2, "B": 2, "H": 1, "K": 1030, "D": 1},
)

BY_HAND = (
    Table(
        kernel="native_delta",
        operation=delta_loop,
        inputs="r f g k: B H L K, v: B H L V, decay: B H L K, S: B H K V",
        draws={"f": mixed, "g": mixed, "k": mixed, "decay": half},
        calls=(
            lambda act, *given: act(*given),
            lambda act, *given: act(*given, reads_before=True),
            lambda act, r, f, g, *given: act(r, None, None, *given),
            lambda act, r, f, g, *given: act(r, f, None, *given, reads_before=True),
            lambda act, r, f, g, k, v, decay, S: act(r, f, g, k, v, decay[..., :1], S),
            lambda act, r, f, g, k, v, decay, S: act(r, f, g, k, v[:, :1], decay[:1], S),
            lambda act, r, f, g, k, v, decay, S: act(r, f, g, k, v, None, S),
            lambda act, r, f, g, k, v, decay, S: act(r, *map(in_steps, (f, g, k, v)), decay, S),
            lambda act, r, f, g, k, v, decay, S: act(
                r, None, None, *map(in_steps, (k, v)), decay[..., :1], S, reads_before=True
            ),
        ),
        more=({"L": 53}, {"L": 1, "K": 64, "V": 1}, {"L": 2, "K": 17, "V": 2}),
        changed=(("decay", 0.0), ("decay", 1.0)),
        carries="S",
        slow={"f": lambda x: 0.9 * unit(x), "g": unit, "decay": all_of(0.999)},
        model="gla",
    ),
    Table(
        kernel="native_unit_delta",
        operation=unit_delta_loop,
        inputs="q k: B H L K, v: B H L V, beta: B H L 1, share decay: B H L K, S: B H K V, less: B H L 1",
        draws={"beta": lambda x: 2 * half(x), "share": half, "decay": half},
        calls=(
            lambda act, *given: act(*given[:7], scale=0.4, less_BHL1=given[7]),
            lambda act, q, k, v, beta, share, decay, S, less: act(q, k, v, beta, None, decay[..., :1], S),
            lambda act, q, k, v, beta, share, decay, S, less: act(q, k, v[:, :1], None, share, None, S, scale=2.0),
            lambda act, q, k, v, beta, share, decay, S, less: act(q, k, v, None, None, None, S, less_BHL1=less),
            lambda act, q, k, v, beta, share, decay, S, less: act(
                q, *map(in_steps, (k, v, beta, share)), decay, S, scale=0.4, less_BHL1=less
            ),
            lambda act, q, k, v, beta, share, decay, S, less: act(
                q, *map(in_steps, (k, v, beta)), None, decay[..., :1], S
            ),
        ),
        more=({"L": 53}, {"L": 1, "K": 64, "V": 1}, {"L": 2, "K": 17, "V": 2}),
        changed=(("decay", 0.0), ("decay", 1.0), ("k", 0.0)),
        carries="S",
        model="kda",
    ),
    Table(
        kernel="native_goose",
        operation=goose_loop,
        inputs="r k rate: B H L K, v: B H L V, decay: B H L K, m n u: H K, S: B H K V",
        draws={"rate": half, "decay": half},
        calls=(goose_call,),
        more=({"L": 53}, {"L": 1, "K": 64, "V": 1}, {"L": 19, "K": 64, "V": 1}),
        changed=(("decay", 0.0), ("decay", 1.0), ("k", 0.0)),
        carries="S",
        slow={"decay": all_of(0.99), "k": mixed},
    ),
    *(
        Table(
            kernel=kernel,
            operation=slstm_scan,
            inputs="x: B L H D, h y a: B H K, W: H G D, R: H G K, b: H G",
            sizes={"D": 5},
            widths=("D", "K"),
            derived=of_gates,
            draws={"W": mixed, "R": mixed},
            calls=(
                lambda act, x, h, y, a, *weights: act((x,), (h, y, a), weights),
                lambda act, x, h, y, a, *weights: act((x, x.sin()), (h, y, a - torch.inf), weights),
            ),
            more=more,
            carries="h y a",
            rounds=4,
            model="xlstm",
            backend=backend,
        )
        for kernel, backend, more in (
            ("native_slstm", "auto", ROWS_TOGETHER),
            ("fused_slstm", "fused_slstm", ({"L": 64}, {"L": 65})),
        )
    ),
    *(
        Table(
            kernel=kernel,
            operation=mlstm_rows,
            inputs="x: B L D, up: X D, taps: 4 E, tap_bias: E, qk v: 4 E, gates_c gates_u: G E, bias: G, norm skip: E, "
            "down: D E",
            sizes={"D": 12, "H": 2},
            widths=("B", "D"),
            derived=in_one_layer,
            draws=dict.fromkeys(("up", "gates_c", "gates_u", "down"), mixed) | {"taps": half, "qk": half},
            calls=(lambda act, x, *weights: act(x, RowWeights(*weights), heads=len(weights[7]) // 2),),
            more=({"H": 1, "L": 40}, {"H": 3, "L": 65}),
            changed=(("bias", 9.0), ("bias", -30.0)),
            rounds=30,  # gradients of weights are sums over all there is
            model="xlstm",
            backend=backend,
            squares=kernel == "fused_mlstm",
        )
        for kernel, backend in (("native_mlstm", "auto"), ("fused_mlstm", "fused_mlstm"))
    ),
    *(
        Table(
            kernel=f"native_{operation.name.removesuffix('_layer')}",
            operation=operation,
            inputs=inputs,
            sizes={"D": 7},
            widths=("D", "K"),
            derived=of_gates,
            draws={"ih": mixed, "hh": mixed},
            calls=calls,
            more=({"B": 65, "L": 9, "K": 5}, {"B": 130, "L": 1, "K": 16}, {"B": 13, "L": 4, "K": 33}),
            changed=(("x", 200.0),),
            carries="h c" if "c" in inputs.split(",")[1] else "h",
            rounds=30,
            model=operation.serves[0],
            backend="native_lstm" if operation is lstm_layer else "auto",
        )
        for operation, inputs, calls in RECURRENT
    ),
)
