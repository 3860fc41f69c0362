"""A part of the step as torch.compile makes it, or plain for good where it cannot be had, and why.

The first call is plain, since it fills the caches that a traced step finds its constants in, and counts what it asks of
torch: a loop over time is thousands of operations, which a compiler takes tens of minutes over (measured on a core: 590
s for the 4,250 of an NTM at length 40) and which a CUDA graph replays as well.

A compiler may be wrong and say nothing. So the first gradient of each shape is made plainly, too, and where the two are
apart by more than rounding, losses stay plain and the record says so.
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

MOST_OPERATIONS = 2000  # of a forward pass; more is not compiled
# A weight's cast, a gradient's sum: on a GPU each is a launch of its own. Those that do not wait for one another become
# one, which takes 44 of 178 kernels off a step of xLSTM[1:1].
TOGETHER: dict[str, Any] = {"combo_kernels": True}
# Torch 2.11 lengthens the strides of large tensors, and of queries in attention writes those of one layout and reads
# those of another: at 39 positions wrong numbers, and 590 kB beyond their end. Nothing here gains by longer strides.
AS_LONG_AS_THEY_ARE: dict[str, Any] = {"comprehensive_padding": False}
# Losses are called under autocast and go back without. Torch would trace both ways under it: what is kept in fp32 would
# go back in bf16.
BACK_AS_PLAIN: dict[str, Any] = {"backward_pass_autocast": "off"}
# A gradient's share, in the weights where it is furthest from the plain one. In bf16 19 models of a published size are
# apart by .014 at most, on an H100, and an attention whose queries are another's by .28.
MOST_APART = {"bf16": 0.1, "fp32": 1e-2, "fp64": 1e-6}


class Operations(TorchDispatchMode):
    """Counts what is asked of torch while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def called_plainly(act: Callable[[], Any]) -> tuple[Any, str]:
    """What it returns, and why it is not to be compiled: empty if it may be."""
    with Operations() as seen:
        result = act()
    said = f"{seen.count:,} operations, of which no more than {MOST_OPERATIONS:,} are compiled"
    return result, said if seen.count > MOST_OPERATIONS else ""


class Compiled:
    """A method of a pack that decides before it changes anything: where compiling it fails, nothing has been done."""

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
        """The next call, unless it turns out that it cannot."""
        return self._met and not self.refuses

    @property
    def refuses(self) -> bool:
        return self._compiled is None

    def refuse(self, why: str) -> None:
        """Take it plainly from now on."""
        self._compiled = None
        self._noted.discard(self._name)
        self._refused[self._name] = why.splitlines()[0]


@contextmanager
def unwarned() -> Iterator[None]:
    """By the tracer and the compiler, about caches, speed and what they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def there_and_back(pack: Pack) -> None:
    """Let compiled losses be refused, too, where their backward pass fails, which no call of theirs sees, and where it
    comes out elsewhere than the plain one."""
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
    """What makes gradients is as it was before it was compiled."""
    parts = {name: getattr(pack, name) for name in ("losses", "in_rows")}
    for name, part in parts.items():
        setattr(pack, name, part.plain)
    try:
        yield
    finally:
        for name, part in parts.items():
            setattr(pack, name, part)


def out_of_memory(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """What a step failed of, where something that failed of it has covered it up."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return error
        error = error.__cause__ or error.__context__
    return None
