"""torch's global switches that change numbers. While a run trains, each has the value of the run, whoever changed it.

Without this, a plugin or script that calls `torch.set_default_dtype(torch.bfloat16)` would train our models to other
numbers under the same fingerprint. On a GPU, cuDNN's recurrences keep by default only 10 of the 23 bits of an fp32
number (TF32), and a recurrence accumulates that error. The attention kernel for bf16 depends on torch's release, so
cuDNN's is switched off.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

_CPU = torch.device("cpu")
_matmul: Any = torch.backends.cuda.matmul
_cudnn: Any = torch.backends.cudnn
_mkldnn: Any = torch.backends.mkldnn


class Switch(NamedTuple):
    """A global setting: how it is read and set, and its value in a run."""

    read: Callable[[], Any]
    turn: Callable[[Any], Any]
    wanted: Any


def _of(owner: Any, name: str, wanted: Any) -> Switch:
    return Switch(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), wanted)


def _whole(owner: Any) -> Switch:
    """Return the switch for the precision of fp32 products. Full precision has two names, "none" and "ieee"."""
    whole = _of(owner, "fp32_precision", "none")
    return whole._replace(read=lambda: owner.fp32_precision.replace("ieee", "none"))


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device == _CPU else device)  # naming the CPU would intercept every call


def _flushes() -> bool:
    return float(torch.tensor([1e-40], dtype=torch.float32, device="cpu") * 1.0) == 0.0


SWITCHES = {
    "default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    "default device": Switch(torch.get_default_device, _set_device, _CPU),
    "gradients": Switch(torch.is_grad_enabled, torch.set_grad_enabled, True),
    "denormal numbers flushed": Switch(_flushes, torch.set_flush_denormal, False),
    "fp32": _whole(torch.backends),  # before the others: while it asks for less, some cannot be read
    **{f"fp32 in oneDNN's {name}": _whole(getattr(_mkldnn, name)) for name in ("matmul", "conv", "rnn")},
    "deterministic algorithms": Switch(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False
    ),
    "oneDNN": _of(_mkldnn, "enabled", True),
    "TF32 in products": _of(_matmul, "allow_tf32", False),
    "TF32 in cuDNN": _of(_cudnn, "allow_tf32", False),
    "cuDNN's choice by timing": _of(_cudnn, "benchmark", False),
    "cuDNN's attention": Switch(torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp, False),
}


@contextmanager
def as_runs_say() -> Iterator[None]:
    """Set every switch to its value for runs, and restore it afterwards."""
    turned = []
    try:
        for switch in SWITCHES.values():
            before = switch.read()
            if before != switch.wanted:
                switch.turn(switch.wanted)
                turned.append((switch, before))
        yield
    finally:
        for switch, before in reversed(turned):
            switch.turn(before)
