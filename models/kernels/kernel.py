"""A fast kernel's declaration, and the registry of kernels: operations declare theirs, a plugin registers one.

    KERNEL = register(
        Kernel(
            name="quick_scan",
            computes="scan_loop",
            reference="chomsky_ladder.models.operations.scan.reference.scan_loop",
            call=quick_scan,
            serves=("mamba",),
            device="cpu",
            dtypes=(torch.float32,),
        )
    )

A kernel computes an operation that has a plain form in torch: it takes the operation's arguments and returns the same
to rounding. models/kernels/choose.py says which one a model gets. A file that registers one must import everywhere:
import an optional package inside `missing` and `call`.
"""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context

RESERVED = ("auto", "reference")  # what else `exec.backend` may say


def nothing() -> str:
    return ""


def anything(x: Tensor, ctx: Context) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    name: str
    computes: str
    """The operation, by which blocks ask for it."""
    reference: str | Callable[..., Any]
    """The plain form it is held to, or where that stands: package.module.name."""
    call: Callable[..., Any]
    serves: tuple[str, ...]
    """Names of models; none: any whose layers ask for it, under auto alone: by name it could be asked for in vain."""
    device: Literal["cpu", "cuda", "any"] = "cuda"
    dtypes: tuple[torch.dtype, ...] = ()
    """Of the tensor that is shown to `takes`; none: all."""
    stacks: bool = False
    """Whether it has a vmap rule."""
    takes: Callable[[Tensor, Context], bool] = anything
    """Its further limits."""
    missing: Callable[[], str] = nothing
    """Why it cannot run here, empty if it can; asked when first needed, and once."""
    when: Literal["auto", "named", "always"] = "auto"
    """Under which `exec.backend` it is taken: auto or its own name; its own name alone; any but the reference."""
    rank: int = 100
    """Of an operation's kernels that could take a tensor the one of the highest rank does. Here: from 0 torch's own,
    from 5 by hand in torch, from 8 in C, from 30 for CUDA; listings go the other way, and the record's fingerprint
    goes by that order."""
    module: str = ""
    """Where it is registered; filled in by `register`."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name in RESERVED:
            raise TypeError(f"no kernel can be called {self.name!r}")
        for field in ("call", "takes", "missing"):
            if not callable(getattr(self, field)):
                raise TypeError(f"{field} of the kernel {self.name} is no function")
        if not hasattr(self.missing, "cache_clear"):
            object.__setattr__(self, "missing", functools.cache(self.missing))

    def serving(self, models: Iterable[str]) -> bool:
        """Return True if one of them may ask for it."""
        return not self.serves or not set(models).isdisjoint(self.serves)


KERNELS: list[Kernel] = []  # in the order of registration; harness/config/registry.py names conflicts


def register(kernel: Kernel) -> Kernel:
    """Make a kernel known under its `name`."""
    kernel = replace(kernel, module=sys._getframe(1).f_globals["__name__"])
    KERNELS.append(kernel)
    return kernel


_found: dict[tuple[str, str], Any] = {}  # no lru_cache: torch.compile looks through one, and cannot follow an import


def member(module: str, name: str) -> Any:
    """Return what a module calls `name`; it is imported when first needed."""
    if (module, name) not in _found:
        _found[module, name] = getattr(_imported(module), name)
    return _found[module, name]


def cuda_module(module: str, *, needs: str = "") -> Callable[[], str]:
    """Why a module that needs a CUDA device, and something in it that a build may leave out, is not to be had here."""
    return lambda: _no_cuda() or _import_error(module, needs)


def _no_cuda() -> str:
    return "" if torch.cuda.is_available() else "no CUDA device"


def _import_error(module: str, needs: str) -> str:
    try:
        found = _imported(module)
        if needs and getattr(found, needs, None) is None:
            return f"{module} was built without {needs}"
    except Exception as error:  # a compiled package fails in many ways, not by ImportError alone
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _imported(module: str) -> ModuleType:
    """Without what packages have to say of others they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module)
