"""An operation: its plain form and its kernels behind one call, which picks the kernel and records it.

    slots = Operation(decayed_slots, serves=("gated_slot_attention",), shown=lambda q, k, s, decay, state: q)
    slots.in_c(slots_in_c, name="native_slots", rank=13)
    slots.in_triton(f"{__name__}.gpu", name="triton_slots", rank=47)

    y, state = slots(ctx, q, k, s, decay, state)

The best kernel that takes the tensor `shown` computes it, and stands in `ctx.backends`; without one the plain form does
(models/kernels/choose.py). A kernel has the arguments and results of the plain form. A plugin's kernel
(models/kernels/kernel.py) names the operation it computes and is chosen among these.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels import native
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.kernels.kernel import KERNELS, Kernel, anything, cuda_module, member, nothing

P = ParamSpec("P")
T = TypeVar("T")
Takes = Callable[[Tensor, Context], bool]


class Operation(Generic[P, T]):
    def __init__(
        self,
        reference: Callable[P, T],
        *,
        serves: tuple[str, ...],
        shown: Callable[..., Tensor | None],
        name: str = "",
        fused: Callable[P, T] | None = None,
        inside: tuple[str, ...] = (),
        calls: Mapping[str, "Operation[..., Any]"] | None = None,
    ) -> None:
        """Declare an operation by its plain form, to which every kernel is held.

        serves: models that call it
        shown:  the argument whose device, dtype and sizes decide which kernels can run; None: the plain form runs
        name:   what a kernel `computes`, unless it is the plain form's name
        fused:  a faster plain form, which runs in its place unless the backend is the reference
        inside: operations that the plain form calls; it runs if one of them has a kernel of a higher rank
        calls:  those of them that it takes as arguments, which are their plain forms unless given
        """
        self.reference, self.fused, self.serves = reference, fused or reference, serves
        self.shown, self.calls = shown, calls or {}
        self.inside = (*inside, *(operation.name for operation in self.calls.values()))
        self.name = name or reference.__name__
        self.module = sys._getframe(1).f_globals["__name__"]

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> T:
        x = self.shown(*args, **kwargs)
        kernel = None if x is None else self.chosen(x, ctx)
        if kernel:
            return kernel(*args, **kwargs)
        plain = self.reference if ctx.backend == "reference" else self.fused
        called: Any = {name: partial(operation, ctx) for name, operation in self.calls.items()}
        return plain(*args, **kwargs, **called)

    def chosen(self, x: Tensor, ctx: Context) -> Callable[P, T] | None:
        """Return the best kernel that takes `x`, and record it; None if the plain form is left."""
        kernel = chosen(self.name, x, ctx, inside=self.inside)
        return kernel and kernel.call

    def in_c(self, call: Callable[..., T], *, name: str, rank: int, takes: Takes = native.untraced) -> None:
        """Register a kernel in C. It must support vmap."""
        self.register(
            call, name=name, rank=rank, takes=takes, device="cpu", dtypes=tuple(native.REAL), missing=native.missing
        )

    def in_triton(
        self,
        module: str,
        function: str = "",
        *,
        name: str,
        rank: int,
        takes: Takes = anything,
        dtypes: tuple[torch.dtype, ...] = (torch.float32,),
    ) -> None:
        """Register a function of a module, imported when first called; `name`, if not named. It must support vmap."""
        function = function or name

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return member(module, function)(*args, **kwargs)

        missing = cuda_module(module)
        self.register(call, name=name, rank=rank, takes=takes, device="cuda", dtypes=dtypes, missing=missing)

    def register(
        self,
        call: Callable[..., T],
        *,
        name: str,
        rank: int,
        device: Literal["cpu", "cuda", "any"],
        takes: Takes = anything,
        dtypes: tuple[torch.dtype, ...] = (),
        missing: Callable[[], str] = nothing,
        stacks: bool = True,
        when: Literal["auto", "named", "always"] = "auto",
    ) -> None:
        """Register any other kernel (models/kernels/kernel.py says what its fields mean)."""
        kernel = Kernel(
            name=name,
            computes=self.name,
            reference=f"{self.reference.__module__}.{self.reference.__name__}",
            call=call,
            serves=self.serves,
            device=device,
            dtypes=dtypes,
            stacks=stacks,
            takes=takes,
            missing=missing,
            when=when,
            rank=rank,
            module=self.module,
        )
        KERNELS.append(kernel)
