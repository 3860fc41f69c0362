"""The engine that trains packs one after the other in this process, and has the next one compiled meanwhile."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.ahead import Ahead
from chomsky_ladder.harness.sweep.engines.base import Ended, Engine, Event, Job, NoOptions, Started, register, train


class SerialCrew:
    workers = 1

    def __init__(self, settings: Exec) -> None:
        self._settings = settings

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        with Ahead(self._settings) as ahead:
            for job, following in zip_longest(jobs, jobs[1:]):
                yield Started(job)
                if following:
                    ahead.prepare(following)
                yield Ended(job, train(job, self._settings))


@contextmanager
def opened(settings: Exec, options: NoOptions) -> Iterator[SerialCrew]:
    yield SerialCrew(settings)


register(Engine(name="serial", about="one pack after the other in this process", open=opened))
