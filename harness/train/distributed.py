"""One run in several processes: each computes its share of the rows of every batch, and all take the same step.

    torchrun --nproc-per-node 2 -m chomsky_ladder run parity transformer

Rank r of W draws rows r B/W .. (r+1) B/W of a step's batch and no others: strings and dropout masks are addressed by
row. With n_r scored tokens on rank r, its share of the loss and the sum of all ranks' gradients are

    L_r = (n_r / n) (mean over its own scored tokens + the blocks' extra losses),      g = sum_r dL_r / dw,

which is the gradient of one process with the whole batch. A block's extra loss may couple the rows: an expert's balance
loss is a product of means over all valid positions. `SharedContext.mean_valid` gives every rank the mean over the whole
batch, and its backward pass sums the ranks' gradients. So this part also equals that of one process.

torch's DistributedDataParallel (Li et al. 2020, 2006.15704) hooks every parameter, collects gradients in buckets and
sends each bucket during the backward pass. Here weights and gradient are one flat row each. One all_reduce after the
backward pass is enough, and the model needs no wrapper. DDP also averages over the ranks, which is the wrong mean if
ranks have unequal numbers of scored tokens.

Only the first rank has the results folder: its lock, metrics, checkpoints and record. The others run the same code in a
temporary folder and start from what the first found. Loss, gradient norm and validation are sums over all ranks before
anything is decided from them, so all ranks decide alike.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.carried import CarryingPack
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.evaluate import Answers, Evaluator
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.replays import Room
from chomsky_ladder.harness.train.score import Score
from chomsky_ladder.harness.train.signals import Asked
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.tasks.base import Batch, Task

PATIENCE = timedelta(minutes=10)  # waited for a silent rank: the first may be writing a checkpoint
_JOINED = count()
Value = TypeVar("Value")


class PeerLost(Exception):
    """Another process of this run has ended or no longer answers."""


def launched() -> int:
    """Return how many processes torchrun started for this run, according to the environment; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ and "LOCAL_RANK" in os.environ else 1


def launched_rank() -> int:
    """Return the rank of this process. Rank 0 writes files and prints."""
    return int(os.environ["RANK"]) if launched() > 1 else 0


def processes() -> int:
    """Return the number of processes that train this run together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    return processes() == 1 or dist.get_rank() == 0


@contextmanager
def joined(run: Run, settings: Exec, *, init_method: str = "env://", patience: timedelta = PATIENCE) -> Iterator[Exec]:
    """Join the processes that were launched for a run.

    Yields the settings of this process, unchanged if it is alone.
    """
    number = launched()
    if number == 1:
        yield settings
        return
    rank, batch = launched_rank(), run.train.batch
    require(dist.is_available(), "this torch is built without torch.distributed, which several processes need")
    require(not run.train.base, f"an adaptation is trained by one process, not by {number}")
    whole = not (run.train.carries_state or run.train.asks_what_follows)
    alone = f"train.cut, passed, next_symbol and next_set are for one process, not for {number}"
    require(whole, alone)
    require(batch % number == 0, f"train.batch={batch} does not divide among {number} processes")
    for name in ("capture", "compile"):
        require(getattr(settings, name) != "on", f"exec.{name}=on is for one process, not for {number}")
    settings = replace(settings, device=_own_device(settings.device), capture="off", compile="off")
    # Decisions are shared over the host (gloo); only gradients travel between GPUs.
    backend = "gloo" if settings.device == "cpu" else "cpu:gloo,cuda:nccl"
    with TemporaryDirectory(prefix="ladder-rank-") as scratch:
        with _watched():
            # Each run has its own key prefix, or it would find the addresses of the last run.
            store = dist.PrefixStore(f"run {next(_JOINED)}", _store(init_method))
            dist.init_process_group(backend, store=store, rank=rank, world_size=number, timeout=patience)
        try:
            yield settings if rank == 0 else replace(settings, results=Path(scratch))
            from_first(None)  # wait until the first rank has written the result
        except Exception as error:
            if rank:  # only the first rank has a record in which to write the error
                _report(error, f"process {rank} of {number}")
            raise
        finally:
            dist.destroy_process_group()


@lru_cache(maxsize=1)
def _store(init_method: str) -> "dist.Store":
    """Return the key-value store through which the processes find each other."""
    store, _, _ = next(dist.rendezvous(init_method, launched_rank(), launched(), timeout=PATIENCE))
    return store


def _report(error: Exception, process: str) -> None:
    """Print why a process that writes no record ended."""
    cause = error if isinstance(error, PeerLost) else error.__cause__ or error
    if isinstance(cause, PeerLost):
        print(f"{process}: {cause}", file=sys.stderr)
    else:
        print(f"{process} failed:", file=sys.stderr)
        traceback.print_exception(cause)


def _own_device(name: str) -> str:
    """Choose this process's device: one GPU for each process of a machine, or the CPU for all."""
    device = find_device(name)
    if device.type == "cpu":
        return "cpu"
    local, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    require(device.index is None, f"exec.device={name} is one GPU; several processes take one each: exec.device=cuda")
    require(local < there, f"process {local + 1} of this machine has no GPU of its own: there are {there}")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


@contextmanager
def _watched() -> Iterator[None]:
    """Report errors of gloo and NCCL in one line, as `PeerLost`."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise PeerLost(f"another process of this run has ended or fallen silent ({said})") from error


def from_first(value: Value) -> Value:
    """Return the first process's value in every process."""
    if processes() == 1:
        return value
    box = [value]
    with _watched():
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def agreed(asked: Asked) -> Asked:
    """Return a function that gives the signal received by any process. All processes must call it at the same step."""
    if processes() == 1:
        return asked

    def of_all() -> int | None:
        number = torch.tensor(asked() or 0)
        with _watched():
            dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number) or None

    return of_all


