"""Processes killed by the system: alone, as a pack, in the middle of writing, and beside others at the same list."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.sweep import sweep
from support.faults import (
    EVERY,
    STEPS,
    Child,
    Hindrance,
    assert_same,
    kill_and_restart,
    outcome,
    put_into,
    steps_logged,
    sweeps,
    the_run,
)

FAMILIES = {"attention": "transformer", "scan": "mamba", "non-linear": "lstm"}
SEEDS = range(3)
OF_THE_PACK = ("numerics", "fingerprint", "mixed_numerics")  # a kill among the last scores leaves a smaller pack


def killed_as_never_killed(model: str, folder: Path, *, kills: int, seed: int) -> None:
    run = the_run(model)
    start = time.monotonic()
    sweep([run], put_into(folder / "whole"), quiet=True)
    seconds = time.monotonic() - start + 0.003 * STEPS
    kill_and_restart(
        [run],
        put_into(folder / "killed"),
        folder / "notes",
        kills=kills,
        seconds=1.5 * seconds / kills,
        rng=random.Random(seed),
    )
    assert_same(outcome(folder / "killed", run), outcome(folder / "whole", run))
    assert steps_logged(RunFolder(folder / "killed", run.run_id)) == list(range(5, STEPS + 1, 5))


@pytest.mark.each_time(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_killed_three_times_is_never_killed(family: str, tmp_path: Path) -> None:
    killed_as_never_killed(FAMILIES[family], tmp_path, kills=3, seed=sorted(FAMILIES).index(family))


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The models that came through; one line for results/LOG.md at the end."""
    passed: list[str] = []
    yield passed
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nKilled ten times at random moments = never killed, bit for bit: {', '.join(passed)} ({len(passed)})")


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(all_models()))
def test_every_model_killed_ten_times_is_never_killed(model: str, tmp_path: Path, tally: list[str]) -> None:
    killed_as_never_killed(model, tmp_path, kills=10, seed=sorted(all_models()).index(model))
    tally.append(model)


@pytest.fixture(scope="module")
def whole_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("whole_pack")
    assert all(sweep([the_run(seed=seed) for seed in SEEDS], put_into(results, pack=3), quiet=True))
    return results


def test_a_pack_killed_at_random_moments_is_never_killed(tmp_path: Path, whole_pack: Path) -> None:
    runs = [the_run(seed=seed) for seed in SEEDS]
    settings = put_into(tmp_path / "killed", pack=3)
    kill_and_restart(runs, settings, tmp_path / "notes", kills=4, seconds=0.2, rng=random.Random(7))
    for run in runs:
        assert_same(outcome(settings.results, run), outcome(whole_pack, run), but=OF_THE_PACK)


@pytest.mark.full
def test_a_pack_killed_in_the_middle_of_its_writes_is_never_killed(tmp_path: Path, whole_pack: Path) -> None:
    """Every process dies at some fsync: of a member's metrics, of half a checkpoint or result, or of its folder."""
    runs, rng = [the_run(seed=seed) for seed in SEEDS], random.Random(3)
    settings, deaths = put_into(tmp_path / "killed", pack=3), 0
    for attempt in range(100):
        # A checkpoint of the three is nine syncs, so that most processes get some way before they die.
        hindrance = Hindrance(dies_at_sync=rng.randrange(9, 27))
        child = Child(tmp_path / "notes" / str(attempt), sweeps, runs, settings, hindrance=hindrance)
        if child.ended() == 0:
            break
        deaths += child.process.exitcode == -9
        for run in runs:  # nothing half-written is taken for done
            folder = RunFolder(settings.results, run.run_id)
            done = folder.path.exists() and folder.result()
            assert not done or done["status"] == "done"
    assert deaths >= 4
    for run in runs:
        assert_same(outcome(settings.results, run), outcome(whole_pack, run), but=OF_THE_PACK)
        assert not list(RunFolder(settings.results, run.run_id).path.glob("*.part"))


def steps_of(children: list[Child]) -> Counter[str]:
    return Counter(step for child in children for step in child.steps)


def test_two_sweeps_of_one_list_train_every_run_once(tmp_path: Path) -> None:
    runs = [the_run(seed=seed) for seed in range(4)]
    settings, slow = put_into(tmp_path / "both"), Hindrance(pause=0.004)
    both = [Child(tmp_path / name, sweeps, runs, settings, hindrance=slow) for name in ("one", "other")]
    assert [child.ended() for child in both] == [0, 0], [child.said for child in both]
    assert all(child.steps for child in both), "one of them did all the work"
    assert steps_of(both) == {f"{seed}:{step}": 1 for seed in range(4) for step in range(STEPS)}
    expected = sweep(runs, put_into(tmp_path / "alone"), quiet=True)
    assert all(expected)
    for run in runs:
        assert_same(outcome(settings.results, run), outcome(tmp_path / "alone", run))


@pytest.mark.full
def test_a_worker_killed_beside_another_costs_its_own_run_a_checkpoint(tmp_path: Path) -> None:
    runs = [the_run(seed=seed) for seed in range(4)]
    settings, slow = put_into(tmp_path / "both"), Hindrance(pause=0.004)
    victim = Child(tmp_path / "victim", sweeps, runs, settings, hindrance=slow)
    victim.until(lambda: len(victim.steps) > EVERY)
    other = Child(tmp_path / "other", sweeps, runs, settings, hindrance=slow)
    other.until(lambda: other.steps)
    assert victim.killed()
    lost = victim.steps[-1].split(":")[0]
    assert other.ended() == 0, other.said
    assert all(sweep(runs, settings, quiet=True))  # what the other left, now that its holder is dead
    for seed, run in enumerate(runs):
        sweep([run], put_into(tmp_path / "alone"), quiet=True)
        assert_same(outcome(settings.results, run), outcome(tmp_path / "alone", run))
        if str(seed) == lost:  # its last checkpoint at least was not done again
            again = steps_of([victim, other])
            assert all(again[f"{seed}:{step}"] == 1 for step in range(EVERY))
    others = {step: count for step, count in steps_of([victim, other]).items() if step.split(":")[0] != lost}
    assert others == {f"{seed}:{step}": 1 for seed in range(4) if str(seed) != lost for step in range(STEPS)}
