"""One run in two processes is the run in one: gradients, steps, scores, records; and no process waits for a dead one.

The processes are tests/support/pair_of_processes.py, started once; all tests that read what they found are in this
file.
"""

import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.block import Context
from support.faults import Child
from support.pair_of_processes import CPU, cells, main, settings_in, stopping_run, worked


class Pair(NamedTuple):
    folder: Path
    found: list[dict[str, Any]]
    ended: list[tuple[int | None, str]]  # exit code, and what it said


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two processes, as torchrun would start them, and what each of them found."""
    folder = tmp_path_factory.mktemp("pair")
    started = [Child(folder / f"notes{rank}", main, folder, rank) for rank in range(2)]
    try:
        ended = [(child.ended(within=120), child.said) for child in started]
    finally:
        for child in started:
            child.killed()
    files = [folder / f"whole{rank}.pt" for rank in range(2)]
    assert all(file.exists() for file in files), ended
    return Pair(folder, [torch.load(file, weights_only=True) for file in files], ended)


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """One process with the whole batch."""
    return {name: worked(run) for name, run in cells().items()}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("cell", ["lstm", "transformer", "moe", "curriculum"])
def test_the_gradient_is_that_of_the_whole_batch(cell: str, pair: Pair, alone: dict[str, dict[str, Any]]) -> None:
    expected = alone[cell]["first"]
    ours, theirs = (found[cell]["first"] for found in pair.found)
    assert ours["scored"] != theirs["scored"] or cell == "curriculum"
    assert ours["scored"] + theirs["scored"] == expected["scored"]
    assert torch.equal(ours["gradient"], theirs["gradient"])
    torch.testing.assert_close(ours["gradient"], expected["gradient"], rtol=0, atol=1e-12)
    assert ours["loss"] == theirs["loss"] == pytest.approx(expected["loss"], abs=1e-12)
    assert ours["metrics"] == theirs["metrics"] == pytest.approx(expected["metrics"], abs=1e-12)


def test_the_gradient_is_torchs_own(pair: Pair) -> None:
    """Written out here, without a pack: the mean over all scored tokens of the batch."""
    run = cells()["lstm"]
    model = build_model(run, CPU)
    batch = TrainingStream([run], CPU).batch(0, longest=12)
    logits_BLV = model(batch.tokens_BL, Context())
    nats = -logits_BLV.log_softmax(-1)[batch.scored_BL].gather(1, batch.targets_BL[batch.scored_BL][:, None])
    nats.mean().backward()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    found = pair.found[0]["lstm"]["first"]["gradient"][0]
    torch.testing.assert_close(found[found != 0], flat[flat != 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "transformer", "moe", "curriculum"])
def test_ten_steps_are_those_of_one_process(cell: str, pair: Pair, alone: dict[str, dict[str, Any]]) -> None:
    expected = alone[cell]["ten"]
    ours, theirs = (found[cell]["ten"] for found in pair.found)
    assert ours["digest"] == theirs["digest"]
    torch.testing.assert_close(ours["weight"], expected["weight"], rtol=0, atol=1e-10)
    assert ours["loss"] == theirs["loss"] == pytest.approx(expected["loss"], abs=1e-10)
    assert ours["norm"] == theirs["norm"] == pytest.approx(expected["norm"], abs=1e-9)


@pytest.mark.parametrize("cell", ["lstm", "transformer"])
def test_scores_are_counted_over_both(cell: str, pair: Pair, alone: dict[str, dict[str, Any]]) -> None:
    expected = alone[cell]["scores"]
    ours, theirs = (found[cell]["scores"] for found in pair.found)
    assert ours == theirs
    assert ours.keys() == expected.keys() == {"test", "trained", 14}
    for name, score in ours.items():
        nats = expected[name].pop("nats")
        assert score.pop("nats") == pytest.approx(nats, rel=1e-8)
        assert score == expected[name]
    assert sum(ours["test"]["strings"]) == 40
    assert sum(ours["test"]["correct"]) > 0


def test_a_run_leaves_the_record_of_one_process(pair: Pair, tmp_path: Path) -> None:
    folder, (ours, theirs), _ = pair
    run = cells()["transformer"]
    expected = execute(run, settings_in(tmp_path), quiet=True)
    done = ours["done"]
    for key in ("status", "steps", "parameters", "floors", "stopped_early", "backends"):
        assert done[key] == theirs["done"][key] == expected[key]
    for key in ("test", "validation", "in_distribution"):
        assert done[key]["counts"]["correct"] == expected[key]["counts"]["correct"]
        assert done[key] == theirs["done"][key]
    assert (done["numerics"]["processes"], expected["numerics"]["processes"]) == (2, 1)
    one, other = RunFolder(folder / "whole", run.run_id), RunFolder(tmp_path, run.run_id)
    assert one.result() == done
    assert sorted(path.name for path in one.path.iterdir()) == sorted(path.name for path in other.path.iterdir())
    assert len(one.history()) == len(other.history()) > 0
    for line, wanted in zip(one.history(), other.history(), strict=True):
        assert line == pytest.approx(wanted, rel=1e-9)
    weights, wanted = (checkpoint.newest(f.path)["model"] for f in (one, other))
    assert all(torch.allclose(value, wanted[name], rtol=0, atol=1e-10) for name, value in weights.items())


def test_the_second_process_leaves_nothing(pair: Pair) -> None:
    assert [found["left"] for found in pair.found] == [[], []]
    assert len(list((pair.folder / "whole" / "runs").iterdir())) == 1


def test_a_run_that_is_done_or_held_is_so_for_both(pair: Pair) -> None:
    ours, theirs = pair.found
    assert ours["again"] == theirs["again"] == ours["done"]
    assert ours["busy"] == theirs["busy"]
    assert "is being written by process" in ours["busy"]


def test_a_signal_to_one_stops_both_at_a_step_they_go_on_from(pair: Pair) -> None:
    folder, (ours, theirs), _ = pair
    assert ours["code"] == theirs["code"] == 128 + signal.SIGTERM
    assert ours["parts"]["test"] == ours["done"]["test"] == theirs["parts"]["test"]
    assert not ours["parts"]["mixed_numerics"]
    whole, parts = (RunFolder(folder / name, cells()["transformer"].run_id) for name in ("whole", "parts"))
    assert whole.metrics.read_bytes() == parts.metrics.read_bytes()
    one, other = (checkpoint.newest(f.path)["model"] for f in (whole, parts))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_both_stop_early_where_one_process_does(pair: Pair, tmp_path: Path) -> None:
    expected = execute(stopping_run(), settings_in(tmp_path), quiet=True)
    assert expected["stopped_early"]
    for found in pair.found:
        assert (found["stopped"]["stopped_early"], found["stopped"]["steps"]) == (True, expected["steps"])


def test_a_loss_that_breaks_in_one_diverges_in_both(pair: Pair) -> None:
    for found in pair.found:
        assert (found["diverged"]["status"], found["diverged"]["steps"]) == ("diverged", 4)
        assert found["diverged"]["loss"] == "nan"


def test_nobody_waits_for_a_process_that_is_gone(pair: Pair) -> None:
    (first, said_first), (second, said_second) = pair.ended
    assert (first, second) == (0, -signal.SIGKILL), said_first
    found = torch.load(pair.folder / "faults0.pt", weights_only=True)
    assert list(found) == ["silent", "broken", "killed"]
    for name, (said, seconds) in found.items():
        assert "PeerLost: another process of this run has ended or fallen silent" in said
        assert seconds < 30  # half of what the last two had patience for: a broken connection is noticed
        failure = RunFolder(pair.folder / name, cells()["lstm"].run_id).failure()
        assert failure["error"].startswith("PeerLost")
    assert "process 1 of 2 failed" in said_second
    assert "ZeroDivisionError" in said_second
