"""The engine that trains packs one after the other in this process."""

from collections.abc import Generator, Sequence

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines.base import Ended, Event, Job, Started, train


class SerialEngine:
    workers = 1

    def __init__(self, settings: Exec) -> None:
        self._settings = settings

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        for job in jobs:
            yield Started(job)
            yield Ended(job, train(job, self._settings))
