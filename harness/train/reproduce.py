"""Train and score a recorded run again with its original kernels, and compare the results with its record.

    same bits              every number of the record and every kept validation came out equal to the last bit
    same within numerics   accuracies within ACCURACY, those of few lengths within BIN, the loss within LOSS, and
                           a known cause of other last bits: the device, torch, the kernels, the code
    differs                anything else, even the smallest difference without such a cause

A loss of 5.95e-05 on one kernel and 8.97e-05 on another is the second case, if both answer everything. On another
machine training may amplify the last bits until a seed learns what it did not learn before. That is the third case, and
no defect of the record.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.curves import validations
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder, find_run
from chomsky_ladder.harness.store.record import Record
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.machine import find_device, fingerprint, numerics, processor, without_arithmetic
from chomsky_ladder.harness.train.steps import captures
from chomsky_ladder.models.kernels.choose import available
from chomsky_ladder.models.kernels.kernel import KERNELS, RESERVED

ACCURACY = 0.02  # of a share of right answers
BIN = 0.1  # of the same over a few lengths, which have fewer strings; of a metric, if larger than LOSS_SHARE
LOSS, LOSS_SHARE = 0.02, 0.1  # nats, or this share of the larger loss, whichever is more

_ACCURACIES = ("test", "test_exact", "test_hits", "validation", "in_distribution")
_MADE = ("parameters", "state_bytes", "tokens_per_step", "s_rand", "best_constant", "content_free")  # not from training
_MOVING = ("test_scaled", "steps", "stopped_early", "steps_to_95", "steps_to_99")
_BY_NAME = ("test_bins", "content_free_bins", "extrapolation", "metrics")
_COMPILED = "compiled."  # parts made by torch.compile have this prefix among the kernels

Verdict = Literal["same bits", "same within numerics", "differs"]


@dataclass(frozen=True)
class Comparison:
    """Reproduced numbers beside recorded ones, each as (then, now)."""

    verdict: Verdict
    numbers: int
    """The number of values that were compared."""
    unequal: dict[str, tuple[Any, Any]]
    beyond: list[str]
    """The names of differences that numerics do not excuse."""
    numerics: dict[str, tuple[Any, Any]]
    """The differences in everything that may change last bits."""

    def plain(self) -> dict[str, Any]:
        return {**vars(self), "tolerance": {"accuracy": ACCURACY, "bin": BIN, "loss": LOSS, "loss_share": LOSS_SHARE}}


def kernels_of(record: Record) -> list[str]:
    return [name for name in record.backends.split() if not name.startswith(_COMPILED)]


def told_apart(record: Record, device: torch.device) -> dict[str, tuple[str, str]]:
    """Return how this machine differs from the record's, as (then, now), before the start."""
    here = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    pairs = {"device": (record.device, here), "torch": (record.torch, str(torch.__version__))}
    able = {kernel.name: kernel.missing() for kernel in available()}
    for name in kernels_of(record):
        if able.get(name, "unknown to this code"):
            pairs[f"kernel {name}"] = ("ran", able.get(name, "unknown to this code"))
    return {name: pair for name, pair in pairs.items() if pair[0] and pair[0] != pair[1]}


def settings_of(record: Record, source: Path, *, results: Path, device: str) -> Exec:
    """Return the execution settings of a record, from its result if that exists, else guessed from its fingerprint."""
    made = (read_json(source / "runs" / record.run_id / "result.json") or {}).get("numerics", {})
    was_compiled = any(name.startswith(_COMPILED) for name in record.backends.split())
    usual = Exec(
        results=results, device=device, threads=made.get("threads", 1), compile="on" if was_compiled else "off"
    )
    tried = [made["backend"]] if made else ["auto", "reference", *kernels_of(record)]
    able = [name for name in tried if name in RESERVED or name in _able()]
    settings = [replace(usual, backend=name) for name in able]
    fitting = [each for each in settings if made or record.fingerprint in _fingerprints(each)]
    return fitting[0] if fitting else usual


def _able() -> list[str]:
    return [kernel.name for kernel in available() if not kernel.missing()]


def _fingerprints(settings: Exec) -> set[str]:
    """Return the fingerprint of a single run under these settings on this machine, and its older form.

    The older form has no digest of computed values.
    """
    device = find_device(settings.device)
    tree = numerics(settings, device, capture="graph" if captures(settings, device) else "plain")
    return {fingerprint(tree), fingerprint(without_arithmetic(tree))}


