"""One run of a pack: its folder, its counters between sessions, its scores and its result.

Runs that train as one are written separately: each has its own metrics, checkpoints, record and outcome.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.adapt import adaptation, base_folder, begin
from chomsky_ladder.harness.train.build import restored, weigh_state
from chomsky_ladder.harness.train.data import tokens_per_step
from chomsky_ladder.harness.train.distributed import make_evaluator
from chomsky_ladder.harness.train.machine import fingerprint, provenance, without_arithmetic
from chomsky_ladder.harness.train.optim import rate_at
from chomsky_ladder.harness.train.outcome import by_length, floors_by, summary
from chomsky_ladder.harness.train.pack import Pack, Seen
from chomsky_ladder.harness.train.replays import Room
from chomsky_ladder.harness.train.same_code import codes_of, refuse_checkpoint_of_other_code, with_earlier_code
from chomsky_ladder.harness.train.score import G, Given, Score, Scores
from chomsky_ladder.harness.train.steps import captures
from chomsky_ladder.models.backbone import Model, count_parameters


@dataclass
class Counters:
    """A run's counters, which a checkpoint keeps beside weights and moments."""

    step: int = 0  # steps done
    logged: int = 0  # the last step that was logged
    loss_sum: float = 0.0  # of the steps since then
    perfect: int = 0  # perfect validations in a row
    mixed_numerics: bool = False  # resumed under another fingerprint


