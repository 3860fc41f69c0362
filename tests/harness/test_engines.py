"""Engines: the same bytes from each, workers that are killed or told to stop, and what is refused before any work."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from harness import checkpoint, ray_engine
from harness.config import Eval, Exec, Run, Train
from harness.engines import Ended, Fate, Job, SerialEngine, Started, opened
from harness.lock import holder
from harness.ray_cluster import connected
from harness.ray_engine import room, sources
from harness.records import RunFolder
from harness.registry import find_model, find_task, load_plugin
from harness.signals import Preempted
from harness.sweeps import carry_out, sweep
from harness.train import execute
from models.lstm import LSTMConfig

Capture = pytest.CaptureFixture[str]
TRAIN = Train(steps=40, batch=4, lengths=(3, 8))
SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=20, bins=(8, 12), extrapolate=())


def cell(model: str = "lstm", *, seed: int = 0, steps: int = 40) -> Run:
    train = replace(TRAIN, steps=steps)
    return Run(task=find_task("parity")(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def settings_at(folder: Path, *, pack: int = 0) -> Exec:
    return Exec(results=folder, device="cpu", log_every=10, checkpoint_every=10, pack=pack)


def assert_equal_bits(run: Run, one: Path, other: Path) -> None:
    ours, theirs = (RunFolder(folder, run.run_id) for folder in (one, other))
    assert ours.metrics.read_bytes() == theirs.metrics.read_bytes() != b""
    mine, yours = (checkpoint.newest(folder.path) for folder in (ours, theirs))
    assert mine["counters"] == yours["counters"]
    assert all(torch.equal(value, yours["model"][name]) for name, value in mine["model"].items())
    assert ours.result()["test"] == theirs.result()["test"]
    assert ours.result()["numerics"] == theirs.result()["numerics"]


def test_a_serial_engine_tells_what_happens(tmp_path: Path) -> None:
    jobs = [Job(1, (cell(), cell(seed=1))), Job(2, (cell(seed=2),))]
    with opened("serial", settings_at(tmp_path, pack=2)) as engine:
        assert isinstance(engine, SerialEngine) and engine.workers == 1
        events = list(engine.events(jobs))
    assert [type(event) for event in events] == [Started, Ended, Started, Ended]
    assert [event.job.number for event in events] == [1, 1, 2, 2]
    (fate,) = events[3].fates
    result = RunFolder(tmp_path, fate.run_id).result()
    assert (fate.status, fate.accuracy) == ("done", result["test"]["accuracy"])
    assert fate.said == f"40 steps, test accuracy {fate.accuracy:.3f}, {fate.seconds:.1f}s"
    assert [fate.run_id for fate in events[1].fates] == [run.run_id for run in jobs[0].runs]


def test_names_of_packs() -> None:
    alone, together = Job(1, (cell(seed=4),)), Job(2, (cell(), cell(seed=1)))
    assert (alone.name, alone.title) == (cell(seed=4).run_id, "parity lstm s4")
    assert (together.name, together.title) == ("2 of parity lstm", "parity lstm x2")


@pytest.mark.parametrize(
    ("machines", "cpus", "gpus", "packs"),
    [
        ([{"CPU": 2.0}], 1, 0.0, 2),
        ([{"CPU": 7.0}], 2, 0.0, 3),
        ([{"CPU": 1.0}, {"CPU": 1.0}], 2, 0.0, 0),  # of two machines, none has enough
        ([{"CPU": 64.0, "GPU": 8.0}], 1, 1.0, 8),
        ([{"CPU": 64.0, "GPU": 2.0}], 1, 0.3, 6),  # three on each, not six and a bit
        ([{"CPU": 64.0, "GPU": 2.0}], 1, 0.1, 20),
        ([{"CPU": 4.0, "GPU": 2.0}], 1, 0.1, 4),
        ([{"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 3.0}], 1, 2.0, 5),
        ([{"CPU": 64.0}], 1, 0.5, 0),
    ],
)
def test_room_for_packs(machines: list[dict[str, float]], cpus: int, gpus: float, packs: int) -> None:
    assert room(machines, cpus=cpus, gpus=gpus) == packs


def test_the_device_is_said_to_the_worker() -> None:
    with_gpu, without = [{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}], [{"CPU": 8.0}]
    assert ray_engine._device("auto", with_gpu) == ray_engine._device("cuda", without) == "cuda:0"
    assert ray_engine._device("auto", without) == ray_engine._device("cpu", with_gpu) == "cpu"
    with pytest.raises(ValueError, match=r"exec\.device=cuda:1: with --engine ray, Ray chooses among GPUs"):
        ray_engine._device("cuda:1", with_gpu)


PLUGIN = """
import os, signal
from dataclasses import dataclass
from models.base import register
from models.lstm import LSTMBlock, LSTMConfig

class Block(LSTMBlock):
    def forward(self, x_BLD, ctx):
        if self.config.act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.act == "break":
            raise RuntimeError("broken on purpose")
        return super().forward(x_BLD, ctx)

@register
@dataclass(frozen=True, kw_only=True)
class MineConfig(LSTMConfig):
    name = "mine"
    act: str = "train"

    def block(self, layer):
        block = Block(self)
        block.config = self
        return block
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    load_plugin(str(path))
    return path


