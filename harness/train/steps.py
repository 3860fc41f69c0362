"""How the steps between two visits of the host are taken: one by one, or as replays of a CUDA graph.

Both run the same `Pack.advance`, and neither reads a value of it. A graph holds several whole steps (draw, forward,
backward, clipping, AdamW, schedule): on a GPU a tiny model is bound by launching its kernels, and a replay launches
once. Under `compile`, what torch.compile can trace of a step is fused as well; the first step is always plain, since
it fills the caches that a traced step finds its constants in.
"""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.replays import WARM_UP
from chomsky_ladder.harness.train.signals import Asked

Tick = Callable[[int], None]  # told how many steps are done
UNROLLED = 10  # steps in a graph
WORTH_COMPILING = 2000  # steps; compiling takes half a minute


class Stepper(ABC):
    name: str
    """What the record calls it."""

    def __init__(self, pack: Pack, *, compiling: bool) -> None:
        self.pack, self.train = pack, pack.run.train
        self.preparing = 0.0  # seconds of warm-up, compilation and capture, no part of any equality
        if compiling:
            self.name += ", compiled"
            torch.compiler.reset()  # what it made for earlier packs counts against a limit of variants
            # The stream's products overflow on purpose. In the C++ that a draw becomes on a CPU, a compiler takes that
            # for impossible and writes past the end of the strings (torch 2.13, gcc 12).
            for part in ("losses", "update") if pack.device.type == "cpu" else ("draw", "losses", "update"):
                setattr(pack, part, _Compiled(part, getattr(pack, part), pack.backends))

    @abstractmethod
    def advance(self, first: int, last: int, tick: Tick, asked: Asked = lambda: None) -> int:
        """The steps first..last-1, or fewer once it is `asked` to stop; the step that is next."""


class PlainSteps(Stepper):
    name = "plain"

    def advance(self, first: int, last: int, tick: Tick, asked: Asked = lambda: None) -> int:
        for step in range(first, last):
            self.pack.advance(self.train.longest(step))
            # On a CPU a look costs nothing, and spares the steps of a pack that has diverged.
            if self.pack.device.type == "cpu" and not bool(self.pack.live_R.any()):
                return last
            tick(step + 1)
            if asked():
                return step + 1
        return last


class GraphSteps(Stepper):
    """A graph for each longest length of the curriculum; steps before a capture and left over are taken plainly."""

    name = "graph"

    def __init__(self, pack: Pack, *, compiling: bool) -> None:
        super().__init__(pack, compiling=compiling)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._stream = torch.cuda.Stream(pack.device)

    def advance(self, first: int, last: int, tick: Tick, asked: Asked = lambda: None) -> int:
        step = first
        while step < last and not asked():
            longest = self.train.longest(step)
            end = step + 1
            while end < last and self.train.longest(end) == longest:
                end += 1
            step = self._stage(step, end, longest, tick, asked)
        return step

    def _stage(self, step: int, end: int, longest: int, tick: Tick, asked: Asked) -> int:
        if longest not in self._graphs and end - step >= WARM_UP + UNROLLED:
            step = self._prepare(step, longest)
        graph = self._graphs.get(longest)
        while graph is not None and end - step >= UNROLLED:
            graph.replay()
            step += UNROLLED
            tick(step)
            if asked():
                return step
        while step < end and not asked():
            self.pack.advance(longest)
            step += 1
            tick(step)
        return step

    def _prepare(self, step: int, longest: int) -> int:
        """Warm up by real steps on a side stream, then capture; the step that is next."""
        torch.cuda.synchronize(self.pack.device)
        start = time.monotonic()
        self._stream.wait_stream(torch.cuda.current_stream(self.pack.device))
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP):
                self.pack.advance(longest)
        torch.cuda.current_stream(self.pack.device).wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                for _ in range(UNROLLED):
                    self.pack.advance(longest)
        except RuntimeError as error:
            raise RuntimeError(f"this step cannot be captured; exec.capture=off takes it plainly ({error})") from error
        self._graphs[longest] = graph
        torch.cuda.synchronize(self.pack.device)
        self.preparing += time.monotonic() - start
        return step + WARM_UP


class _Compiled:
    """A part of the step: plain in its first call, then as torch.compile makes it, or plain for good if it cannot.

    Every part decides before it changes anything, so one that fails to compile has done nothing yet.
    """

    def __init__(self, name: str, plain: Callable[..., Any], backends: set[str]) -> None:
        self._name, self._plain, self._backends = f"compiled.{name}", plain, backends
        self._calls = 0
        self._compiled: Callable[..., Any] | None = torch.compile(plain, fullgraph=True, dynamic=False)

    def __call__(self, *arguments: Any) -> Any:
        self._calls += 1
        if self._calls == 1 or self._compiled is None:
            return self._plain(*arguments)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the tracer, about caches and speed
                result = self._compiled(*arguments)
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self._compiled = None
            self._backends.discard(self._name)
            return self._plain(*arguments)
        self._backends.add(self._name)
        return result


def capturable(settings: Exec, device: torch.device) -> None:
    """Refuse a capture on a device that has none."""
    if settings.capture == "on" and device.type != "cuda":
        raise ValueError(f"exec.capture=on needs a CUDA device, not {device}")


def captures(settings: Exec, device: torch.device) -> bool:
    """Whether steps and scores are replays of CUDA graphs."""
    return settings.capture == "on" or (settings.capture == "auto" and device.type == "cuda")


def stepper(pack: Pack, settings: Exec) -> Stepper:
    """Whatever `exec.capture` and `exec.compile` ask for, where this device has it."""
    cuda = pack.device.type == "cuda"
    compiling = settings.compile == "on" or (
        settings.compile == "auto" and cuda and pack.run.train.steps >= WORTH_COMPILING
    )
    return (GraphSteps if captures(settings, pack.device) else PlainSteps)(pack, compiling=compiling)
