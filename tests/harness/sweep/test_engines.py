"""Engines: what they tell, room for packs, what is settled before any work; Ray's with tasks that end as they are told.

A Ray that runs is in test_engines_ray.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.engines import ray as ray_engine
from chomsky_ladder.harness.sweep.engines import worker
from chomsky_ladder.harness.sweep.engines.base import Ended, Fate, Job, Started, engine_of
from chomsky_ladder.harness.sweep.engines.ray import room
from chomsky_ladder.harness.sweep.engines.serial import SerialCrew
from chomsky_ladder.harness.train.loop import execute
from support.engine_jobs import cell, settings_at


def test_a_serial_engine_tells_what_happens(tmp_path: Path) -> None:
    jobs = [Job(1, (cell(), cell(seed=1))), Job(2, (cell(seed=2),))]
    chosen, options = engine_of("serial")
    with chosen.open(settings_at(tmp_path, pack=2), options) as engine:
        assert isinstance(engine, SerialCrew) and engine.workers == 1
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
    return list(ray_engine.RayCrew(ray, settings_at(folder), gpus=0.25).events(jobs))


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
    assert ray.submitted == 1 + worker.RETRIES == 4
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
    monkeypatch.setattr(worker, "_working", True)
    with pytest.raises(ValueError, match="must sweep under `if __name__ == '__main__':`"):
        ray_engine.fitting(FakeRay(), Exec(), gpus_per_pack=1.0)
