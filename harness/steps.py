"""How the steps between two visits of the host are taken: one by one, or as replays of a CUDA graph.

Both run the same `Pack.advance`; neither reads a value of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from harness.config import Exec
from harness.pack import Pack

Tick = Callable[[int], None]  # told how many steps are done


class Stepper(ABC):
    name: str
    """What the record calls it."""

    def __init__(self, pack: Pack) -> None:
        self.pack, self.train = pack, pack.run.train

    @abstractmethod
    def advance(self, first: int, last: int, tick: Tick) -> None:
        """The steps first..last-1."""


class PlainSteps(Stepper):
    name = "plain"

    def advance(self, first: int, last: int, tick: Tick) -> None:
        for step in range(first, last):
            self.pack.advance(self.train.longest(step))
            # On a CPU a look costs nothing, and spares the steps of a pack that has diverged.
            if self.pack.device.type == "cpu" and not bool(self.pack.live_R.any()):
                return
            tick(step + 1)


def stepper(pack: Pack, settings: Exec) -> Stepper:
    return PlainSteps(pack)
