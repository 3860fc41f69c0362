"""Replays: a function that launches many small kernels is recorded once as a CUDA graph and launched as one.

A graph reads and writes the memory of its recording. `Replays` gives a function of batches such memory, one set for
each shape. A validation has the same few shapes every time, while a final score has shapes that never return. So the
first batch of a shape is computed plainly, which is also its warm-up, the second is recorded, and later ones are
replayed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.tasks.base import Batch

Act = Callable[[], Any]
WARM_UP = 3  # calls before a capture: libraries allocate in the first ones


def captured(act: Act, device: torch.device, *, warm_up: int = WARM_UP, pool: Any = None) -> Act:
    """Return the function as a replay of a CUDA graph. Its inputs and outputs must keep their memory."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            act()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        act()
    return graph.replay


class Room:
    """The memory that all graphs of a pack share. No two run at once, and none reads what another left there."""

    def __init__(self) -> None:
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """Return the memory pool of the captures. It is made on first use, so that there is none without CUDA."""
        self._handle = self._handle or torch.cuda.graph_pool_handle()
        return self._handle


class _Recording(NamedTuple):
    replay: Act
    batch: Batch
    result: Tensor


class Replays:
    """A function from a batch to a tensor, replayed. It must have no other effect and must not wait for the device."""

    def __init__(self, function: Callable[[Batch], Tensor], device: torch.device, room: Room | None = None) -> None:
        self._function, self._device, self._room = function, device, room or Room()
        self._met: set[torch.Size] = set()
        self._recordings: dict[torch.Size, _Recording] = {}
        self.refused = ""
        """The reason why nothing is recorded any more; "" if everything is."""

    @property
    def used(self) -> bool:
        return bool(self._recordings)

    def __call__(self, batch: Batch) -> Tensor:
        shape = batch.tokens_BL.shape
        if shape in self._met and shape not in self._recordings and not self.refused:
            self._record(batch, shape)
        self._met.add(shape)
        if shape not in self._recordings:
            return self._function(batch)
        replay, held, result = self._recordings[shape]
        for place, given in zip(held, batch, strict=True):
            place.copy_(given)
        replay()
        return result.clone()

    def _record(self, batch: Batch, shape: torch.Size) -> None:
        held = Batch(*(part.clone() for part in batch))
        try:
            result = torch.empty_like(self._function(held))

            def act() -> None:
                result.copy_(self._function(held))

            replay = captured(act, self._device, warm_up=1, pool=self._room.handle)
        except RuntimeError as error:  # out of memory among others: the plain call still works
            self._recordings.clear()
            self.refused = f"{type(error).__name__}: {error}".splitlines()[0]
            return
        self._recordings[shape] = _Recording(replay, held, result)
