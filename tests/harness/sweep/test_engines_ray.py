"""The engine of Ray on this machine: the serial engine's bytes, and workers that are killed or told to stop."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

from chomsky_ladder.harness.config.registry import find_model, load_plugin
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.lock import holder
from chomsky_ladder.harness.sweep.engines.ray_cluster import connected
from chomsky_ladder.harness.sweep.sources import sources
from chomsky_ladder.harness.sweep.sweep import carry_out, sweep
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.signals import Preempted
from chomsky_ladder.models.lstm import LSTMConfig
from support.engine_jobs import acting, acting_plugin, assert_equal_bits, cell, settings_at

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return acting_plugin(tmp_path)


def test_sources_are_what_no_other_process_would_find(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources([cell()]) == ()
    assert sources([cell(), acting("train"), acting("die")]) == (str(plugin),)
    monkeypatch.syspath_prepend(plugin.parent)
    import mine

    assert sources([replace(cell(), model=mine.MineConfig(d_model=8))]) == ("mine",)
    monkeypatch.delitem(sys.modules, "mine")

    @dataclass(frozen=True, kw_only=True)
    class TypedConfig(LSTMConfig):
        name = "typed"

    TypedConfig.__module__ = "a_session"
    with pytest.raises(ValueError, match="typed was typed into a session: put it in a file"):
        sources([replace(cell(), model=TypedConfig(d_model=8))])


def test_sources_have_the_kernels_that_serve_the_models(tmp_path: Path) -> None:
    path = tmp_path / "quick.py"
    path.write_text(
        "from chomsky_ladder.models.kernels.kernel import Kernel, register\n"
        "register(Kernel(name='quick', computes='nothing', reference=abs, call=abs, serves=('mamba',)))\n"
    )
    load_plugin(str(path))
    assert sources([cell()]) == ()
    assert sources([replace(cell(), model=find_model("mamba").tiny())]) == (str(path),)


def test_without_ray_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"^--engine ray needs the package ray: pip install 'chomsky-ladder\[ray\]'$"):
        sweep([cell()], settings_at(tmp_path), engine="ray", quiet=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """One of this machine, as `sweep` starts it, for the tests below."""
    try:
        import ray
    except ImportError as error:
        if os.environ.get("LADDER_ORACLES") == "required":
            raise
        pytest.skip(str(error))
    before, home = signal.getsignal(signal.SIGTERM), tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))  # kernels in C
        patch.setenv("HOME", str(home))
        environment = dict(os.environ)
        with connected(None) as ray:
            assert signal.getsignal(signal.SIGTERM) is before
            folder = Path(ray._private.worker._global_node.get_session_dir_path()).parents[1]
            assert folder.name.startswith("ladder-ray-") and folder.stat().st_mode & 0o777 == 0o700
            yield ray
        assert not folder.exists() and not ray.is_initialized()
        assert [path for path in home.rglob("*") if path.is_file()] == []
        assert {name: value for name, value in os.environ.items() if "AUTH" in name} == {
            name: value for name, value in environment.items() if "AUTH" in name
        }


@pytest.mark.usefixtures("cluster")
@pytest.mark.full  # a cluster takes 12 s; what a lost one does is tested without one
def test_ray_gives_the_bytes_of_the_serial_engine(tmp_path: Path, plugin: Path, capsys: Capture) -> None:
    runs = [cell(seed=seed) for seed in range(3)] + [acting("train"), acting("break")]
    settings = settings_at(tmp_path / "ray", pack=2)
    report = carry_out(runs, settings, engine="ray")
    said = capsys.readouterr().err
    assert "the time it will take on 2 workers" in said or len(os.sched_getaffinity(0)) != 2
    assert "2 of parity lstm  2 of 2 runs done, mean test accuracy" in said
    assert report.done == 4 and list(report.of("failed")) == [runs[4].run_id]
    assert "RuntimeError: broken on purpose" in report.of("failed")[runs[4].run_id]
    sweep(runs[:4], settings_at(tmp_path / "serial", pack=2), quiet=True)
    for run in runs[:4]:
        assert_equal_bits(run, tmp_path / "ray", tmp_path / "serial")
    failure, result = RunFolder(tmp_path / "ray", runs[4].run_id).failure(), report.fates[runs[0].run_id]
    assert "broken on purpose" in failure["traceback"] and result.status == "done"
    assert failure["provenance"]["command"] == [Path(sys.argv[0]).name, *sys.argv[1:]]


@pytest.mark.full
@pytest.mark.usefixtures("cluster")
def test_a_sweep_told_to_stop_has_its_workers_write_checkpoints(tmp_path: Path) -> None:
    runs, settings = [cell(seed=seed, steps=300) for seed in range(2)], settings_at(tmp_path / "ray")
    folders = [RunFolder(tmp_path / "ray", run.run_id) for run in runs]

    def asking() -> None:
        while not any(checkpoint.steps(folder.path) for folder in folders):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=asking)
    thread.start()
    with pytest.raises(Preempted) as stop:
        sweep(runs, settings, engine="ray", quiet=True)
    thread.join()
    assert stop.value.code == 143
    stopped = [folder for folder in folders if folder.preempted()]
    assert stopped and not any(folder.result() or holder(folder.path) for folder in folders)
    assert all(folder.preempted()["step"] in checkpoint.steps(folder.path) for folder in stopped)
    assert all(sweep(runs, settings, quiet=True))  # another engine goes on with them
    (run,) = (run for run in runs if run.run_id == stopped[0].path.name)
    execute(run, settings_at(tmp_path / "serial"), quiet=True)
    assert_equal_bits(run, tmp_path / "ray", tmp_path / "serial")


@pytest.mark.full
@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_costs_a_run_nothing(tmp_path: Path, capsys: Capture) -> None:
    victim, other = cell(seed=7, steps=300), cell(seed=8)
    thread = threading.Thread(target=kill, args=(RunFolder(tmp_path / "ray", victim.run_id).path,))
    thread.start()
    report = carry_out([victim, other], settings_at(tmp_path / "ray"), engine="ray", quiet=True)
    thread.join()
    said = capsys.readouterr().err
    assert f"{victim.run_id}: its worker died (WorkerCrashedError)" in said
    assert f"{victim.run_id} goes on from its last checkpoint on another worker" in said
    assert report.complete
    execute(victim, settings_at(tmp_path / "serial"), quiet=True)
    assert_equal_bits(victim, tmp_path / "ray", tmp_path / "serial")


def kill(folder: Path) -> None:
    """Kill whoever trains a run, behind its first checkpoint."""
    while True:
        process = holder(folder)
        if process and checkpoint.steps(folder):
            return os.kill(process.process, signal.SIGKILL)
        time.sleep(0.02)


@pytest.mark.full
@pytest.mark.usefixtures("cluster")
def test_what_no_machine_has_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a pack needs 1024 CPUs and 0 GPUs, and no machine of Ray's has so much"):
        sweep([cell()], replace(settings_at(tmp_path), threads=1024), engine="ray", quiet=True)
    assert list((tmp_path / "runs").iterdir()) == []
