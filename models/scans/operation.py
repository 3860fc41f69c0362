"""An operation of torch with a gradient and a rule for vmap by hand, whose inside a compiler sees and fuses.

    @operation("doubled", sources=(__file__,))
    def doubled(x: Tensor) -> Tensor: ...
    doubled.register_autograd(...)        doubled.register_vmap(...)

Of an autograd.Function under vmap torch.compile follows the forward pass and differentiates that, so that a gradient by
hand is lost: for most it is the same gradient, for a straight-through estimator it is none. `torch.library.custom_op`
keeps it and hides the inside; `torch.library.triton_op` shows that too, but is made with torch's compiler at hand,
which takes a process two seconds to import. Torch keeps what it has compiled by an operation's name, not by what is in
it: so a digest of its sources is part of that.
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
    """Of a function that writes into none of its arguments and returns none of them."""
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
