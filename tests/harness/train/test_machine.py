"""The record of a machine, and that a step's memory is kept instead of faulted in again."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train import machine
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.switches import SWITCHES
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.scans.products import library
from chomsky_ladder.tasks.parity import Parity
from support.small_runs import small

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some machines ask something of their libraries for every process."""
    for name in list(os.environ):
        if name.startswith(machine.LIBRARIES):
            monkeypatch.delenv(name)


@pytest.mark.full
def test_numerics_are_what_may_move_the_last_bits() -> None:
    tree = machine.numerics(Exec(), CPU)
    of_the_machine = {
        "device",
        "instructions",
        "threads",
        "torch",
        "onednn",
        "tf32",
        "kernels",
        "compiled",
        "arithmetic",
    }
    of_the_machine |= {"products"} if library(1, 2**24) else set()
    assert set(tree) == of_the_machine | {"backend", "pack", "processes", "steps"}
    assert {"torch.lstm", "torch.sdpa"} <= set(tree["kernels"])
    assert all(type(value) in (str, int, list) for value in tree.values()), "a checkpoint holds no other type"
    prints = {machine.fingerprint(machine.numerics(Exec(threads=threads), CPU)) for threads in (1, 1, 2)}
    assert len(prints) == 2


@pytest.mark.parametrize(
    "variable",
    ["MKL_CBWR=COMPATIBLE", "MKL_ENABLE_INSTRUCTIONS=SSE4_2", "DNNL_MAX_CPU_ISA=SSE41", "OPENBLAS_CORETYPE=X"],
)
def test_instructions_that_are_asked_for_are_other_numerics(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = machine.fingerprint(machine.numerics(Exec(), CPU))
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    monkeypatch.setenv("DNNL_VERBOSE", "0")
    assert machine.fingerprint(machine.numerics(Exec(), CPU)) == usual
    monkeypatch.setenv(*variable.split("="))
    tree = machine.numerics(Exec(), CPU)
    assert tree["libraries"] == [variable] and machine.fingerprint(tree) != usual


ROUNDING = """
import torch
from chomsky_ladder.harness.train.arithmetic import arithmetic
before = torch.random.get_rng_state()
print(arithmetic(torch.device("cpu"), 1), bool(torch.equal(before, torch.random.get_rng_state())))
"""


@pytest.mark.full
def test_what_a_machine_makes_of_a_computation_is_in_its_fingerprint() -> None:
    """Other instructions of the same processor round otherwise, and it shows whoever asked for them."""
    said = {}
    for name in ("", "ATEN_CPU_CAPABILITY=default", "MKL_NUM_THREADS=3"):
        asked = dict([name.split("=")]) if name else {}
        done = subprocess.run(
            [sys.executable, "-c", ROUNDING], env=os.environ | asked, capture_output=True, text=True, check=True
        )
        said[name] = done.stdout.split()
    assert all(untouched == "True" for _, untouched in said.values()), "it draws nothing"
    assert said[""] == said["MKL_NUM_THREADS=3"] != said["ATEN_CPU_CAPABILITY=default"]
    tree = machine.numerics(Exec(), CPU)
    assert tree["arithmetic"] == said[""][0], "another process, the same bytes"
    other = tree | {"arithmetic": "0" * 12}
    assert machine.fingerprint(other) != machine.fingerprint(tree)
    assert machine.without_arithmetic(other) == machine.without_arithmetic(tree)


OTHER = {torch.float32: torch.bfloat16, "none": "tf32", torch.device("cpu"): torch.device("meta")}


@pytest.mark.each_time(20)
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_of_torch_stands_as_the_run_says(name: str) -> None:
    """Whoever turned it finds it turned again afterwards."""
    switch = SWITCHES[name]
    before, other = switch.read(), OTHER.get(switch.wanted, not switch.wanted)
    try:
        switch.turn(other)
        with machine.pinned(1):
            assert switch.read() == switch.wanted
        assert switch.read() == other
    finally:
        switch.turn(before)


def test_a_run_is_the_same_under_any_default_dtype(tmp_path: Path) -> None:
    (run,) = small(steps=3)
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            losses.append(execute(run, Exec(results=tmp_path / str(dtype)), quiet=True)["test"]["loss"])
        finally:
            torch.set_default_dtype(torch.float32)
    assert losses[0] == losses[1]


def test_a_fingerprint_has_what_counts_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(machine, "arithmetic", lambda device, threads: "as it is there")
    versions = {"triton": "3.6.0", "mamba-ssm": "2.3"}
    monkeypatch.setattr(machine, "_version_if_any", lambda name: versions.get(name, ""))
    there, here = (machine.numerics(Exec(), torch.device(name)) for name in ("cuda", "cpu"))
    assert set(there) - set(here) == {"cuda", "cudnn", "packages"}
    assert there["packages"] == ["triton 3.6.0", "mamba-ssm 2.3"]
    versions["triton"] = "3.7.1"
    assert machine.fingerprint(there) != machine.fingerprint(machine.numerics(Exec(), torch.device("cuda")))
    assert "driver" not in machine.provenance(Parity(), LSTMConfig())["machine"]


def test_provenance_names_the_very_sources() -> None:
    made = machine.provenance(Parity(), LSTMConfig())
    sources = made["sources"]
    assert set(sources) == {"Parity", "LSTMConfig"}
    assert all(len(digest) == 12 for digest in sources.values())
    assert sources["Parity"] != sources["LSTMConfig"]
    public, _, _ = str(torch.__version__).partition("+")  # what is installed may be named without its build
    assert made["packages"]["torch"].partition("+")[0] == public
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_a_run_held_is_handed_back() -> None:
    assert machine.keep_freed_memory()

    def held() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    parts = [torch.ones(1_000_000) for _ in range(60)]  # 240 MB
    most = held()
    del parts
    kept = held()
    machine.let_go(CPU)
    assert kept > most - 50e6, "it is kept while a run goes on"
    assert held() < most - 150e6


@pytest.mark.full
def test_bf16_products_do_not_kill_the_process() -> None:
    """Some virtual machines announce matrix tiles but fault when they are used."""
    program = """
import torch
from chomsky_ladder.harness.train.machine import avoid_faulty_tiles
needed = avoid_faulty_tiles()
torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)
torch.nn.LSTM(16, 16).bfloat16()(torch.ones(4, 8, 16, dtype=torch.bfloat16))
import os
assert needed == (os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_FP16")
"""
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=120).returncode == 0


def test_the_tiles_are_tried_beside_threads_that_are_at_work() -> None:
    program = """
import torch
from chomsky_ladder.harness.train.machine import avoid_faulty_tiles
torch.set_num_threads(2)
torch.ones(1_000_000).exp()
avoid_faulty_tiles()
"""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS")
    }
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60).returncode == 0


def test_a_limit_the_user_sets_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    machine.avoid_faulty_tiles.cache_clear()
    assert not machine.avoid_faulty_tiles()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    machine.avoid_faulty_tiles.cache_clear()
