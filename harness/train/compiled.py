"""Compile a part of the training step with torch.compile, or fall back to plain calls for good, and say why.

The first call is plain. It fills the caches in which a traced step finds its constants, and counts the operations. A
loop over time has thousands of operations. A compiler needs tens of minutes for these (measured on one core: 590 s for
the 4,250 of an NTM at length 40), and a CUDA graph replays them just as fast.

A compiler may be wrong without an error. So the first gradient of each shape is also computed plainly. If the two
differ by more than rounding, losses stay plain and the record says so.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config
from torch.utils._python_dispatch import TorchDispatchMode

from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.tasks.base import Batch

MOST_OPERATIONS = 2000  # in a forward pass; a model with more is not compiled
# Merge weight casts and gradient sums that do not depend on each other: on a GPU each is a launch of its own. This
# saves 44 of 178 kernels in a step of xLSTM[1:1].
TOGETHER: dict[str, Any] = {"combo_kernels": True}
# Torch 2.11 pads the strides of large tensors. For queries in attention it writes one layout and reads another: at 39
# positions it gives wrong numbers and reads 590 kB beyond the end. Nothing here gains from padded strides.
AS_LONG_AS_THEY_ARE: dict[str, Any] = {"comprehensive_padding": False}
# Losses are called under autocast, but their backward pass runs without it. Torch would trace both under autocast, and
# the backward pass of fp32 parts would run in bf16.
BACK_AS_PLAIN: dict[str, Any] = {"backward_pass_autocast": "off"}
# Relative gradient error allowed in the weights where it is largest. On an H100 in bf16, 19 models of a published size
# differ by .014 at most. An attention that reads another's queries differs by .28.
MOST_APART = {"bf16": 0.1, "fp32": 1e-2, "fp64": 1e-6}


class Operations(TorchDispatchMode):
    """Count the torch operations called while this mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def called_plainly(act: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of a plain call, and the reason why it is not to be compiled ("" if it may be)."""
    with Operations() as seen:
        result = act()
    said = f"{seen.count:,} operations, of which no more than {MOST_OPERATIONS:,} are compiled"
    return result, said if seen.count > MOST_OPERATIONS else ""


class Compiled:
    """A compiled method of a pack. If compilation fails, no state has changed, and the plain method runs instead."""

    def __init__(self, pack: Pack, part: str, refused: dict[str, str]) -> None:
        self._name, self.plain = f"compiled.{part}", getattr(pack, part)
        self._noted, self._refused, self._met = pack.compiled, refused, False
        options = TOGETHER | AS_LONG_AS_THEY_ARE if pack.device.type == "cuda" else None
        self._compiled: Callable[..., Any] | None = torch.compile(
            self.plain, fullgraph=True, dynamic=False, options=options
        )

    def __call__(self, *arguments: Any) -> Any:
        if not self._met:
            return self._first(*arguments)
        if self._compiled is None:
            return self.plain(*arguments)
        try:
            with unwarned(), functorch_config.patch(BACK_AS_PLAIN):
                result = self._compiled(*arguments)
        except Exception as error:
            if out_of_memory(error):
                raise
            self.refuse(f"{type(error).__name__}: {error}")
            return self.plain(*arguments)
        self._noted.add(self._name)
        return result

    def _first(self, *arguments: Any) -> Any:
        self._met = True
        result, why = called_plainly(lambda: self.plain(*arguments))
        if why:
            self.refuse(why)
        return result

    @property
    def compiles(self) -> bool:
        """Return True if the next call will be compiled, unless compilation then fails."""
        return self._met and not self.refuses

    @property
    def refuses(self) -> bool:
        return self._compiled is None

    def refuse(self, why: str) -> None:
        """Use the plain method from now on, for this reason."""
        self._compiled = None
        self._noted.discard(self._name)
        self._refused[self._name] = why.splitlines()[0]


@contextmanager
def unwarned() -> Iterator[None]:
    """Silence warnings of the tracer and compiler about caches, speed and imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def there_and_back(pack: Pack) -> None:
    """Check the backward pass of compiled losses. Go back to plain losses if it fails or if its gradients differ."""
    gradients, losses = pack.gradients, pack.losses
    assert isinstance(losses, Compiled)
    held: set[torch.Size] = set()

    def tried(step: Tensor, batch: Batch) -> Any:
        compiled = losses.compiles
        try:
            with unwarned():
                found = gradients(step, batch)
        except Exception as error:
            if losses.refuses or out_of_memory(error):
                raise
            losses.refuse(f"{type(error).__name__}: {error}")
            return gradients(step, batch)
        if not compiled or losses.refuses or batch.tokens_BL.shape in held:
            return found
        held.add(batch.tokens_BL.shape)
        with plainly(pack):
            expected = gradients(step, batch)
        apart = pack.apart(found[0], expected[0])
        if apart <= MOST_APART[pack.run.train.precision] or not bool(expected[0].isfinite().all()):
            return found
        losses.refuse(f"{100 * apart:.2g} % off the plain gradient")
        return expected

    pack.gradients = tried


@contextmanager
def plainly(pack: Pack) -> Iterator[None]:
    """Use the plain methods inside this context."""
    parts = {name: getattr(pack, name) for name in ("losses", "in_rows")}
    for name, part in parts.items():
        setattr(pack, name, part.plain)
    try:
        yield
    finally:
        for name, part in parts.items():
            setattr(pack, name, part)


def out_of_memory(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """Return the out-of-memory error behind an exception, or None. Later errors may have covered it."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return error
        error = error.__cause__ or error.__context__
    return None
