"""The program of each of two processes with half of a run: work of a healthy pair, then faults.

Each has the variables that torchrun sets, with gloo on the CPU. Its findings are written to the given folder, for the
tests.
"""

import hashlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import discover, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import Busy, RunFolder
from chomsky_ladder.harness.train import loop
from chomsky_ladder.harness.train.distributed import joined, launched_rank, make_evaluator, make_pack
from chomsky_ladder.harness.train.loop import RunFailed, execute
from chomsky_ladder.harness.train.machine import avoid_faulty_tiles
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.signals import Preempted
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.lstm import LSTMBlock, LSTMConfig

Joined = Callable[[Run, Exec], AbstractContextManager[Exec]]
CPU = torch.device("cpu")
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
    """Return the gradient of step 0, with the loss and its parts."""
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
    """Do the work of a healthy pair: arithmetic, and runs to their end in every way."""
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


def main(folder: Path, rank: int) -> None:
    """Do the work of a healthy pair, then the faults, of which the last kills one process."""
    temporary = folder / f"temporary{rank}"
    temporary.mkdir()
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
    avoid_faulty_tiles()
    discover()

    def joined_here(run: Run, settings: Exec) -> AbstractContextManager[Exec]:
        patience = timedelta(seconds=5 if settings.results.name == "silent" else 60)
        return joined(run, settings, init_method=f"file://{folder / 'store'}", patience=patience)

    loop.joined = joined_here
    torch.save(whole(folder, joined_here), folder / f"whole{rank}.pt")
    torch.save(faults(folder), folder / f"faults{rank}.pt")
