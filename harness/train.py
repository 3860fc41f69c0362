"""The loop: one run from its config to its result, from wherever its folder says it stopped.

The state of training is the weights, the optimiser's moments and a few counters, all in the checkpoint; data are
addressed by the step. So a run killed at any moment and started again ends with the weights and metrics of one that
was never killed, bit for bit under an equal numerics fingerprint.
"""

import math
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from harness import checkpoint
from harness.build import build_model, weigh_state
from harness.config import Exec, Run, without_training_targets
from harness.data import TrainingStream
from harness.evaluate import Evaluator, Score, autocast, context, scaled
from harness.machine import avoid_faulty_tiles, find_device, fingerprint, keep_freed_memory, numerics, provenance
from harness.optim import optimiser, rate_at, set_rate
from harness.progress import Progress
from harness.protocols import model_label, protocol_label, task_label
from harness.records import RunFolder
from models._kernels import demand
from models.backbone import count_parameters
from models.base import Context
from tasks.base import Batch, Task


class RunFailed(Exception):
    """A run broke; its folder holds the traceback."""


@dataclass
class Counters:
    """What the loop remembers besides weights and moments."""

    step: int = 0  # steps done
    loss_sum: float = 0.0  # of the steps since the last logged one
    unlogged: int = 0  # how many those are
    perfect: int = 0  # perfect validations in a row
    mixed_numerics: bool = False  # resumed under another fingerprint


def execute(run: Run, settings: Exec, *, quiet: bool = False, label: str = "") -> dict[str, Any]:
    """Train and score a run, or go on with it; the result of one that is done is returned as it stands."""
    device = find_device(settings.device)
    demand(settings.backend, model=run.model.name, device=device)
    folder = RunFolder(settings.results, run.run_id)
    with folder.locked():
        folder.open(run)
        done = folder.result()
        if done is not None:
            return done
        with pinned(settings.threads):
            try:
                loop = Loop(run, settings, folder, device)
                return loop.go(Progress(label or run.run_id, run.train.steps, quiet=quiet))
            except Exception as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                made = provenance(run.task, run.model)
                folder.fail({**labels(run), "error": said, "traceback": traceback.format_exc(), "provenance": made})
                raise RunFailed(f"{run.run_id} failed: {said} (traceback in {folder.path / 'failure.json'})") from error


