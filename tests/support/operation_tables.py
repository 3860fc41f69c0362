"""The table of operations: how the inputs of each are drawn, and what else they may be. The tests are those of all.

    Table(kernel="native_slots", operation=slots, inputs="q k: B H L K, s decay: B H L V, first: B H K V", ..)

`inputs` names the tensors of a call in their order, with their axes. A letter has the size that the case or the table
says, or else the one in SIZES. Every operation has the cases of `cases_of`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.layers.positions import turns
from chomsky_ladder.models.operations import conv, mesa
from chomsky_ladder.models.operations.attention import causal_attention
from chomsky_ladder.models.operations.block_steps import block_steps
from chomsky_ladder.models.operations.deltaformer import delta_attention
from chomsky_ladder.models.operations.fast_weights import Norm, fast_weights_from
from chomsky_ladder.models.operations.linked import linked_turn
from chomsky_ladder.models.operations.linked.reference import asked_of as to_follow
from chomsky_ladder.models.operations.long_conv import long_convolution
from chomsky_ladder.models.operations.matrix_rnn import matrix_rnn
from chomsky_ladder.models.operations.momentum import momentum
from chomsky_ladder.models.operations.moves import after_moves
from chomsky_ladder.models.operations.moves.reference import of_ring, of_stack
from chomsky_ladder.models.operations.one_hot import one_hot
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.path import attended
from chomsky_ladder.models.operations.scan import gated
from chomsky_ladder.models.operations.slots import slots
from chomsky_ladder.models.operations.space import System, impulse_response
from chomsky_ladder.models.operations.ssd import ssd_chunks
from chomsky_ladder.models.operations.sticks import stick_breaking
from chomsky_ladder.models.operations.turing import turing_turn
from chomsky_ladder.models.operations.turing.reference import SCALARS
from chomsky_ladder.models.operations.turing.reference import asked_of as to_turn

SIZES = {"B": 2, "H": 3, "L": 9, "K": 4, "V": 5}
LENGTHS = (1, 2, 3, 16, 17, 33)
WIDTHS = ((1, 1), (16, 16), (15, 17), (17, 15), (20, 3), (33, 40))
REPLICAS = 3

Draw = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    kernel: str
    operation: Operation[..., Any]
    inputs: str
    draws: Mapping[str, Draw] = field(default_factory=dict)
    """Functions that make an input from a normal one; other inputs stay as they are."""
    calls: tuple[Callable[..., Any], ...] = (lambda act, *tensors: act(*tensors),)
    """Calls of the operation with the tensors, one for each of its options."""
    sizes: dict[str, int] = field(default_factory=dict)
    derived: Callable[[dict[str, int]], dict[str, int]] = lambda sizes: {}
    """Sizes that follow from others."""
    more: tuple[dict[str, int], ...] = ()
    """Sizes of further cases."""
    widths: tuple[str, str] = ("K", "V")
    """The letters of widths that need not fill a vector."""
    changed: tuple[tuple[str, float], ...] = ()
    """Inputs and what all of their numbers may be."""
    carries: str = ""
    """The inputs that the last outputs are, for the next call with what follows in time (L)."""
    forgets: tuple[str, float] | None = None
    """An input, and the value at which a token forgets all before it."""
    dying: Mapping[str, Draw] = field(default_factory=dict)
    """Draws with which gradients die out within 200 tokens."""
    narrow: str = ""
    """Inputs that may be of 16 bits, in C."""
    shared: str = ""
    """Inputs that all replicas share."""
    model: str = ""
    """One that calls it; the first that it serves, if there is none."""
    backend: str = "auto"
    """The backend under which the model takes it: its own name, if something else comes first."""
    squares: bool = False
    """True if it keeps something for all pairs of tokens."""
    spreads: str = ""
    """Inputs of which NaN and infinity reach the very numbers that they reach in the plain form."""
    rounds: float = 2.0
    """The allowed error in single precision, as a multiple of the plain form's."""
    slow: Mapping[str, Draw] = field(default_factory=dict)
    """Draws for 300 tokens of which little is forgotten."""

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        parts = [part.partition(":") for part in self.inputs.split(",")]
        return {name: tuple(axes.split()) for names, _, axes in parts for name in names.split()}


