"""The engine that trains packs one after the other in this process."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines.base import Ended, Engine, Event, Job, NoOptions, Started, register, train


class SerialCrew:
    workers = 1

    def __init__(self, settings: Exec) -> None:
        self._settings = settings

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        for job in jobs:
            yield Started(job)
            yield Ended(job, train(job, self._settings))


@contextmanager
def opened(settings: Exec, options: NoOptions) -> Iterator[SerialCrew]:
    yield SerialCrew(settings)


register(Engine(name="serial", about="one pack after the other in this process", open=opened))
