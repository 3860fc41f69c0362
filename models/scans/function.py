"""A function with a gradient by hand, called at a fifth of what torch's own call costs.

`torch.autograd.Function.apply` looks at the signature of `forward` anew in every call, to fill in what was left out: 15
of some 20 microseconds, in a step of a small model as much as a layer's arithmetic. Here nothing may be left out.
Inside torch.func's transforms it is torch's own call.
"""

from typing import Any

import torch


class Function(torch.autograd.Function):
    @classmethod
    def apply(cls, *inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch._C._are_functorch_transforms_active():
            return super().apply(*inputs)
        return super(torch.autograd.Function, cls).apply(*inputs)  # pyright: ignore[reportAttributeAccessIssue]
