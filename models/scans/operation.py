"""A torch operation with a hand-written gradient and vmap rule, whose inside a compiler can see and fuse.

    @operation("doubled", sources=(__file__,))
    def doubled(x: Tensor) -> Tensor: ...
    doubled.register_autograd(...)        doubled.register_vmap(...)

For an autograd.Function under vmap, torch.compile traces the forward pass and differentiates that, so a hand-written
gradient is lost. For most functions it is the same gradient, but for a straight-through estimator there is none.
`torch.library.custom_op` keeps the gradient and hides the inside. `torch.library.triton_op` shows the inside, too, but
needs torch's compiler, which takes two seconds to import in each process. Torch caches compiled code by an operation's
name, not by its code. So the name contains a digest of its sources.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

_SEEN = (FakeTensor, FunctionalTensor)


def operation(name: str, *, sources: Sequence[str]) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Decorate a function that neither writes into its arguments nor returns one of them."""
    code = hashlib.sha256(b"".join(Path(file).read_bytes() for file in sources)).hexdigest()[:8]

    def made(act: Callable[..., Any]) -> CustomOpDef:
        opaque = torch.library.custom_op(f"chomsky_ladder::{name}_{code}", act, mutates_args=())
        opaque.register_fake(act)

        def inside(mode: FunctionalTensorMode, _: Any, types: Sequence[type], args: Any, kwargs: Any) -> Any:
            if not all(kind is Tensor or issubclass(kind, _SEEN) for kind in types):
                return NotImplemented
            with mode:
                return act(*args, **kwargs)

        opaque.register_torch_dispatch(FunctionalTensorMode, inside)
        return opaque

    return made