def loss_of(model: nn.Module, batch: Batch, ctx: Context) -> Tensor:
    """Cross entropy, averaged over scored tokens, plus what the blocks added."""
    logits_BLV = model(batch.tokens_BL, ctx)
    targets_BL = torch.where(batch.scored_BL, batch.targets_BL, -100)
    loss = nn.functional.cross_entropy(logits_BLV.flatten(0, 1), targets_BL.flatten(), ignore_index=-100)
    return loss + sum(value for values in ctx.losses.values() for value in values)


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """The thread count of a run, put back afterwards; the process keeps the memory it has once taken."""
    keep_freed_memory()
    avoid_faulty_tiles()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Loop:
    """One run under way."""

    def __init__(self, run: Run, settings: Exec, folder: RunFolder, device: torch.device) -> None:
        self.run, self.settings, self.folder, self.device = run, settings, folder, device
        self.stream = TrainingStream(run, device)
        self.model = build_model(run, device)
        self.optimizer = optimiser(self.model, run.train)
        self.evaluator = Evaluator(run, self.model, device=device, backend=settings.backend)
        self.numerics = numerics(settings, device)
        self.provenance = provenance(run.task, run.model)  # of the start: what is committed later did not run
        self.counters = Counters()
        self.backends: set[str] = set()
        self._since = time.monotonic()
        self.seconds = 0.0  # of training, over all sessions; no part of any equality
        self._resume()

    def go(self, progress: Progress) -> dict[str, Any]:
        """From the step the folder is at to the result."""
        train, counters = self.run.train, self.counters
        self._since = time.monotonic()
        stopped_early = bool(train.stop_after) and counters.perfect >= train.stop_after
        while counters.step < train.steps and not stopped_early:
            loss, norm, metrics = self.step(counters.step)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                return self._diverged(loss, norm, progress)
            counters.step += 1
            counters.loss_sum += loss
            counters.unlogged += 1
            if self._logs(counters.step):
                self._log(norm, metrics)
            if self.run.eval.every and counters.step % self.run.eval.every == 0:
                score = self._validate()
                stopped_early = bool(train.stop_after) and counters.perfect >= train.stop_after
                note = f"loss {loss:.4f}  validation {score.accuracy():.3f}"
            else:
                note = f"loss {loss:.4f}"
            if counters.step % self.settings.checkpoint_every == 0 or stopped_early or counters.step == train.steps:
                self._save()
            progress.update(counters.step, note)
        self._tick()
        self.folder.log_time(event="trained", steps=counters.step, seconds=round(self.seconds, 3))
        start = time.monotonic()
        result = self._scored(stopped_early=stopped_early)
        scoring = time.monotonic() - start
        self.folder.log_time(event="scored", seconds=round(scoring, 3))
        result["seconds"] = {"train": round(self.seconds, 3), "score": round(scoring, 3)}
        self.folder.finish(result)
        checkpoint.prune(self.folder.path, keep=1)
        accuracy = result["test"]["accuracy"]
        progress.close(f"{counters.step} steps, test accuracy {accuracy:.3f}, {self.seconds + scoring:.1f}s")
        return result

    def _tick(self) -> None:
        """Add the time since the last tick to what training took."""
        now = time.monotonic()
        self.seconds, self._since = self.seconds + now - self._since, now

    def _logs(self, steps: int) -> bool:
        return steps % self.settings.log_every == 0

    def step(self, step: int) -> tuple[float, float, dict[str, float]]:
        """One optimiser step, unless the loss or the gradient is not finite; then the weights stay as they are."""
        train = self.run.train
        batch = self.stream.batch(step, longest=train.longest(step))
        ctx = context(batch, backend=self.settings.backend)
        ctx.masks = self.stream.masks(step)
        with autocast(self.run, self.device):
            loss = loss_of(self.model, batch, ctx)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), train.clip or math.inf)
        loss_value, norm_value = torch.stack([loss.detach().double(), norm.double()]).tolist()
        if math.isfinite(loss_value) and math.isfinite(norm_value):
            set_rate(self.optimizer, rate_at(train, step))
            self.optimizer.step()
        self.backends |= ctx.backends
        if not self._logs(step + 1):
            return loss_value, norm_value, {}
        named = {**ctx.losses, **ctx.metrics}
        return (
            loss_value,
            norm_value,
            {name: float(torch.stack(values).detach().mean()) for name, values in named.items()},
        )

    def _log(self, norm: float, metrics: dict[str, float]) -> None:
        counters = self.counters
        rate = rate_at(self.run.train, counters.step - 1)
        loss = counters.loss_sum / counters.unlogged
        self.folder.log(step=counters.step, loss=loss, lr=rate, grad_norm=norm, **metrics)
        counters.loss_sum, counters.unlogged = 0.0, 0

    def _validate(self) -> Score:
        score = self.evaluator.validation()
        self.counters.perfect = self.counters.perfect + 1 if score.is_perfect() else 0
        accuracy = score.accuracy(score=self.run.eval.score)
        self.folder.log(step=self.counters.step, validation=accuracy, exact=score.exact_share())
        return score

    def _scored(self, *, stopped_early: bool) -> dict[str, Any]:
        """Every score, at the last step's weights: never at the best checkpoint's."""
        run, evaluator = self.run, self.evaluator
        scores = {
            "test": evaluator.test(),
            "validation": evaluator.validation(),
            "in_distribution": evaluator.in_distribution(),
        }
        longer = evaluator.extrapolation()
        task = evaluator.test_task
        return {
            **self._outcome("done"),
            "stopped_early": stopped_early,
            "floors": task.floors(task.legal_lengths(*run.eval.lengths), score=run.eval.score)._asdict(),
            **{name: summary(run, score, task if name == "test" else None) for name, score in scores.items()},
            "extrapolation": {str(length): summary(run, score) for length, score in longer.items()},
            "backends": sorted(self.backends | evaluator.backends),
        }

    def _diverged(self, loss: float, norm: float, progress: Progress) -> dict[str, Any]:
        result = {**self._outcome("diverged"), "loss": repr(loss), "grad_norm": repr(norm)}
        self.folder.finish(result)
        progress.close(f"diverged at step {self.counters.step}: loss {loss}, gradient norm {norm}")
        return result

    def _outcome(self, status: str) -> dict[str, Any]:
        return {
            **labels(self.run),
            "status": status,
            "steps": self.counters.step,
            "parameters": count_parameters(self.model),
            "state_bytes": weigh_state(self.model) if self.run.model.stepwise else None,
            "numerics": self.numerics,
            "fingerprint": fingerprint(self.numerics),
            "mixed_numerics": self.counters.mixed_numerics,
            "provenance": self.provenance,
        }

    def _save(self) -> None:
        self._tick()
        content = {
            "run_id": self.run.run_id,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counters": vars(self.counters),
            "backends": sorted(self.backends),
            "numerics": self.numerics,
            "seconds": self.seconds,
            "metrics_bytes": self.folder.metrics_bytes(),
        }
        checkpoint.write(checkpoint.path_of(self.folder.path, self.counters.step), content)
        checkpoint.prune(self.folder.path)

    def _resume(self) -> None:
        content = checkpoint.newest(self.folder.path, device=self.device)
        if content is None:
            self.folder.cut_metrics(0)
            return
        assert content["run_id"] == self.run.run_id, f"a checkpoint of {content['run_id']} lies in {self.run.run_id}"
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.counters = Counters(**content["counters"])
        self.counters.mixed_numerics |= content["numerics"] != self.numerics
        self.backends = set(content["backends"])
        self.seconds = content["seconds"]
        self.folder.cut_metrics(content["metrics_bytes"])


def summary(run: Run, score: Score, task: Task | None = None) -> dict[str, Any]:
    """A score as the record holds it: headline numbers, bins beside their floors, and the counts they come from.

    `task` is that of the strings where they are not of the run's own.
    """
    how, task = run.eval.score, task or without_training_targets(run.task)
    accuracy = score.accuracy(score=how)
    assert accuracy is not None
    bins, floors = {}, {}
    for low, high in pairwise(run.eval.bins):
        above = low if low == run.eval.bins[0] else low + 1
        value = score.accuracy(score=how, low=above, high=high)
        if value is not None:
            bins[f"{above}..{high}"] = value
            floors[f"{above}..{high}"] = task.floors(task.legal_lengths(above, high), score=how).content_free
    return {
        "accuracy": accuracy,
        # Where several answers are right, 1 / answers is not what chance scores.
        "scaled": scaled(accuracy, 1 / len(task.answers)) if type(task).allowed is Task.allowed else None,
        "exact": score.exact_share(),
        "hits": score.hit_share(),
        "loss": score.loss(),
        "bins": bins,
        "content_free_bins": floors,
        "counts": score.plain(),
    }


def labels(run: Run) -> dict[str, Any]:
    """What a table needs to know of a run, so that it needs nothing but the record."""
    return {
        "run_id": run.run_id,
        "protocol": protocol_label(run),
        "task": task_label(run),
        "level": run.task.level,
        "model": model_label(run),
        "lr": run.train.lr,
        "seed": run.seed,
    }