def of_heads(sizes: dict[str, int]) -> dict[str, int]:
    """The heads of queries, and G of keys and of values; an even width."""
    return {"X": sizes["H"] + 2 * sizes["G"], "K": 2 * sizes["J"]}


def turns_of(heads_BLXK: Tensor) -> Tensor:
    return turns(torch.arange(heads_BLXK.shape[1]), heads_BLXK.shape[-1], dtype=heads_BLXK.dtype)


def shifts_of(asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor) -> int:
    return asked_BX.shape[-1] // weight_BHN.shape[1] - 2 * memory_BWN.shape[1] - SCALARS


class Case(NamedTuple):
    sizes: dict[str, int] = {}
    lies: str = "in one piece"  # or "turned", "in a product"
    changed: tuple[str, float] | None = None
    part: int | None = None  # the output whose gradients are taken; None: all
    call: int = 0


PLAIN = Case()


def cases_of(table: Table) -> Iterator[Case]:
    for call in range(len(table.calls)):
        yield from (Case({"L": length}, call=call) for length in LENGTHS)
        yield from (Case({"L": 5} | dict(zip(table.widths, widths, strict=True)), call=call) for widths in WIDTHS)
        yield from (Case(sizes, call=call) for sizes in table.more)
        yield from (Case(lies=lies, call=call) for lies in ("turned", "in a product"))
        yield from (Case({"L": 12}, changed=changed, call=call) for changed in table.changed)


def drawn(table: Table, case: Case = PLAIN, *, draws: Mapping[str, Draw] | None = None, seed: int = 0) -> list[Tensor]:
    """Return the inputs in double precision, which want gradients."""
    sizes, made = SIZES | table.sizes | case.sizes, []
    sizes |= table.derived(sizes)
    generator = torch.Generator().manual_seed(seed)
    for name, axes in table.axes.items():
        shape = [int(x) if x.isdigit() else sizes[x] for x in axes]
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        draw = (draws or {}).get(name) or table.draws.get(name)
        x = x if draw is None else draw(x)
        if case.changed and case.changed[0] == name:
            x = torch.full_like(x, case.changed[1])
        made.append(laid(x, case.lies).detach().requires_grad_())
    return made


def laid(x: Tensor, lies: str) -> Tensor:
    """Return the same numbers in another order of memory, or as a part of something wider."""
    if lies == "turned" and x.ndim > 1:
        first = 1 if x.ndim > 3 else 0
        return x.transpose(first, first + 1).contiguous().transpose(first, first + 1)
    return torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : x.shape[-1]] if lies == "in a product" else x


def flat(outputs: Any) -> list[Tensor]:
    """Return the tensors among what an operation returns, in order."""
    if outputs is None:
        return []
    return [outputs] if isinstance(outputs, Tensor) else [x for part in outputs for x in flat(part)]