def checkpoints_of_first(found: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Return the first process's checkpoints in every process. The others continue their own metrics from there."""
    contents = from_first(list(found))
    if is_first():
        return contents
    return [content and {**content, "metrics_bytes": 0} for content in contents]


def make_pack(runs: Sequence[Run], *, device: torch.device, backend: Backend) -> Pack:
    """Return the pack of these runs, or this process's share if several processes train one run."""
    alone = CarryingPack if runs[0].train.carries_state else Pack
    return (alone if processes() == 1 else ShardedPack)(runs, device=device, backend=backend)


def make_evaluator(
    run: Run, model: Model, *, device: torch.device, backend: Backend, replayed: bool = False, room: Room | None = None
) -> Evaluator:
    """Return the evaluator of a model. With several processes, each scores its share."""
    kind = Evaluator if processes() == 1 else SharedEvaluator
    return kind(run, model, device=device, backend=backend, replayed=replayed, room=room)


class _Total(torch.autograd.Function):
    """Sum over all processes. Every process's loss depends on every summand, so the backward pass sums, too."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return _summed(x)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def _summed(x: Tensor) -> Tensor:
    total = x.detach().clone(memory_format=torch.contiguous_format)
    with _watched():
        dist.all_reduce(total)
    return total


total: Callable[[Tensor], Tensor] = _Total.apply


@dataclass(kw_only=True)
class SharedContext(Context):
    """A context whose averages are those of the whole batch."""

    share: Tensor  # of the batch's valid positions, on this rank

    def mean_valid(self, x_BLX: Tensor) -> Tensor:
        own_X = super().mean_valid(x_BLX)
        return total(own_X * self.share.to(own_X.dtype))


class ShardedStream(TrainingStream):
    """Draws this process's rows of every batch."""

    def __init__(self, run: Run, device: torch.device) -> None:
        super().__init__([run], device)
        self._rows_B = self._rows_X = self._rows_B.chunk(processes())[dist.get_rank()]


class ShardedPack(Pack):
    """A pack of one run that computes this process's rows of each batch. Its weights are the same bits on all ranks."""

    def __init__(self, runs: Sequence[Run], *, device: torch.device, backend: Backend) -> None:
        assert len(runs) == 1, "several processes train one run"
        super().__init__(runs, device=device, backend=backend)
        self.stream = ShardedStream(self.run, device)
        with _watched():
            dist.broadcast(self.weight_RP, src=0)  # another kind of CPU may round the initial weights differently
        self.settle()

    def gradients(self, step: Tensor, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the gradient, loss and metrics of the whole batch, the same bits in every process."""
        gradient_RP, loss_R, metrics = super().gradients(step, batch)
        flat = _summed(torch.cat([gradient_RP[0], loss_R.to(gradient_RP.dtype)]))
        return flat[None, :-1], flat[-1:], metrics

    def losses(self, leaves: Sequence[Tensor], step: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return this process's share of the loss, and the blocks' metrics over the whole batch."""
        own = torch.stack([batch.scored_BL.sum(), batch.length_B.sum()]).double()
        self._scored_share, self._valid_share = own / _summed(own)
        loss_R, metrics = super().losses(leaves, step, batch)
        return loss_R * self._scored_share.to(loss_R.dtype), metrics

    def context(self, batch: Batch) -> Context:
        ctx = super().context(batch)
        given = {name: getattr(ctx, name) for name in ("valid_BL", "prompt_B", "asked_B", "backend")}
        return SharedContext(**given, share=self._valid_share)

    def saved(self, row: int) -> dict[str, Any]:
        """Return the checkpoint, which the first process writes. All check that their weights still agree."""
        own = self.weight_RP.view(torch.int32).sum(dtype=torch.int64)
        ends = torch.stack([own, -own])
        with _watched():
            dist.all_reduce(ends, dist.ReduceOp.MAX)
        assert int(ends.sum()) == 0, "the weights differ between the processes of this run"
        return super().saved(row) if is_first() else {"model": {}, "optimizer": {}}


class SharedEvaluator(Evaluator):
    """An evaluator in which process r scores every W-th batch.

    With equal weights its counts are those of one process.
    """

    def _answers(
        self, batches: Iterator[tuple[Batch, Tensor, Tensor]], task: Task, *, seed: int, split: str
    ) -> Iterator[Answers]:
        mine = islice(batches, dist.get_rank(), None, processes())
        return super()._answers(mine, task, seed=seed, split=split)

    def _counted(self, stream: Iterator[Answers], legal: Sequence[int]) -> Score:
        own = super()._counted(stream, legal).plain()
        lengths, others = own.pop("lengths"), own.pop("others", {})
        own |= {f"others.{name}": values for name, values in others.items()}
        table = torch.zeros(len(own), legal[-1] + 1, dtype=torch.float64)  # float64 holds counts exactly
        table[:, lengths] = torch.tensor(list(own.values()), dtype=torch.float64)
        columns: dict[str, Any] = dict(zip(own, _summed(table).tolist(), strict=True))
        seen = [length for length in legal if columns["strings"][length]]
        is_sum = {name: name == "nats" or name.startswith("others.") for name in own}
        kinds: dict[str, Callable[[Any], Any]] = {name: float if is_sum[name] else int for name in own}
        summed = {name: tuple(map(kinds[name], (column[n] for n in seen))) for name, column in columns.items()}
        counted = {name: summed.pop(f"others.{name}") for name in others}
        return Score(lengths=tuple(seen), **summed, others=counted)