class Member:
    def __init__(self, run: Run, folder: RunFolder) -> None:
        self.run, self.folder = run, folder
        self.counters = Counters()
        self.backends: set[str] = set()
        self.start: dict[str, Any] | None = None  # the checkpoint it resumes from
        # Its share of its pack's seconds, over all sessions. Times are never compared between runs.
        self.seconds = 0.0  # of training
        self.validating = 0.0
        self.preparing = 0.0  # part of training: warm-up, compilation and capture, in this session
        self.refused: dict[str, str] = {}  # parts of the step that could not be compiled, and why
        self.result: dict[str, Any] | None = None
        self.provenance = provenance(run.task, run.model)  # of the start: later commits were not running

    def starting(self, content: dict[str, Any] | None) -> "Member":
        """Set the checkpoint to resume from, or None for the start. Return self."""
        self.start = content
        return self

    def join(self, pack: Pack, row: int, settings: Exec, numerics: dict[str, Any], *, room: Room | None = None) -> None:
        """Become row `row` of a pack, at the step it starts from."""
        content = self.start
        self.model: Model = pack.models[row]
        replayed = captures(settings, pack.device)
        self.evaluator = make_evaluator(
            self.run, self.model, device=pack.device, backend=settings.backend, replayed=replayed, room=room
        )
        self.numerics = numerics
        self.validated: tuple[int, Score | None] = (0, None)  # step and score of the last validation
        if content is None:
            self.folder.cut_metrics(0)
            checkpoint.drop_after(self.folder.path, step=0)
            if self.run.train.base:
                base, trained, _ = restored(base_folder(self.run.train.base, settings.results))
                begin(self.model, self.run, base, trained)
            return
        assert content["run_id"] == self.run.run_id, f"a checkpoint of {content['run_id']} lies in {self.run.run_id}"
        refuse_checkpoint_of_other_code(self.run, content)
        self.counters = Counters(**content["counters"])
        here = numerics if "arithmetic" in content["numerics"] else without_arithmetic(numerics)
        self.counters.mixed_numerics |= content["numerics"] != here
        self.provenance = with_earlier_code(self.provenance, content)
        pack.restore(row, content, done=self.counters.step, loss_sum=self.counters.loss_sum)
        self.backends, self.seconds = set(content["backends"]), content["seconds"]
        self.validating = content["validating"]
        self.folder.cut_metrics(content["metrics_bytes"])
        checkpoint.drop_after(self.folder.path, step=self.counters.step)

    @property
    def stops_here(self) -> bool:
        """Return True if enough validations in a row were perfect to stop early."""
        return bool(self.run.train.stop_after) and self.counters.perfect >= self.run.train.stop_after

    def log(self, seen: Seen) -> None:
        counters = self.counters
        loss = counters.loss_sum / (counters.step - counters.logged)
        rate = rate_at(self.run.train, counters.step - 1)
        self.folder.log(step=counters.step, loss=loss, lr=rate, grad_norm=seen.norm, **seen.metrics)
        counters.loss_sum, counters.logged = 0.0, counters.step

    def validate(self, given: Given[Score] | None = None) -> float:
        """Score it on the validation strings, for the history and for an early stop. Return the accuracy."""
        start = time.monotonic()
        score = self._taken(given) if given else self.evaluator.validation()
        self.validating += time.monotonic() - start + (given.seconds if given else 0.0)
        if given is None:
            self.validated = (self.counters.step, score)
        accuracy = score.accuracy(score=self.run.eval.score)
        assert accuracy is not None
        is_perfect = score.is_perfect() or accuracy > self.run.train.stop_above
        self.counters.perfect = self.counters.perfect + 1 if is_perfect else 0
        bins = {f"validation/{name}": value for name, value in by_length(self.run, score).items()}
        self.folder.log(step=self.counters.step, validation=accuracy, exact=score.exact_share(), **bins)
        return accuracy

    def save(self, saved: dict[str, Any]) -> None:
        content = {
            "run_id": self.run.run_id,
            **saved,
            "counters": vars(self.counters),
            "backends": sorted(self.backends),
            "numerics": self.numerics,
            "code": codes_of(self.provenance),
            "seconds": self.seconds,
            "validating": self.validating,
            "metrics_bytes": self.folder.metrics_bytes(),
        }
        checkpoint.write(checkpoint.path_of(self.folder.path, self.counters.step), content)
        checkpoint.prune(self.folder.path)

    def finish(self, given: Given[Scores[Score]] | None = None, *, stopped_early: bool) -> None:
        """Score it with the weights of the last step, never of the best checkpoint, and write its record.

        If the last update made weights that are not finite, the run diverged. No later loss can show this.
        """
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            self.diverge(self.counters.step, loss=math.nan, norm=math.nan)
            return
        self.folder.log_time(event="trained", steps=self.counters.step, seconds=round(self.seconds, 3))
        start = time.monotonic()
        step, score = self.validated
        scores = self._taken(given) if given else self.evaluator.scores(score if step == self.counters.step else None)
        result = {**self._outcome("done"), "stopped_early": stopped_early, **self._summaries(scores)}
        scoring = time.monotonic() - start + (given.seconds if given else 0.0)
        self.folder.log_time(event="scored", seconds=round(scoring, 3))
        spent = {"train": self.seconds, "prepare": self.preparing, "validate": self.validating, "score": scoring}
        result["seconds"] = {name: round(seconds, 3) for name, seconds in spent.items()}
        result["seconds"]["expected"] = self.folder.expected_seconds()
        self.result = self.folder.finish(result)
        checkpoint.prune(self.folder.path, keep=1)

    def diverge(self, steps: int, *, loss: float, norm: float) -> None:
        """Write the record of a run whose loss, gradient or weights are not finite."""
        self.counters.step = steps
        result = {**self._outcome("diverged"), "loss": repr(loss), "grad_norm": repr(norm)}
        self.result = self.folder.finish(result)

    def leave(self) -> None:
        """Free what its pack holds for it: weights, and the graphs of its scores."""
        for name in ("model", "evaluator"):
            vars(self).pop(name, None)

    def _taken(self, given: Given[G]) -> G:
        """Return scores that the pack computed for it, and note the backends that were used."""
        self.backends |= given.backends
        if given.refused:
            self.refused = {**self.refused, "replayed.scores": given.refused}
        return given.scores

    def _summaries(self, scores: Scores[Score]) -> dict[str, Any]:
        run, evaluator = self.run, self.evaluator
        splits = {name: getattr(scores, name) for name in ("test", "validation", "in_distribution")}
        task = evaluator.test_task
        refused = {**self.refused, **({"replayed.scores": evaluator.refused} if evaluator.refused else {})}
        return {
            "floors": task.floors(task.legal_lengths(*run.eval.lengths), score=floors_by(run))._asdict(),
            **{name: summary(run, score, task if name == "test" else None) for name, score in splits.items()},
            "extrapolation": {str(length): summary(run, score) for length, score in scores.extrapolation.items()},
            "backends": sorted(self.backends | evaluator.backends),
            **({"refused": refused} if refused else {}),
        }

    def _outcome(self, status: str) -> dict[str, Any]:
        return {
            **columns_of(self.run),
            "status": status,
            "steps": self.counters.step,
            "tokens_per_step": tokens_per_step(self.run),
            "parameters": count_parameters(self.model),
            "state_bytes": weigh_state(self.model) if self.run.model.stepwise else None,
            "numerics": self.numerics,
            "fingerprint": fingerprint(self.numerics),
            "mixed_numerics": self.counters.mixed_numerics,
            "provenance": self.provenance,
            **({"adaptation": adaptation(self.model, self.run)} if self.run.train.base else {}),
        }
