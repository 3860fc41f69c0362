"""A function with a hand-written gradient, called at a fifth of the cost of torch's own call.

`torch.autograd.Function.apply` inspects the signature of `forward` in every call, to fill in default arguments. That
takes 15 of some 20 microseconds, as much as a layer's arithmetic in a step of a small model. Here all arguments must be
given. Inside torch.func's transforms it is torch's own call.
"""

from typing import Any

import torch


class Function(torch.autograd.Function):
    @classmethod
    def apply(cls, *inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch._C._are_functorch_transforms_active():
            return super().apply(*inputs)
        return super(torch.autograd.Function, cls).apply(*inputs)  # pyright: ignore[reportAttributeAccessIssue]
