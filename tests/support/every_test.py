"""Set up every test: one thread, registries that are restored, a garbage collector that does not look at what stays."""

import gc
import sys
from collections.abc import Iterator

import pytest
import torch

from chomsky_ladder.harness.config.registry import discover
from chomsky_ladder.harness.train.machine import avoid_faulty_tiles
from chomsky_ladder.models.base import MODELS
from chomsky_ladder.models.kernels.kernel import KERNELS
from chomsky_ladder.tasks.base import TASKS

torch.set_num_threads(1)  # two beside a busy neighbour ran 3-16x slower
avoid_faulty_tiles()
discover()
gc.disable()  # until all is collected: what is made stays, and a look through it takes .3 s


def pytest_collection_finish() -> None:
    """Some packages collect garbage often, and need not look at what stays either."""
    gc.freeze()
    gc.enable()


_frozen = [0]
gc.unfreeze = lambda: None  # a measurement of speed thaws all, and the tests behind it would be slow


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """Remove after each test what its plugins registered, and keep the garbage collector fast.

    Imported and collected objects are frozen: a look through them takes .3 s, and every run looks at its end.
    """
    before = [(registry, list(registry)) for registry in (KERNELS, MODELS, TASKS)]
    yield
    for registry, kept in before:
        registry[:] = kept
    if len(sys.modules) != _frozen[0]:
        _frozen[0] = len(sys.modules)
        gc.freeze()
