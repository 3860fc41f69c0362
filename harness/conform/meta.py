"""The meta device: tensors that have shapes and no values, so that nothing is computed and no value can be read.

It counts the work of a pass, in multiplications and in numbers written:

    growth(config, (64, 128, 256))  ->  1.0 of a recurrence, 2.0 of attention

The exponent is that of the increase from one doubling to the next, so constant work does not count.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context

META = torch.device("meta")


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Allow running on the meta device, where torch has no autocast, not even to be switched off."""
    real = torch.autocast

    def autocast(device_type: str, *arguments: Any, **options: Any) -> AbstractContextManager[Any]:
        return nullcontext() if device_type == "meta" else real(device_type, *arguments, **options)

    with patch.object(torch, "autocast", autocast):
        yield


class OneDevice(TorchDispatchMode):
    """Refuse operations that mix a CPU tensor with one of the meta device, even where torch would allow it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.ndim]
        if len({x.device for x in tensors}) > 1 and func._overloadpacket is not torch.ops.aten.copy_:
            raise RuntimeError(f"{func} found two devices")
        return func(*args, **(kwargs or {}))


class _Work(TorchDispatchMode):
    """Count the work of all operations in this context, and their number."""

    def __init__(self) -> None:
        super().__init__()
        self.done = self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        from torch.utils.flop_counter import flop_registry  # imports Triton

        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.done += count(*args, **(kwargs or {}), out_val=out)
        elif not func.is_view:
            self.done += sum(x.numel() for x in tree_leaves(out) if isinstance(x, Tensor))
        return out


SHORT, LONG = (16, 32, 64), (512, 1024, 2048)


def growth(config: ModelConfig) -> tuple[float, tuple[int, ...]]:
    """Return the power of the length with which work grows, and the three lengths that were compared.

    A model that goes token by token is counted at short lengths, since it takes as many operations. Others are counted
    at long ones.
    """
    with torch.random.fork_rng(devices=[]):
        model = config.build(11).to(META, torch.float32)

    def work_at(length: int) -> _Work:
        try:
            return pass_over(length, "auto")
        except RuntimeError:  # from a kernel without a meta form
            return pass_over(length, "reference")

    def pass_over(length: int, backend: str) -> _Work:
        work = _Work()
        with shapes_alone(), torch.no_grad(), work:
            model(torch.zeros(1, length, dtype=torch.int64, device=META), Context(backend=backend))
        return work

    few = [work_at(length) for length in SHORT]
    lengths = SHORT if few[2].operations > 1.5 * few[1].operations else LONG
    while config.longest_input is not None and lengths[-1] > max(config.longest_input, SHORT[-1]):
        lengths = tuple(length // 2 for length in lengths)
    done = [work.done for work in (few if lengths == SHORT else map(work_at, lengths))]
    return math.log2((done[2] - done[1]) / (done[1] - done[0])), lengths
