"""The fused LSTM, sLSTM, GRU and RNN beside their references: the cases, and what is wrong with each.

References run in double precision on the same inputs, and memory that a kernel has to fill is NaN before. Triton reads
TRITON_INTERPRET when it is imported, so `interpret` is the work of a process of its own.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.slstm.reference import slstm_scan
from chomsky_ladder.models.scans.recurrences import gru_scan, lstm_scan, rnn_scan

torch.set_num_threads(1)

Cell = Literal["lstm", "slstm", "gru", "tanh", "relu"]

# Sums of up to 4 x 64 products in fp32, carried over up to 33 steps, and Triton's exponential, which is good to 2 units
# in the last place: about 1e-6 of the largest entry. bf16 keeps 8 bits, and h and the gradients of the gates are
# rounded to it in each step; a misplaced element is wrong by about the largest entry.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@dataclass(frozen=True, kw_only=True)
class Case:
    cell: Cell
    batch: int = 5
    length: int = 7
    width: int = 16
    heads: int = 1
    dtype: torch.dtype = torch.float32
    streamed: bool = False  # the matrices are read anew in each step, whatever their size
    fresh: bool = True  # the sLSTM starts from a_0 = -inf
    reached: int | None = None  # the one output that the loss reads; None: all
    replicas: int = 0
    shared: tuple[int, ...] = ()  # inputs that all replicas share
    order: tuple[int, ...] = (0, 1, 2)  # of the sequence's axes in memory

    @property
    def name(self) -> str:
        plain = Case(cell=self.cell)
        parts = [f"{key}={value}" for key, value in vars(self).items() if value != getattr(plain, key)]
        return " ".join([self.cell, *parts]).replace("torch.", "")


def of_both(**settings: Any) -> list[Case]:
    return [Case(cell="lstm", **settings), Case(cell="slstm", heads=2, **settings)]


def of_the_others(**settings: Any) -> list[Case]:
    return [Case(cell="gru", **settings), Case(cell="tanh", **settings), Case(cell="relu", **settings)]


CASES = [
    *(case for length in (1, 2, 7, 33) for case in of_both(length=length)),
    *(case for batch in (1, 17, 33) for case in of_both(batch=batch, length=2)),
    *(case for width in (20, 24, 64) for case in of_both(width=width)),
    *(case for width in (20, 64) for case in of_both(width=width, length=3, streamed=True)),
    *of_both(batch=17, length=1, streamed=True),
    *of_both(replicas=3, batch=17, length=2, width=20),
    *of_both(replicas=2, length=3, width=20, streamed=True),
    *of_both(replicas=2, length=3, shared=(0, 1, 2)),
    *of_both(dtype=torch.bfloat16),
    *of_both(dtype=torch.bfloat16, length=3, streamed=True, width=20),
    *(case for reached in (0, 1, 2) for case in of_both(reached=reached, length=3)),
    Case(cell="slstm", reached=3, length=3),
    Case(cell="slstm", heads=3, fresh=False, width=20),
    Case(cell="slstm", heads=3, fresh=False, length=2, replicas=2, shared=(4, 6), streamed=True),
    *(Case(cell="lstm", order=order, batch=17, length=3) for order in ((1, 0, 2), (2, 0, 1))),
    *(case for length in (1, 2, 9) for case in of_the_others(length=length)),
    *of_the_others(batch=17, length=3, width=20),
    *of_the_others(batch=17, length=3, width=64, streamed=True),
    *of_the_others(batch=33, length=1, width=20, streamed=True),
    *of_the_others(replicas=2, length=3, width=20, streamed=True),
    *of_the_others(replicas=3, length=3, shared=(0, 1)),
    *of_the_others(dtype=torch.bfloat16, length=5),
    *of_the_others(dtype=torch.bfloat16, length=3, streamed=True, width=20),
    *(case for reached in (0, 1) for case in of_the_others(reached=reached, length=3)),
    *of_the_others(order=(2, 0, 1), batch=17, length=3),
]


def plain_products() -> AbstractContextManager[None]:
    """Without oneDNN, whose bf16 products of some shapes end in an illegal instruction on a virtual CPU."""
    return torch.backends.mkldnn.flags(enabled=False)


def module(cell: Cell) -> ModuleType:
    name = {"slstm": "slstm.gpu", "lstm": "recurrent.gpu_lstm", "gru": "recurrent.gpu_gru"}.get(
        cell, "recurrent.gpu_rnn"
    )
    return importlib.import_module(f"chomsky_ladder.models.operations.{name}")


def drawn(case: Case, seed: int) -> list[Tensor]:
    """gates, h, c and U; x, h, y, a, W, R and b; gates, h, U and b_n; or gates, h and U."""
    generator = torch.Generator().manual_seed(seed)
    batch, length, heads, width = case.batch, case.length, case.heads, case.width
    if case.cell == "lstm":
        shapes = [(batch, length, 4 * width), *[(batch, width)] * 2, (4 * width, width)]
    elif case.cell == "gru":
        shapes = [(batch, length, 3 * width), (batch, width), (3 * width, width), (width,)]
    elif case.cell in ("tanh", "relu"):
        shapes = [(batch, length, width), (batch, width), (width, width)]
    else:
        state, gates = (batch, heads, width), (heads, 4 * width)
        shapes = [(batch, length, heads, 12), *[state] * 3, (*gates, 12), (*gates, width), gates]
    inputs = [torch.randn(shape, generator=generator).to(case.dtype) for shape in shapes]
    inputs[{"lstm": 3, "slstm": 5}.get(case.cell, 2)] /= width**0.5
    if case.cell == "slstm":
        inputs[4] /= 12**0.5
        if case.fresh:
            inputs[3] -= torch.inf
    return inputs


def scan(case: Case, *inputs: Tensor, fused: bool) -> tuple[Tensor, ...]:
    if case.cell == "lstm":
        return (module("lstm").triton_lstm_scan if fused else lstm_scan)(*inputs)
    if case.cell == "gru":
        return (module("gru").triton_gru_scan if fused else gru_scan)(*inputs)
    if case.cell != "slstm":
        return (module(case.cell).triton_rnn_scan if fused else rnn_scan)(*inputs, activation=case.cell)
    x_BLHJ, *rest = inputs
    h_BLHK, state = (module("slstm").triton_slstm_scan if fused else slstm_scan)((x_BLHJ,), tuple(rest[:3]), rest[3:])
    return h_BLHK, *state


def weighted_sum(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum(
        (x.double() * torch.linspace(-1, 1, x.numel(), dtype=torch.float64, device=x.device).sin().view(x.shape)).sum()
        for x in tensors
    )


@contextmanager
def prepared(case: Case) -> Iterator[None]:
    from chomsky_ladder.models.kernels.triton import recurrence as _triton

    def empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return _triton.empty(like, *shape, dtype=dtype).fill_(torch.nan)

    def settings(*args: Any) -> dict[str, Any]:
        chosen = _triton.settings(*args)
        return {**chosen, "RESIDENT": False} if case.streamed else chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module(case.cell), "empty", empty)
        patch.setattr(module(case.cell), "settings", settings)
        yield


def results(case: Case, device: str, *, fused: bool) -> list[tuple[str, Tensor]]:
    """The outputs, and the gradients of all inputs, in double precision."""
    draws = [drawn(case, seed) for seed in range(max(1, case.replicas))]
    inputs = [
        parts[0] if case.replicas == 0 or n in case.shared else torch.stack(parts)
        for n, parts in enumerate(zip(*draws, strict=True))
    ]
    inputs = [x.to(device, case.dtype if fused else torch.float64) for x in inputs]
    if case.order != (0, 1, 2):
        back = [case.order.index(axis) for axis in range(3)]
        inputs[0] = inputs[0].permute(case.order).contiguous().permute(back)
    inputs = [x.requires_grad_() for x in inputs]
    if case.replicas and fused:
        in_dims = tuple(None if n in case.shared else 0 for n in range(len(inputs)))
        outputs = torch.vmap(lambda *one: scan(case, *one, fused=True), in_dims=in_dims)(*inputs)
    elif case.replicas:
        alone = [
            scan(case, *(x if n in case.shared else x[r] for n, x in enumerate(inputs)), fused=False)
            for r in range(case.replicas)
        ]
        outputs = [torch.stack(parts) for parts in zip(*alone, strict=True)]
    else:
        outputs = scan(case, *inputs, fused=fused)
    loss = weighted_sum(outputs if case.reached is None else [outputs[case.reached]])
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    named = [
        *((f"output {n}", x) for n, x in enumerate(outputs)),
        *((f"gradient {n}", x) for n, x in enumerate(gradients)),
    ]
    if fused:
        assert all(x.dtype == case.dtype for _, x in named)
    return [(name, x.detach().double().cpu()) for name, x in named]


def compare(case: Case, device: str) -> str:
    """Return the differences, or "" if all agree."""
    with prepared(case):
        found = results(case, device, fused=True)
    wrong = []
    for (name, one), (_, other) in zip(found, results(case, device, fused=False), strict=True):
        error = float(((one - other).abs().max()) / other.abs().max().clamp(min=1))
        if one.shape != other.shape or not error <= TOLERANCES[case.dtype]:
            wrong.append(f"{name}: off by {error:.1e}")
    return "; ".join(wrong)


def without_gradients(cell: Cell, device: str) -> str:
    """Nothing is kept for them, and the outputs are the same."""
    wrong = []
    case = Case(cell=cell, batch=17, length=3)
    forward = torch.vmap(lambda *one: scan(case, *one, fused=True))
    for replicas in (1, 2):
        draws = [drawn(case, seed) for seed in range(replicas)]
        inputs = [torch.stack(parts).to(device) for parts in zip(*draws, strict=True)]
        allocated = []
        empty = module(cell).empty

        def counting(*args: Any, empty: Any = empty, allocated: list = allocated, **named: Any) -> Tensor:
            allocated.append(empty(*args, **named))
            return allocated[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module(cell), "empty", counting)
            kept = forward(*inputs)
            elements = sum(x.numel() for x in allocated)
            allocated.clear()
            with torch.no_grad():
                plain = forward(*inputs)
        if not all(torch.equal(one, other) for one, other in zip(kept, plain, strict=True)):
            wrong.append(f"{replicas} replicas: other outputs")
        if not sum(x.numel() for x in allocated) < elements / 3:
            wrong.append(f"{replicas} replicas: all kept")
    return "; ".join(wrong)


def saturated(device: str) -> str:
    """Gates of up to 1e6, from a_0 = -inf: every gradient is finite."""
    wrong = []
    for size in (50.0, 1e3, 1e6):
        inputs = [x.to(device) for x in drawn(Case(cell="slstm"), 0)]
        inputs[0] *= size
        inputs = [x.requires_grad_() for x in inputs]
        outputs = scan(Case(cell="slstm"), *inputs, fused=True)
        gradients = torch.autograd.grad(weighted_sum([outputs[0], outputs[2]]), inputs)
        if (
            not all(bool(torch.isfinite(x).all()) for x in (*outputs, *gradients))
            or float(outputs[0].detach().abs().max()) > 1 + 1e-6
        ):
            wrong.append(f"{size:g}")
    return "; ".join(wrong)


def autocast(cell: Cell, device: str) -> str:
    """The products are bf16's, the carried memories and the gradients of fp32 leaves are fp32."""
    case = Case(cell=cell)
    inputs = [x.to(device).requires_grad_() for x in drawn(case, 0)]
    with torch.autocast(device, dtype=torch.bfloat16):
        outputs = scan(case, *inputs, fused=True)
    wrong = []
    if [x.dtype for x in outputs] != [torch.bfloat16] * 2 + [torch.float32] * (len(outputs) - 2):
        wrong.append(f"types {[x.dtype for x in outputs]}")
    expected = scan(case, *inputs, fused=False)
    found = (*outputs, *torch.autograd.grad(weighted_sum(outputs), inputs))
    for one, other in zip(found, (*expected, *torch.autograd.grad(weighted_sum(expected), inputs)), strict=True):
        error = float(((one.float() - other).abs().max() / other.abs().max().clamp(min=1)).detach())
        if not error <= TOLERANCES[torch.bfloat16]:
            wrong.append(f"off by {error:.1e}")
    return "; ".join(wrong)