def forms(table: Table, case: Case = PLAIN) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return the kernel and the plain form: functions of tensors whose outputs lie one behind the other."""

    def form(act: Callable[..., Any]) -> Callable[..., Tensor]:
        def joined(*tensors: Tensor) -> Tensor:
            outputs = flat(table.calls[case.call](act, *tensors))
            wanted = outputs if case.part is None else [outputs[case.part]]
            return torch.cat([x.flatten() for x in wanted])

        return joined

    return form(named(table.kernel).call), form(table.operation.reference)


def all_of(value: float) -> Draw:
    return lambda x: torch.full_like(x, value)


def half(x: Tensor) -> Tensor:
    return x.sigmoid()


def log_half(x: Tensor) -> Tensor:
    return nn.functional.logsigmoid(x)


def unit(x: Tensor) -> Tensor:
    return nn.functional.normalize(x, dim=-1)


_GATES = tuple((gate, value) for gate in ("log_a", "log_h") for value in (0.0, -300.0, -math.inf))

TABLES = (
    Table(
        kernel="native_momentum",
        operation=momentum,
        inputs="q k: B H L K, v: B H L V, r log_a log_h: B H L, M S: B H K V",
        draws={"k": unit, "r": half, "log_a": log_half, "log_h": log_half},
        calls=(lambda act, *tensors: act(*tensors[:6], tensors[6:]),),
        changed=_GATES,
        carries="M S",
        dying={"log_a": all_of(math.log(0.4)), "log_h": all_of(math.log(0.4))},
        narrow="r log_a log_h",
        slow={"log_a": lambda x: log_half(x) / 100, "log_h": lambda x: log_half(x) - 0.5},
    ),
    Table(
        kernel="native_slots",
        operation=slots,
        inputs="q k: B H L K, s decay: B H L V, first: B H K V",
        draws={"decay": lambda x: x.sigmoid() ** 3},
        changed=(("decay", 0.0), ("decay", 1e-30), ("decay", 1.0)),
        carries="first",
        forgets=("decay", 0.0),
        dying={"decay": all_of(0.5)},
        slow={"decay": lambda x: 1 - x.sigmoid() / 100},
    ),
    Table(
        kernel="native_matrix_rnn",
        operation=matrix_rnn,
        inputs="q k: B L H K, v: B L H V, f: B L H, W: H V V, h: B H K V",
        draws={"f": half, "W": lambda x: x / x.shape[-1] ** 0.5},
        changed=(("f", 0.0), ("f", 1.0)),
        carries="h",
        dying={"f": all_of(0.4), "W": all_of(0.0)},
        spreads="k v",
        slow={"W": lambda x: x / x.shape[-1] ** 0.5 / 2},
    ),
    Table(
        kernel="native_block_steps",
        operation=block_steps,
        inputs="c: B L C, b: B L X, h: B H K",
        derived=lambda sizes: {"C": sizes["H"] * sizes["K"] ** 2, "X": sizes["H"] * sizes["K"]},
        widths=("H", "K"),
        calls=tuple(lambda act, *tensors, steps=steps: act(*tensors, steps=steps) for steps in (7, 40)),
        carries="h",
        spreads="c",
        slow={"c": lambda x: x / 9},
    ),
    Table(
        kernel="native_fast_weights",
        operation=fast_weights_from,
        inputs="q k v: B H L K, rate: B H L, place_rate: C, scale shift: H 1 K, M: B H X K",
        derived=lambda sizes: {"X": sizes["K"] + 1},
        sizes={"C": 16},
        widths=("C", "K"),
        draws={"rate": lambda x: x.sigmoid() / 9, "place_rate": half, "scale": lambda x: 1 + x / 3},
        calls=(lambda act, *tensors: act(*tensors[:5], Norm(*tensors[5:7]), tensors[7]),),
        more=({"L": 45, "C": 3, "K": 17}, {"L": 45, "C": 20}, {"L": 45, "C": 64}),
        rounds=5,
    ),
    Table(
        kernel="native_mesa",
        operation=mesa.exact,
        inputs="q k: B H L K, v: B H L V, beta log_decay: B H L, H: B H K K, G: B H K V",
        draws={
            "k": lambda x: x / x.shape[-1] ** 0.5,
            "beta": half,
            "log_decay": lambda x: log_half(x) / 4,
            "H": lambda x: x @ x.mT / x.shape[-1],
        },
        calls=(lambda act, *tensors: act(*tensors[:5], tensors[5:]),),
        more=({"B": 1, "L": 3}, {"B": 5, "L": 8}, {"B": 11, "L": 7}),
        changed=(("beta", 0.0), ("beta", 1.0), ("log_decay", 0.0), ("log_decay", -1e4)),
        carries="H G",
        slow={"log_decay": lambda x: torch.full_like(x, -1e-4)},
    ),
    Table(
        kernel="native_one_hot",
        operation=one_hot,
        inputs="share: B L K, maps: K V V, d b: B L V 2, h: B V 2",
        draws={
            "share": lambda x: torch.softmax(3 * x, -1),
            "d": lambda x: unit(x) * x[..., :1].sigmoid(),
        },
        calls=tuple(lambda act, *tensors, form=form: act(*tensors, form) for form in ("gather", "scatter")),
        more=({"L": 11, "V": 16, "K": 8}, {"L": 11, "V": 17, "K": 9}, {"L": 11, "V": 40, "K": 17}, {"L": 11, "K": 1}),
    ),
    Table(
        kernel="native_space",
        operation=impulse_response,
        inputs="d b C q r: H M 2",
        widths=("H", "M"),
        sizes={"M": 5},
        draws={"d": unit, "q": lambda x: x / 9, "r": lambda x: x / 9},
        calls=tuple(
            lambda act, d, b, C, q, r, length=length, has_rank=has_rank: act(
                C, System(d, q if has_rank else None, r if has_rank else None, b), length
            )
            for length, has_rank in ((1, True), (2, False), (3, True), (33, False), (33, True), (130, True))
        ),
    ),
    Table(
        kernel="native_long_conv",
        operation=long_convolution,
        inputs="z: B L K, taps: T K",
        sizes={"T": 1},
        widths=("B", "K"),
        more=({"L": 9, "T": 8}, {"L": 9, "T": 9}, {"L": 40, "T": 14, "K": 17}),
    ),
    Table(
        kernel="native_turing",
        operation=turing_turn,
        inputs="asked: B X, weight: B Y N, memory: B W N",
        sizes={"H": 2, "N": 9, "W": 5, "S": 3},
        derived=lambda sizes: {"Y": 2 * sizes["H"], "X": sum(to_turn(sizes["H"], sizes["W"], sizes["S"]))},
        widths=("N", "W"),
        draws={"weight": lambda x: torch.softmax(2 * x, -1)},
        calls=(lambda act, *tensors: act(*tensors, shifts=shifts_of(*tensors)),),
        more=(
            {"H": 1, "N": 128, "W": 20},
            {"H": 4, "N": 33, "W": 17},
            {"N": 1, "S": 1},
            {"N": 7, "S": 1},
            {"N": 4, "S": 5},
            {"N": 7, "S": 7},
        ),
    ),
    Table(
        kernel="native_linked",
        operation=linked_turn,
        inputs="asked: B X, memory: B W N, usage write precedence: B N, link: B N N, weight: B H N",
        sizes={"H": 2, "N": 9, "W": 5},
        derived=lambda sizes: {"X": sum(to_follow(sizes["H"], sizes["W"]))},
        widths=("N", "W"),
        draws={
            "usage": half,
            "write": lambda x: 0.8 * torch.softmax(2 * x, -1),
            "precedence": lambda x: 0.9 * torch.softmax(2 * x, -1),
            "link": lambda x: 0.7 * torch.softmax(2 * x, -1),
            "weight": lambda x: torch.softmax(2 * x, -1),
        },
        more=({"H": 1, "N": 128, "W": 20}, {"H": 4, "N": 33, "W": 17}),
    ),
    Table(
        kernel="native_moves",
        operation=after_moves,
        inputs="new: B H K, memory: B H N K, share: B H 3",
        sizes={"N": 9},
        widths=("N", "K"),
        calls=(
            lambda act, new, memory, share: act(new, memory, share, of_stack(memory.shape[2]), replaces=False),
            lambda act, new, memory, share: act(
                new, memory, share, of_ring(memory.shape[2], (0, -1, 5)), replaces=True
            ),
        ),
    ),
    *(
        Table(
            kernel=kernel,
            operation=operation,
            inputs="x: B L E, weight: E W, bias: E",
            sizes={"E": 5, "W": 4},
            widths=("W", "E"),
            calls=(
                lambda act, x, weight, bias: act(x, weight, bias),
                lambda act, x, weight, bias: act(x, weight, None),
            ),
            more=({"L": 2, "W": 4}, {"L": 40, "W": 2, "E": 33}, {"L": 40, "W": 3}),
            rounds=30,  # a gradient of the bias is one sum over all there is
            model=model,
        )
        for kernel, operation, model in (
            ("native_conv", conv.short, "min_gru"),
            ("native_silu_conv", conv.with_silu, "mamba"),
        )
    ),
    Table(
        kernel="native_scan",
        operation=gated,
        inputs="v dt: B L E, bias: E, A: N E, B C: B L N, D: E, z: B L E, h: B N E",
        sizes={"E": 19, "N": 3},
        widths=("E", "N"),
        draws={"A": lambda x: -x.abs()},
        calls=tuple(lambda act, *tensors, signed=signed: act(*tensors, signed) for signed in (False, True)),
        more=({"L": 31}, {"L": 32}, {"L": 64}, {"L": 70}),
        carries="h",
        narrow="dt B C z",
        slow={"A": lambda x: -x.abs() / 9},
    ),
    Table(
        kernel="native_ssd",
        operation=ssd_chunks,
        inputs="u: B L H P K, log_a: B L H, B C: B L G P N, h: B H N K, weight own: B L H, skip: H",
        sizes={"H": 2, "G": 2, "P": 1, "N": 5},
        widths=("N", "K"),
        draws={"log_a": lambda x: -half(x), "weight": half, "own": half},
        calls=(
            lambda act, *given: act(*given[:5], weight_BLH=given[5], own_BLH=given[6], skip_H=given[7]),
            lambda act, *given: act(*given[:4], None, weight_BLH=given[5], own_BLH=given[6], skip_H=given[7]),
            lambda act, *given: act(*given[:5], weight_BLH=given[5], skip_H=given[7]),
        ),
        more=(
            *({"L": length, "P": 2, "G": 1} for length in (1, 23, 50)),
            *({"L": length, "P": 3} for length in (5, 50)),
            *({"L": length} for length in (64, 65, 130)),
            {"L": 70, "N": 33, "K": 64},
        ),
        changed=(("log_a", -100.0), ("log_a", 0.0)),
        carries="h",
        dying={"log_a": all_of(math.log(0.4))},
        model="mamba2",
    ),
    Table(
        kernel="native_path",
        operation=attended,
        inputs="q k v w: B H L K, beta total: B H L",
        sizes={"K": 6},
        widths=("H", "K"),
        draws={"w": unit, "beta": lambda x: 2 * half(x), "total": lambda x: -half(x).cumsum(-1)},
        calls=(
            lambda act, *given: act(*given),
            lambda act, *given: act(*given[:5], None),
        ),
        more=({"L": 32}, {"L": 40}),
        changed=(("beta", 0.0), ("beta", 1.0), ("beta", 2.0)),
    ),
    Table(
        kernel="native_attention",
        operation=causal_attention,
        inputs="heads: B L X K, level: B L H",
        sizes={"G": 3, "J": 3},
        derived=of_heads,
        widths=("B", "J"),
        draws={"level": lambda x: -half(x).cumsum(1)},
        calls=tuple(
            lambda act, heads, level, turned=turned, levels=levels, window=window: act(
                heads,
                turns_of(heads) if turned else None,
                level if levels else None,
                num_heads=level.shape[-1],
                window=window,
            )
            for turned, levels, window in ((True, True, 0), (False, False, 5), (True, False, 31), (False, True, 0))
        ),
        more=({"H": 4, "G": 2, "J": 17}, {"G": 1, "J": 8}, {"L": 67}),
        slow={"heads": lambda x: 6 * x},
    ),
    Table(
        kernel="native_sticks",
        operation=stick_breaking,
        inputs="heads: B L X K",
        sizes={"G": 3, "J": 3},
        derived=of_heads,
        widths=("B", "J"),
        calls=(lambda act, heads: act(heads, num_heads=heads.shape[2] // 3),),
        more=({"L": 67}, {"G": 1, "H": 1, "L": 40}),
        dying={"heads": lambda x: x / 3},
        slow={"heads": lambda x: 6 * x},
    ),
    Table(
        kernel="native_deltaformer",
        operation=delta_attention,
        inputs="heads: B L X K, beta: B L H",
        sizes={"G": 3, "J": 3},
        derived=of_heads,
        widths=("B", "J"),
        calls=tuple(
            lambda act, heads, beta, by_query=by_query: act(heads, turns_of(heads), beta, asks_by_query=by_query)
            for by_query in (False, True)
        ),
        more=({"L": 40}, {"L": 67}),
        slow={"heads": lambda x: 3 * x, "beta": half},
    ),
)