@contextmanager
def only_kernels(names: Collection[str]) -> Iterator[None]:
    """Let blocks find these kernels and no others, whatever they prefer. With no names they use plain torch."""
    before = list(KERNELS)
    KERNELS[:] = [replace(kernel, when="auto") for kernel in before if kernel.name in names]
    try:
        yield
    finally:
        KERNELS[:] = before


def again(
    record: Record, run: Run, source: Path, settings: Exec, *, quiet: bool = False, stopping: str = ""
) -> Comparison:
    """Train and score the run in the folder of `settings`. `source` is the results folder of the record."""
    then = validations(source, run.run_id)
    if run.train.base:  # the base run's weights are only read
        base = find_run(source, run.train.base).path
        place = settings.results / "runs" / base.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(base.resolve())
    with only_kernels({*kernels_of(record), settings.backend}):
        result = execute(run, settings, quiet=quiet, stopping=stopping)
    now = Record.of(RunFolder(settings.results, run.run_id))
    assert now is not None, "a run that was executed has a result"
    tree = {**result["numerics"], "kernels": _able()}  # as without the restriction to some kernels
    before = fingerprint(without_arithmetic(tree))
    now.fingerprint = before if before == record.fingerprint else fingerprint(tree)
    return compared(record, now, then, validations(settings.results, run.run_id))


def compared(then: Record, now: Record, validated: Mapping[int, float], validates: Mapping[int, float]) -> Comparison:
    """Compare two records of a run and its validation accuracies by step. Values that the first lacks are left out."""
    pairs = {name: (getattr(then, name), getattr(now, name)) for name in ("status", *_MADE, *_MOVING, "test_loss")}
    pairs |= {name: (getattr(then, name), getattr(now, name)) for name in _ACCURACIES}
    for name in _BY_NAME:
        recorded, made = (json.loads(getattr(record, name)) for record in (then, now))
        pairs |= {f"{name} {key}": (value, made.get(key)) for key, value in recorded.items()}
    if validated:
        pairs |= {f"validation at {step}": (validated.get(step), validates.get(step)) for step in validates}
        pairs |= {f"validation at {step}": (value, validates.get(step)) for step, value in validated.items()}
    optional = {"tokens_per_step", "state_bytes", "steps_to_95", "steps_to_99"}  # the first records may lack them
    pairs = {name: pair for name, pair in pairs.items() if pair[0] is not None or name not in optional}
    unequal = {name: pair for name, pair in pairs.items() if not _equal(*pair)}
    moved = _differing(then, now)
    beyond = [name for name, pair in unequal.items() if not _excused(name, pair, then.s_rand or 0.0)]
    if "steps" in unequal and not (then.stopped_early and now.stopped_early):
        beyond = list(dict.fromkeys([*beyond, "steps"]))
    beyond = beyond if moved else list(unequal)
    verdict: Verdict = "differs" if beyond else "same within numerics" if unequal else "same bits"
    return Comparison(verdict, len(pairs), unequal, beyond, moved)


def _equal(then: Any, now: Any) -> bool:
    return then == now or (then != then and now != now)


def _excused(name: str, pair: tuple[Any, Any], chance: float) -> bool:
    """Return True if other last bits can explain it. Single validations, and what they decide, follow from the rest."""
    if name.startswith(("validation at", "steps_to_")):
        return True
    if name in ("status", "stopped_early") or None in pair:
        return False
    if name in _MADE or name.startswith("content_free_bins"):
        return math.isclose(*pair, rel_tol=1e-9)
    return abs(pair[0] - pair[1]) <= _limit(name, max(map(abs, pair)), chance)


def _limit(name: str, larger: float, chance: float) -> float:
    """Return how far a number may move, given the larger of the two."""
    if name == "steps":  # of two runs that stopped early; compared() wants equality from others
        return larger / 2
    if name == "test_loss":
        return max(LOSS, LOSS_SHARE * larger)
    if name == "test_scaled":
        return ACCURACY / max(1 - chance, ACCURACY)
    if name.startswith("metrics "):
        return max(BIN, LOSS_SHARE * larger)
    return ACCURACY if name in _ACCURACIES else BIN


def _differing(then: Record, now: Record) -> dict[str, tuple[Any, Any]]:
    """Return the differences in everything that may change last bits. Uncommitted code counts as a difference."""
    names = ("device", "torch", "backends", "fingerprint", "mixed_numerics", *(("sources",) if then.sources else ()))
    pairs = {name: (getattr(then, name), getattr(now, name)) for name in names}
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    code = _code(then), _code(now)
    return found | ({"code": code} if code[0] != code[1] or then.dirty or now.dirty else {})


def _code(record: Record) -> str:
    return f"{record.commit[:12]}{' and changes' if record.dirty else ''}"
