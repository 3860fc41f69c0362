"""What is recorded of a machine, and that a step's memory is kept rather than faulted in again."""

import platform
import resource
from pathlib import Path

import pytest
import torch

from harness import machine
from harness.config import Exec
from models.lstm import LSTMConfig
from tasks.parity import Parity

CPU = torch.device("cpu")


def test_numerics_are_what_may_move_the_last_bits() -> None:
    tree = machine.numerics(Exec(), CPU)
    assert set(tree) == {"device", "instructions", "threads", "torch", "backend", "kernels"}
    assert {"torch.lstm", "torch.sdpa"} <= set(tree["kernels"])
    assert all(type(value) in (str, int, list) for value in tree.values()), "a checkpoint holds no other type"
    prints = {machine.fingerprint(machine.numerics(Exec(threads=threads), CPU)) for threads in (1, 1, 2)}
    assert len(prints) == 2


def test_provenance_names_the_very_sources() -> None:
    made = machine.provenance(Parity(), LSTMConfig())
    sources = made["sources"]
    assert set(sources) == {"Parity", "LSTMConfig"}
    assert all(len(digest) == 12 for digest in sources.values())
    assert sources["Parity"] != sources["LSTMConfig"]
    assert made["packages"]["torch"] == torch.__version__
    assert not Path(made["command"][0]).is_absolute()


@pytest.mark.parametrize("name", ["warp", "cuda:77", "mps", ""])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match="device"):
        machine.find_device(name)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again() -> None:
    assert machine.keep_freed_memory()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            torch.ones(4_000_000)  # 16 MB, 3,900 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    assert faults() < 3900
