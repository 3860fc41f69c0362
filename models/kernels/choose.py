"""The choice of kernels: `chosen("scan_loop", x, ctx)` is the best that can take `x` here, or None.

Nothing is ever used silently: a kernel that is chosen stands in `ctx.backends`, which goes into the run's record.
`available()` lists all of them; each says whether it can run here and, if not, why.
"""

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from chomsky_ladder.models.block import Backend, Context, require
from chomsky_ladder.models.kernels.kernel import KERNELS, RESERVED, Kernel

Case = tuple[str, Backend, bool, str, torch.dtype]  # operation, backend, stacked, type of device, precision

# Blocks ask for every layer of every step, so that answers are kept: until `KERNELS` is another list than it was.
_seen: list[Kernel] = []
_by_name: dict[str, Kernel] = {}
_candidates: dict[Case, tuple[Kernel, ...]] = {}


def chosen(operation: str, x: Tensor, ctx: Context, *, inside: Sequence[str] = ()) -> Kernel | None:
    """The first of the operation's kernels, by rank, that takes `x`; None: it is left to the plain form.

    Operations `inside` it may have a kernel of a higher rank, a plugin's: then it is left to the plain form, too.
    """
    if ctx.backend == "reference":
        return None
    _look_again()
    found = _first(operation, x, ctx)
    if found is None:
        return None
    others = [_first(each, x, ctx) for each in inside]
    if any(other is not None and other.rank > found.rank for other in others):
        return None
    ctx.backends.add(found.name)
    return found


def usable(name: str, x: Tensor, ctx: Context) -> bool:
    """Return True if a kernel could be chosen for `x`: it can run here, on this device, and was not asked not to."""
    kernel = named(name)
    return _fits(kernel, (kernel.computes, ctx.backend, ctx.stacked, x.device.type, x.dtype)) and kernel.takes(x, ctx)


def stacks(backend: Backend) -> bool:
    """Return True if runs that ask for it can train as one."""
    return backend in RESERVED or named(backend).stacks


def demand(backend: Backend, *, model: str, device: torch.device, stacked: bool = False) -> None:
    """Refuse a kernel asked for by name that cannot run here, does not serve the model or does not stack."""
    if backend in RESERVED:
        return
    kernel = named(backend)
    require(kernel.stacks or not stacked, f"the backend {backend} does not stack: leave exec.pack at 1")
    require(not kernel.missing(), f"the backend {backend} cannot run here: {kernel.missing()}")
    needs = {"cpu": "a CPU", "cuda": "a CUDA device", "any": ""}[kernel.device]
    require(kernel.device in (device.type, "any"), f"the backend {backend} needs {needs}, not {device}")
    require(bool(kernel.serves), f"{backend} is taken by layers of any model under the backend auto, not by its name")
    require(model in kernel.serves, f"the backend {backend} serves {', '.join(kernel.serves)}, not {model}")


def available() -> list[Kernel]:
    """All kernels, whether they can run here or not."""
    _look_again()
    return sorted(_by_name.values(), key=lambda kernel: kernel.rank)


def named(name: str) -> Kernel:
    _look_again()
    require(name in _by_name, f"no kernel is called {name!r}; there are {', '.join(_by_name)}")
    return _by_name[name]


def _look_again() -> None:
    """Read the registry again. The first of two kernels of one name stays, unless the other is its newer self."""
    if _seen == KERNELS:
        return
    for kept in (_seen, _by_name, _candidates):
        kept.clear()
    for kernel in KERNELS:
        if kernel.module == _by_name.setdefault(kernel.name, kernel).module:
            _by_name[kernel.name] = kernel
    _seen.extend(KERNELS)


def _first(operation: str, x: Tensor, ctx: Context) -> Kernel | None:
    case = (operation, ctx.backend, ctx.stacked, x.device.type, x.dtype)
    candidates = _candidates.get(case)
    if candidates is None:
        candidates = _found(case)
        if not torch.compiler.is_compiling():  # what is traced holds for as long as the case is not there
            _candidates[case] = candidates
    return next((kernel for kernel in candidates if kernel.takes(x, ctx)), None)


def _found(case: Case) -> tuple[Kernel, ...]:
    """The kernel that is asked for by name, then by rank."""
    fitting = [kernel for kernel in _by_name.values() if kernel.computes == case[0] and _fits(kernel, case)]
    return tuple(sorted(fitting, key=lambda kernel: (kernel.name == case[1], kernel.rank), reverse=True))


def _fits(kernel: Kernel, case: Case) -> bool:
    _, backend, stacked, device, dtype = case
    return (
        _asked(kernel, backend)
        and kernel.device in (device, "any")
        and (kernel.stacks or not stacked)
        and (not kernel.dtypes or dtype in kernel.dtypes)
        and not kernel.missing()
    )


def _asked(kernel: Kernel, backend: Backend) -> bool:
    if backend == kernel.name:
        return True
    return {"auto": backend == "auto", "named": False, "always": backend != "reference"}[kernel.when]


def _load_room() -> None:
    """Import the files beside this one; one that fails is passed over, and named by harness/config/registry.py."""
    room = __name__.rpartition(".")[0]
    for info in pkgutil.iter_modules(sys.modules[room].__path__, f"{room}."):
        if info.ispkg:
            continue
        try:
            importlib.import_module(info.name)
        except Exception:
            KERNELS[:] = [kernel for kernel in KERNELS if kernel.module != info.name]


def _load_operations() -> None:
    """Import the folders of models/operations/, which register what computes them."""
    room = f"{__name__.removesuffix('.kernels.choose')}.operations"
    for info in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
        if info.ispkg:
            importlib.import_module(info.name)


_load_room()
_load_operations()
