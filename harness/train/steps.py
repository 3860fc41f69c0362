"""Take the steps between two visits of the host: one by one, or as replays of a CUDA graph.

Both run the same `Pack.advance`, and neither reads a value of it. A graph holds several whole steps (draw, forward,
backward, clipping, AdamW, schedule). On a GPU the speed of a tiny model is limited by kernel launches, and a replay is
one launch. Under `compile`, the parts of a step that torch.compile can trace are fused as well. The first step is
always plain, since it fills the caches in which a traced step finds its constants.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train.compiled import compiled_parts, out_of_memory
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.replays import WARM_UP, Room
from chomsky_ladder.harness.train.signals import Asked

Tick = Callable[[int], None]  # receives the number of steps done
UNROLLED = 10  # steps in a graph; one if the host looks more often
WORTH_COMPILING = 2000  # steps; compiling takes half a minute


class Stepper(ABC):
    name: str
    """The name in the record."""

    def __init__(self, pack: Pack, *, compiling: bool) -> None:
        self.pack, self.train = pack, pack.run.train
        self.preparing = 0.0  # seconds of warm-up, compilation and capture; never compared between runs
        self.refused: dict[str, str] = {}
        """Parts that could not be compiled, and why."""
        if compiling:
            self.name += ", compiled"
            pack.instead = compiled_parts(pack, self.refused)

    @abstractmethod
    def advance(self, first: int, last: int, tick: Tick, asked: Asked = lambda: None) -> int:
        """Take steps first..last-1, or fewer if `asked` requests a stop. Return the next step."""


class PlainSteps(Stepper):
    name = "plain"

    def advance(self, first: int, last: int, tick: Tick, asked: Asked = lambda: None) -> int:
        for step in range(first, last):
            self.pack.advance(self.train.longest(step))
            # Reading a value costs nothing on a CPU, and saves the steps of a pack that has diverged.
            if self.pack.device.type == "cpu" and not bool(self.pack.live_R.any()):
                return last
            tick(step + 1)
            if asked():
                return step + 1
        return last


class GraphSteps(Stepper):
    """CUDA graphs for each longest length of the curriculum, of several steps and of one.

    Steps before capture are plain.
    """

    name = "graph"

    def __init__(self, pack: Pack, *, compiling: bool, room: Room | None = None) -> None:
        super().__init__(pack, compiling=compiling)
        self._room = room or Room()
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}  # by longest length and steps
        self._warm: dict[int, int] = {}  # steps taken as warm-up for a longest length
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
        while step < end and not asked():
            if self._warm.get(longest, 0) < WARM_UP:
                self._warm_up(longest)
                step += 1
            else:
                steps = UNROLLED if end - step >= UNROLLED else 1
                self._graph(longest, steps).replay()
                step += steps
            tick(step)
        return step

    def _warm_up(self, longest: int) -> None:
        """Take a real step on the stream used for the capture."""
        with self._prepared():
            self._stream.wait_stream(torch.cuda.current_stream(self.pack.device))
            with torch.cuda.stream(self._stream):
                self.pack.advance(longest)
            torch.cuda.current_stream(self.pack.device).wait_stream(self._stream)
        self._warm[longest] = self._warm.get(longest, 0) + 1

    def _graph(self, longest: int, steps: int) -> torch.cuda.CUDAGraph:
        if (longest, steps) not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with self._prepared():
                try:
                    with torch.cuda.graph(graph, stream=self._stream, pool=self._room.handle):
                        for _ in range(steps):
                            self.pack.advance(longest)
                except RuntimeError as error:
                    if full := out_of_memory(error):
                        raise full from error
                    said = "this step cannot be captured; exec.capture=off takes it plainly"
                    raise RuntimeError(f"{said} ({error})") from error
            self._graphs[longest, steps] = graph
        return self._graphs[longest, steps]

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """Count the seconds in this context as preparation."""
        torch.cuda.synchronize(self.pack.device)
        start = time.monotonic()
        yield
        torch.cuda.synchronize(self.pack.device)
        self.preparing += time.monotonic() - start


def capturable(settings: Exec, device: torch.device) -> None:
    """Refuse a capture on a device that cannot capture."""
    if settings.capture == "on" and device.type != "cuda":
        raise ValueError(f"exec.capture=on needs a CUDA device, not {device}")


def captures(settings: Exec, device: torch.device) -> bool:
    """Return True if steps and scores are replays of CUDA graphs."""
    return settings.capture == "on" or (settings.capture == "auto" and device.type == "cuda")


def compiles(settings: Exec, device: torch.device, *, steps: int) -> bool:
    """Return True if torch.compile is used for the parts of a step that it can trace."""
    worth_it = device.type == "cuda" and steps >= WORTH_COMPILING
    return settings.compile == "on" or (settings.compile == "auto" and worth_it)


def stepper(pack: Pack, settings: Exec, room: Room | None = None) -> Stepper:
    """Return the stepper that `exec.capture` and `exec.compile` ask for, where this device has it."""
    compiling = compiles(settings, pack.device, steps=pack.run.train.steps) and not pack.run.train.carries_state
    if captures(settings, pack.device):
        return GraphSteps(pack, compiling=compiling, room=room)
    return PlainSteps(pack, compiling=compiling)