CHECKS = {
    **{case.name: (compare, case) for case in CASES},
    **{f"{cell} without gradients": (without_gradients, cell) for cell in ("lstm", "slstm", "gru")},
    **{f"{cell} under autocast": (autocast, cell) for cell in ("lstm", "slstm", "gru", "tanh")},
    "slstm saturated": (saturated,),
}
CHECKED = [*[case.name for case in CASES][::5], "slstm without gradients", "gru under autocast", "slstm saturated"]
"""The cases interpreted each time: every fifth, and one of each that compares more than numbers."""


def interpret(names: Sequence[str], results: Path) -> None:
    """A line of JSON for each check: its name and what is wrong."""
    assert "triton" not in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy as np
    from triton.runtime import interpreter

    # Triton 3.6 takes int() of an array of one element, which NumPy 2.4 refuses, for the bound of a loop; and it
    # multiplies bf16 numbers as the integers that it holds their bits in.
    patch, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

    def patched(tensor: type, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def widened(x: Any) -> Any:
        if x.data.dtype != np.uint16:
            return x
        return interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), interpreter.tl.float32)

    interpreter._patch_lang_tensor = patched
    interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest)
    with results.open("w") as file:
        for name in names:
            check, *args = CHECKS[name]
            try:
                with plain_products():
                    wrong = check(*args, "cpu")
            except Exception as error:  # another check may still run
                wrong = f"{type(error).__name__}: {error}"
            file.write(json.dumps([name, wrong]) + "\n")
