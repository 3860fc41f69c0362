"""A Ray that dies under a sweep ends it in one line: no pack is at fault, and nothing is recorded as failed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.status import survey
from chomsky_ladder.harness.sweep.engines import ray_cluster
from chomsky_ladder.harness.sweep.engines.base import Crew, Ended, Job, Said
from chomsky_ladder.harness.sweep.engines.ray import RayCrew
from chomsky_ladder.harness.sweep.engines.worker import RETRIES
from support.engine_jobs import cell, settings_at


class RayError(Exception):
    """The base of all of Ray's errors."""


ERRORS = ("RayTaskError", "OutOfMemoryError", "LocalRayletDiedError", "NodeDiedError", "WorkerCrashedError")
EXCEPTIONS = SimpleNamespace(RayError=RayError, **{name: type(name, (RayError,), {}) for name in ERRORS})


class Cluster:
    """The part of Ray that the engine uses. Each of its answers may be an error that is raised."""

    exceptions = EXCEPTIONS

    def __init__(self, **answers: Callable[[], Any]) -> None:
        self.answers, self.submitted, self.cancelled = answers, 0, 0

    def _answer(self, name: str, usual: Any) -> Any:
        return self.answers[name]() if name in self.answers else usual

    def nodes(self) -> list[dict[str, Any]]:
        return self._answer("nodes", [{"Alive": True, "Resources": {"CPU": 2.0}}])

    def remote(self, work: Callable[..., Any]) -> "Cluster":
        self.options = lambda **_: SimpleNamespace(remote=self._submit)
        return self

    def _submit(self, *words: Any) -> int:
        self.submitted += 1
        return self._answer("submit", self.submitted)

    def wait(self, references: list[int], **_: Any) -> tuple[list[int], list[int]]:
        return self._answer("wait", (references[:1], references[1:]))

    def get(self, reference: int) -> Any:
        return self._answer("get", None)

    def cancel(self, reference: int) -> None:
        self.cancelled += 1


def raising(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        raise getattr(EXCEPTIONS, name, ConnectionError)(name)

    return answer


def crew(cluster: Cluster, results: Path) -> Crew:
    stands_in: Any = cluster
    module: ModuleType = stands_in
    return RayCrew(module, settings_at(results), gpus=0.0)


JOBS = [Job(number, (cell(seed=number),)) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("answers", "submitted"),
    [
        ({"get": raising("LocalRayletDiedError")}, 2),
        (
            {
                "get": raising("NodeDiedError"),
                "nodes": iter([[{"Alive": True, "Resources": {"CPU": 1.0}}], [], []]).__next__,
            },
            1,
        ),
        ({"wait": raising("RayError")}, 2),
        ({"nodes": raising("ConnectionError")}, 0),
        ({"submit": raising("ConnectionError")}, 1),
    ],
)
def test_a_dead_ray_is_one_strike(answers: dict[str, Callable[[], Any]], submitted: int, tmp_path: Path) -> None:
    cluster = Cluster(**answers)
    with pytest.raises(
        ConnectionError, match=r"^Ray has died or is out of reach \(\w+\): what is done is kept, .*again$"
    ):
        list(crew(cluster, tmp_path).events(JOBS))
    assert cluster.submitted <= submitted
    assert not list(tmp_path.rglob("failure.json"))


def test_what_a_killed_sweep_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster.tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(ray_cluster, "_PREFIX", f"ladder-ray-{os.getpid()}-")
    with ray_cluster._folder() as mine:
        left = Path(tempfile.mkdtemp(prefix=f"ladder-ray-{os.getpid()}-", dir="/tmp"))
        (left / "held").touch()
        with ray_cluster._folder() as beside:
            assert not left.exists(), "nobody is at work there"
            assert Path(mine).parent.is_dir() and Path(beside).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(mine).parent.exists() and not Path(beside).parent.exists()


def test_a_dead_worker_is_its_packs_own_and_stays_visible(tmp_path: Path) -> None:
    cluster = Cluster(get=raising("WorkerCrashedError"))
    events = list(crew(cluster, tmp_path).events(JOBS[:2]))
    assert cluster.submitted == 2 * (RETRIES + 1)
    assert sum(isinstance(event, Said) for event in events) == 2 * (2 * RETRIES + 1)
    ended = [event for event in events if isinstance(event, Ended)]
    assert [fate.status for event in ended for fate in event.fates] == ["failed", "failed"]
    runs = survey(tmp_path)
    assert [run.state for run in runs] == ["failed", "failed"] and all("4 times" in run.error for run in runs)
    assert all(RunFolder(tmp_path, run.run_id).config() for run in runs)
