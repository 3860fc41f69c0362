"""One run in two processes is the run in one: gradients, steps, scores, records; and no process waits for a dead one.

The processes are this file, started twice as a script with the variables that torchrun sets, over gloo on the CPU.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import harness.train
from harness import checkpoint
from harness.build import build_model
from harness.config import Eval, Exec, Run, Train
from harness.data import TrainingStream
from harness.distributed import joined, launched_rank, make_evaluator, make_pack
from harness.machine import avoid_faulty_tiles
from harness.pack import Pack
from harness.records import Busy, RunFolder
from harness.registry import discover, find_model, find_task
from harness.signals import Preempted
from harness.train import RunFailed, execute
from models.base import Context
from models.lstm import LSTMBlock, LSTMConfig

Joined = Callable[[Run, Exec], AbstractContextManager[Exec]]
CPU, ROOT = torch.device("cpu"), Path(__file__).parents[2]
EXACT = Train(steps=24, batch=6, lengths=(3, 12), lr=1e-2, precision="fp64", warmup=0.1)
SCORE = Eval(
    lengths=(5, 12), test=40, validation=24, every=8, bins=(5, 12), extrapolate=(14,), extrapolation=6, batch=8
)


def cells() -> dict[str, Run]:
    """Answers of unequal number, dropout, a loss that couples the rows, a length and a curriculum for whole steps."""
    task = find_task("bucket_sort")()
    plain = {name: Run(task=task, model=find_model(name).tiny(), train=EXACT, eval=SCORE) for name in ("lstm", "moe")}
    dropped = replace(find_model("transformer").tiny(), dropout=0.3)
    shared = replace(EXACT, lengths_per="batch", curriculum=(6, 12))
    return plain | {
        "transformer": replace(plain["lstm"], model=dropped),
        "curriculum": replace(plain["lstm"], train=shared, seed=3),
    }


def first_gradient(pack: Pack) -> dict[str, Any]:
    """Of step 0, with what the loss is made of."""
    batch = pack.draw(pack.step_number, pack.run.train.longest(0))
    gradient_RP, loss_R, metrics = pack.gradients(pack.step_number, batch)
    named = {name: float(value) for name, value in metrics.items()}
    return {"gradient": gradient_RP, "loss": float(loss_R), "metrics": named, "scored": int(batch.scored_BL.sum())}


def ten_steps(pack: Pack) -> dict[str, Any]:
    for step in range(10):
        pack.advance(pack.run.train.longest(step))
    seen = pack.seen()[0]
    digest = hashlib.sha256(pack.weight_RP.numpy().tobytes()).hexdigest()
    return {"weight": pack.weight_RP.clone(), "digest": digest, "loss": seen.loss, "norm": seen.norm}


def worked(run: Run) -> dict[str, Any]:
    pack = make_pack([run], device=CPU, backend="auto")
    found = {"first": first_gradient(pack), "ten": ten_steps(pack)}
    scorer = make_evaluator(run, pack.models[0], device=CPU, backend="auto")
    scores = {"test": scorer.test(), "trained": scorer.in_distribution(), **scorer.extrapolation()}
    return found | {"scores": {name: score.plain() for name, score in scores.items()}}


@dataclass(frozen=True, kw_only=True)
class HalfBrokenConfig(LSTMConfig):
    """NaN in the fifth step, in the second process alone."""

    name = "half_broken"

    def block(self, layer: int) -> LSTMBlock:
        return _HalfBroken(self)


class _HalfBroken(LSTMBlock):
    def __init__(self, config: HalfBrokenConfig) -> None:
        super().__init__(config)
        self.calls = 0

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        self.calls += self.training
        broken = self.calls == 5 and launched_rank() == 1
        return super().forward(x_BLD, ctx) * (float("nan") if broken else 1.0)


def stopping_run() -> Run:
    train = Train(steps=400, batch=16, lengths=(3, 4), lr=3e-2, precision="fp64", stop_after=2)
    score = Eval(lengths=(3, 4), test=32, validation=32, every=10, bins=(3, 4), extrapolate=(), batch=8)
    return Run(task=find_task("even_pairs")(), model=LSTMConfig(d_model=16), train=train, eval=score, seed=1)


def settings_in(results: Path) -> Exec:
    return Exec(device="cpu", results=results, log_every=4, checkpoint_every=7)


@contextmanager
def at_step(step: int, act: Callable[[], object]) -> Iterator[None]:
    """The second process does something as it comes to a step."""
    advance = Pack.advance

    def acting(pack: Pack, longest: int) -> None:
        if launched_rank() == 1 and int(pack.step_number) == step:
            act()
        advance(pack, longest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pack, "advance", acting)
        yield


def whole(folder: Path, joined: Joined) -> dict[str, Any]:
    """What a healthy pair does: arithmetic, and runs to their end by every road."""
    runs = cells()
    with joined(runs["lstm"], Exec(device="cpu")):
        found: dict[str, Any] = {name: worked(run) for name, run in runs.items()}
    run = runs["transformer"]
    found["done"] = execute(run, settings_in(folder / "whole"))
    found["again"] = execute(run, settings_in(folder / "whole"))
    try:
        with at_step(9, lambda: os.kill(os.getpid(), signal.SIGTERM)):
            execute(run, settings_in(folder / "parts"))
    except Preempted as stop:
        found["code"] = stop.code
    found["parts"] = execute(run, settings_in(folder / "parts"))
    found["stopped"] = execute(stopping_run(), settings_in(folder / "stopped"))
    broken = replace(run, model=HalfBrokenConfig(d_model=8))
    found["diverged"] = execute(broken, settings_in(folder / "diverged"))
    held = RunFolder(folder / "busy", run.run_id)
    try:
        if launched_rank() == 0:
            with held.locked():
                execute(run, settings_in(folder / "busy"))
        else:
            execute(run, settings_in(folder / "busy"))
    except Busy as busy:
        found["busy"] = str(busy)
    found["left"] = [path.name for path in Path(os.environ["TMPDIR"]).iterdir()]
    return found


def faults(folder: Path) -> dict[str, Any]:
    """The second process falls silent, then breaks, then is killed."""
    found: dict[str, Any] = {}
    run = cells()["lstm"]
    given_up = folder / "given_up"

    def sleep() -> None:
        while not given_up.exists():
            time.sleep(0.05)

    acts = {"silent": sleep, "broken": lambda: 1 / 0, "killed": lambda: os.kill(os.getpid(), signal.SIGKILL)}
    for name, act in acts.items():
        start = time.monotonic()
        try:
            with at_step(3, act):
                execute(run, settings_in(folder / name))
        except RunFailed as failed:
            found[name] = str(failed), time.monotonic() - start
        if launched_rank() == 0:
            given_up.touch()
    return found


def main(folder: Path) -> None:
    """What each of the two processes does: the work of a healthy pair, then the faults, of which the last kills one."""
    torch.set_num_threads(1)
    avoid_faulty_tiles()
    discover()

    def joined_here(run: Run, settings: Exec) -> AbstractContextManager[Exec]:
        patience = timedelta(seconds=5 if settings.results.name == "silent" else 60)
        return joined(run, settings, init_method=f"file://{folder / 'store'}", patience=patience)

    harness.train.joined = joined_here
    torch.save(whole(folder, joined_here), folder / f"whole{launched_rank()}.pt")
    torch.save(faults(folder), folder / f"faults{launched_rank()}.pt")


class Pair(NamedTuple):
    folder: Path
    found: list[dict[str, Any]]
    ended: list[tuple[int, str]]  # return code and stderr


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two processes of this file, as torchrun would start them, and what each of them found."""
    folder = tmp_path_factory.mktemp("pair")
    shared = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    started, ended = [], []
    for rank in "01":
        temporary = folder / f"temporary{rank}"
        temporary.mkdir()
        environment = os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank, "TMPDIR": str(temporary)}
        command = [sys.executable, __file__, str(folder)]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        for process in started:
            _, said = process.communicate(timeout=120)
            ended.append((process.returncode, said))
    finally:
        for process in started:
            process.kill()
            process.wait()
    files = [folder / f"whole{rank}.pt" for rank in range(2)]
    assert all(file.exists() for file in files), ended
    return Pair(folder, [torch.load(file, weights_only=True) for file in files], ended)


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """One process with the whole batch."""
    return {name: worked(run) for name, run in cells().items()}


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


def test_torchrun_trains_one_run(tmp_path: Path) -> None:
    words = "run bucket_sort moe --model.d-model 16 --train.steps 4 --train.batch 6 --train.lengths 3 12 --eval.test 16"
    words += " --eval.validation 16 --eval.lengths 5 12 --eval.extrapolate --exec.device cpu --json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    environment = os.environ | {"LADDER_RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "harness.cli", *words.split()], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # of one process: two would be no JSON
    assert (result["status"], result["steps"], result["numerics"]["processes"]) == ("done", 4, 2)


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        ({"batch": 7}, {}, "train.batch=7 does not divide among 2 processes"),
        ({}, {"compile": "on"}, "exec.compile=on is for one process, not for 2"),
        ({}, {"capture": "on"}, "exec.capture=on is for one process, not for 2"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    train: dict[str, Any], settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    run = replace(cells()["lstm"], train=replace(EXACT, **train))
    with pytest.raises(ValueError, match=message):
        execute(run, replace(settings_in(tmp_path / "results"), **settings), quiet=True)
    assert not (tmp_path / "results").exists()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