def acting(act: str, *, seed: int = 0) -> Run:
    run = cell("mine", seed=seed)
    return replace(run, model=replace(run.model, act=act))


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
        patch.setenv("HOME", str(home))
        environment = dict(os.environ)
        with connected(None) as ray:
            assert signal.getsignal(signal.SIGTERM) is before
            folder = Path(ray._private.worker._global_node.get_session_dir_path()).parent
            assert folder.name.startswith("ladder-ray-") and folder.exists()
            yield ray
        assert not folder.exists() and not ray.is_initialized()
        assert list(home.iterdir()) == []
        assert {name: value for name, value in os.environ.items() if "AUTH" in name} == {
            name: value for name, value in environment.items() if "AUTH" in name
        }


@pytest.mark.usefixtures("cluster")
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


@pytest.mark.usefixtures("cluster")
def test_what_no_machine_has_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a pack needs 9999 CPUs and 0 GPUs, and no machine of Ray's has so much"):
        sweep([cell()], replace(settings_at(tmp_path), threads=9999), engine="ray", quiet=True)
    assert list((tmp_path / "runs").iterdir()) == []


class FakeRay:
    """Ray as the engine sees it, its tasks ending as they are told to: with an error, or with what is given back."""

    class exceptions:  # noqa: N801
        class RayError(Exception): ...

        class OutOfMemoryError(RayError): ...

        class RayTaskError(RayError):
            cause = ValueError("plugin mine.py does not import")

    def __init__(self, *ends: Any) -> None:
        self.ends, self.submitted, self.most, self.options_given = list(ends), 0, 0, {}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]

    def remote(self, function: object) -> Any:
        return self

    def options(self, **options: Any) -> Any:
        self.options_given = options
        return SimpleNamespace(remote=self._submit)

    def _submit(self, *arguments: object) -> int:
        self.submitted += 1
        return self.submitted

    def wait(self, running: list[int], timeout: float) -> tuple[list[int], list[int]]:
        self.most = max(self.most, len(running))
        return running[:1], running[1:]

    def get(self, reference: int) -> Any:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def fake_events(ray: FakeRay, folder: Path, jobs: list[Job]) -> list[Any]:
    return list(ray_engine.RayEngine(ray, settings_at(folder), gpus=0.25).events(jobs))


def test_device_and_folder_are_settled_before_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = ray_engine.fitting(FakeRay(), Exec(device="auto", results=Path("here")), gpus_per_pack=0.5)
    assert engine.workers == 2  # a dead machine has none
    assert engine._settings == Exec(device="cpu", results=tmp_path / "here") and engine._gpus == 0
    with pytest.raises(ValueError, match=r"needs 1 CPUs and 0\.5 GPUs, .* so much: there is 2 CPUs and 0 GPUs$"):
        ray_engine.fitting(FakeRay(), Exec(device="cuda"), gpus_per_pack=0.5)


def test_a_pack_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    ray, job = FakeRay(*[FakeRay.exceptions.OutOfMemoryError()] * 9), Job(1, (cell(), cell(seed=1)))
    execute(job.runs[0], settings_at(tmp_path), quiet=True)
    events = fake_events(ray, tmp_path, [job])
    assert ray.submitted == 1 + ray_engine.RETRIES == 4
    assert [type(event).__name__ for event in events] == ["Started", *["Said"] * 7, "Ended"]
    assert events[1].text == "2 of parity lstm: its worker was killed: the machine ran out of memory"
    assert events[2].text == "2 of parity lstm goes on from its last checkpoint on another worker"
    done, lost = events[-1].fates
    error = "its worker was killed: the machine ran out of memory, 4 times"
    assert done.status == "done" and lost == Fate(job.runs[1].run_id, "failed", f"failed: {error}")
    failure = RunFolder(tmp_path, lost.run_id).failure()
    assert (failure["error"], failure["kind"], failure["run_id"]) == (error, "worker lost", lost.run_id)


def test_a_pack_goes_on_after_its_worker_was_told_to_stop(tmp_path: Path) -> None:
    job = Job(1, (cell(),))
    fates = [Fate(cell().run_id, "done", "40 steps")]
    events = fake_events(FakeRay((None, ["a checkpoint is written"]), (fates, ["a warning"])), tmp_path, [job])
    assert [event.text for event in events if type(event).__name__ == "Said"] == [
        "a checkpoint is written",
        f"{job.name}: its worker was told to stop",
        f"{job.name} goes on from its last checkpoint on another worker",
        "a warning",
    ]
    assert events[-1] == Ended(job, fates)


def test_what_a_worker_cannot_load_is_not_tried_again(tmp_path: Path) -> None:
    ray, job = FakeRay(FakeRay.exceptions.RayTaskError()), Job(1, (cell(),))
    events = fake_events(ray, tmp_path, [job])
    assert events == [
        Started(job),
        Ended(job, [Fate(cell().run_id, "failed", "failed: ValueError: plugin mine.py does not import")]),
    ]


def test_as_many_packs_are_submitted_as_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "room", lambda machines, cpus, gpus: int(sum(m["CPU"] for m in machines)))
    jobs = [Job(number, (cell(seed=number),)) for number in range(1, 6)]
    ray = FakeRay(*[([Fate(job.runs[0].run_id, "done", "")], []) for job in jobs])
    events = fake_events(ray, tmp_path, jobs)
    assert (ray.submitted, ray.most) == (5, 2)
    assert [event.job.number for event in events if isinstance(event, Ended)] == [1, 2, 3, 4, 5]
    wanted = {"num_cpus": 1, "num_gpus": 0.25, "max_retries": 0}
    assert wanted.items() <= ray.options_given.items()
    assert ray.options_given["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"


def test_a_worker_starts_no_sweep_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_working", True)
    with pytest.raises(ValueError, match="must sweep under `if __name__ == '__main__':`"):
        ray_engine.fitting(FakeRay(), Exec(), gpus_per_pack=1.0)
