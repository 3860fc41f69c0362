"""Explain an exception of a broken part in one line: the mistake, its place and its cure.

RuntimeError: Tensor on device cpu is not on the expected device meta!
->  a tensor made on the CPU meets one of another device: make it with device=x.device, or .. (half.py:14)
"""

import re
import traceback
from pathlib import Path

import torch

_OURS = Path(__file__).resolve().parents[1]
_SHARED = [
    _OURS.parent / "models" / name
    for name in ("kernels", "layers", "scans", "base.py", "block.py", "backbone.py", "plain.py", "plain_class.py")
]
_TORCH = Path(torch.__file__).resolve().parent

_DEVICE = "a tensor made on the CPU meets one of another device: make it with device=x.device, or register_buffer it"
_VALUE = (
    "reads a value of a tensor (`if tensor:`, .item(), a mask as an index), which waits for the device; use torch.where"
)
_HOST = "takes values off the device (.cpu(), .numpy(), .tolist()): a training step may not wait for them"
_REPLICAS = "under vmap, where replicas train as one,"
_VMAP = "declare stackable = False, or take another way where ctx.stacked"
CURES = {  # torch's message -> the mistake and the cure
    r"(on the same|not on the expected) device|found (at least )?two( different)? devices": _DEVICE,
    r"Cannot copy out of meta|can't convert meta": _HOST,
    r"item\(\) cannot be called on meta|nonzero\(\) raises unimplemented|Boolean value of": _VALUE,
    r"data-dependent control flow|\.item\(\) on a Tensor": f"{_REPLICAS} it {_VALUE}",
    r"batching rule for aten::(\w+)": (
        rf"{_REPLICAS} \1 has no rule of its own: {_VMAP}, such as matmuls and a softmax"
    ),
    r"^vmap: called random": (
        f"{_REPLICAS} it draws from torch's generator: ctx.dropout draws by the run's seed; "
        f"what cannot do without: {_VMAP}"
    ),
    r"modified by an inplace operation": (
        "changes a tensor in place that the backward pass needs: write y = y + x, not y += x or y.add_(x)"
    ),
    r"(same dtype|dtype).*(double|Double)": (
        "a constant of float64 meets weights of another precision: make it with dtype=x.dtype"
    ),
}


def said_of(error: BaseException) -> str:
    """Return the reason in one line. Our own messages stay as they are."""
    first = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, AssertionError):
        return first or "assertion without a reason"
    for pattern, cure in CURES.items():
        found = re.search(pattern, str(error))
        if found:
            return f"{found.expand(cure)}{_place(error)}"
    if isinstance(error, NotImplementedError) and first:
        return first
    return f"{type(error).__name__}: {first}{_place(error)}"


def package_of(error: BaseException) -> str:
    """Return the installed package in whose code an error arose; "" for code outside of packages."""
    frame = _frame(error)
    parts = Path(frame.filename).parts if frame is not None else ()
    return parts[parts.index("site-packages") + 1] if "site-packages" in parts[:-1] else ""


def _place(error: BaseException) -> str:
    frame = _frame(error)
    return f" ({Path(frame.filename).name}:{frame.lineno})" if frame is not None else ""


def _frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the last frame on the way to an error that is in neither torch nor the code shared by all models."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if path.suffix == ".py" and not any(map(path.is_relative_to, (_OURS, _TORCH, *_SHARED))):
            return frame
    return None
