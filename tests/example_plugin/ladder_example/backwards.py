"""An engine: the last pack first, in this process, with a word of its own."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines.base import Ended, Engine, Event, Job, Said, Started, register, train


@dataclass(frozen=True, kw_only=True)
class BackwardsOptions:
    word: str = "backwards"
    """The word printed for every pack."""


@dataclass
class BackwardsCrew:
    settings: Exec
    word: str
    workers: int = 1

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        for job in reversed(jobs):
            yield Started(job)
            yield Said(f"{self.word}: {job.name}")
            yield Ended(job, train(job, self.settings))


@contextmanager
def opened(settings: Exec, options: BackwardsOptions) -> Iterator[BackwardsCrew]:
    yield BackwardsCrew(settings, options.word)


register(Engine(name="backwards", about="the last pack first", open=opened, options=BackwardsOptions))
