"""Compile the parts of a training step with torch.compile, or fall back to plain calls for good, and say why.

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

from chomsky_ladder.harness.train.pack import Metrics, Pack, Parts
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


def compiled_parts(pack: Pack, refused: dict[str, str]) -> Parts:
    """Return a pack's parts, compiled. `refused` receives those that could not be, and why."""
    # The random stream's products overflow on purpose. A draw compiled for a CPU is C++ code. The C++ compiler assumes
    # that nothing overflows, and the code writes past the end of the strings (torch 2.13, gcc 12).
    names = ("losses", "in_rows", "update") if pack.device.type == "cpu" else ("draw", "losses", "in_rows", "update")
    with unwarned():
        torch.compiler.reset()  # code made for earlier packs counts against a limit of variants
        compiled = {name: Compiled(pack, name, refused) for name in names}
    return pack.parts._replace(gradients=CheckedGradients(pack, compiled["losses"]), **compiled)


class Compiled:
    """A compiled part of a pack. If compilation fails, no state has changed, and the plain part runs instead."""

    def __init__(self, pack: Pack, part: str, refused: dict[str, str]) -> None:
        self._name, self.plain = f"compiled.{part}", getattr(pack.parts, part)
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


class CheckedGradients:
    """A pack's gradients by compiled losses: by plain ones from the call on whose backward pass fails or differs."""

    def __init__(self, pack: Pack, losses: Compiled) -> None:
        self._pack, self._plain, self._losses = pack, pack.gradients, losses
        self._met: set[torch.Size] = set()

    def __call__(self, step: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Metrics]:
        pack, losses, shape = self._pack, self._losses, batch.tokens_BL.shape
        compiled = losses.compiles
        try:
            with unwarned():
                found = self._plain(step, batch)
        except Exception as error:
            if losses.refuses or out_of_memory(error):
                raise
            losses.refuse(f"{type(error).__name__}: {error}")
            return self._plain(step, batch)
        if not compiled or losses.refuses or shape in self._met:
            return found
        self._met.add(shape)
        compiled_parts, pack.instead = pack.instead, None
        try:
            expected = self._plain(step, batch)
        finally:
            pack.instead = compiled_parts
        share = apart(pack, found[0], expected[0])
        if share <= MOST_APART[pack.run.train.precision] or not bool(expected[0].isfinite().all()):
            return found
        losses.refuse(f"{100 * share:.2g} % off the plain gradient")
        return expected


def apart(pack: Pack, found_RP: Tensor, expected_RP: Tensor) -> float:
    """Return the largest relative difference between two gradients of a pack, over tensors.

    Tensors with less than a thousandth of the gradient's norm are left out.
    """
    least = 1e-3 * expected_RP.norm()
    pairs = zip(pack.stacks(found_RP), pack.stacks(expected_RP), strict=True)
    shares = [torch.where(other.norm() > least, (one - other).norm() / other.norm(), 0.0) for one, other in pairs]
    return float(torch.stack(shares).max())


def out_of_memory(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """Return the out-of-memory error behind an exception, or None. Later errors may have covered it."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return error
        error = error.__cause__ or error.__context__
    return None
