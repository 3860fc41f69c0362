"""Plan a sweep: form its packs, and estimate their time from a few measured steps of each shape.

Runs that differ only in seeds and scalars of training form a pack. On a GPU a pack of tiny models costs little more
than one of them, since kernel launches limit the speed, not arithmetic. On a CPU a pack has one run by default: in a
larger pack a run rounds differently (its record's fingerprint says so), and the gain depends on the model. We measured
nine runs as one pack against one after the other. With width 32 and batches of 32 strings of 3..40, steps were 1.2 to
1.4 times as fast for RNNs, GRUs, LSTMs and LSTM blocks, and 1.1 to 1.3 times for attention, xLSTM, the gated delta rule
and Mamba. With width 64 and batch 256 the first four gained nothing (.9 to 1.0). `packing` measures the gain for a
given sweep.

`plan.json` keeps the expected seconds of each run. Its record later shows them beside the real ones.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.conform.before import refuse_leaks
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder, expected_seconds, plan_file
from chomsky_ladder.harness.store.places import refuse_published
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.evaluate_pack import PackEvaluator, pays
from chomsky_ladder.harness.train.machine import find_device, pinned
from chomsky_ladder.harness.train.outcome import kind_of
from chomsky_ladder.harness.train.pack import Pack, pack_key
from chomsky_ladder.harness.train.same_code import refuse_other_code
from chomsky_ladder.harness.train.steps import UNROLLED, WARM_UP, captures, compiles, stepper
from chomsky_ladder.harness.train.workable import preflight, refuse_unworkable
from chomsky_ladder.models.kernels.choose import stacks

LARGEST_PACK = 27  # three learning rates with nine seeds
_PACKED = 9  # runs in a pack that is tried on a CPU
_SAMPLED = 6  # timed steps of a shape on a CPU, after warm-up
_LONGEST = 2000  # steps of the timed run: enough to decide about compilation
_SHARE = 0.8  # of the device's memory that a pack may fill


@dataclass(frozen=True)
class Part:
    """A pack of the sweep and its expected time."""

    runs: tuple[Run, ...]
    seconds: float
    """Expected seconds of training, from the steps already done, and of evaluation."""
    step_ms: float
    preparing: float
    """Expected seconds of warm-up, compilation and capture."""


def packs(runs: Sequence[Run], *, size: Callable[[Sequence[Run]], int]) -> list[list[Run]]:
    """Group the runs into packs, in the order of their first runs. `size` returns how many runs of a shape form one."""
    shapes: dict[Any, list[Run]] = {}
    for run in runs:
        stacks_up = run.model.stackable and not run.train.carries_state
        shapes.setdefault(pack_key(run) if stacks_up else run, []).append(run)
    found = []
    for group in shapes.values():
        most = size(group)
        found += [group[start : start + most] for start in range(0, len(group), most)]
    places = {run.run_id: place for place, run in enumerate(runs)}
    return sorted(found, key=lambda group: places[group[0].run_id])


def pack_size(settings: Exec) -> Callable[[Sequence[Run]], int]:
    """Return how many runs of a shape train as one: the requested number, else one on a CPU and what fits on CUDA."""
    device = find_device(settings.device)
    if settings.pack or device.type == "cpu" or not stacks(settings.backend):
        return lambda group: settings.pack or 1
    return lambda group: _fitting(group[:LARGEST_PACK], settings, device)


def plan(runs: Sequence[Run], settings: Exec, *, size: Callable[[Sequence[Run]], int] | None = None) -> list[Part]:
    """Return the packs left in a sweep with their times. Each shape is timed once, and compiled once for each model.

    `size` comes from an engine whose packs differ from this machine's.
    """
    refuse_other_code(runs, settings.results)
    todo = [run for run in runs if not RunFolder(settings.results, run.run_id).is_done()]
    device = preflight(todo, settings)
    refuse_leaks(todo, settings)
    known: dict[Any, _Costs] = {}
    gains: dict[str, tuple[float, float]] = {}
    parts = []
    for group in packs(todo, size=size or pack_size(settings)):
        refuse_unworkable(group[0].model, backend=settings.backend, device=device, stacked=len(group) > 1)
        shape = pack_key(group[0]), len(group)
        if shape not in known:
            with pinned(settings.threads), _fitting_into_memory(group):
                known[shape] = _costs(group, settings, device, gains)
        costs, train = known[shape], group[0].train
        folders = [RunFolder(settings.results, run.run_id).path for run in group]
        left = train.steps - min(max(checkpoint.steps(folder), default=0) for folder in folders)
        seconds = left * costs.step + len(group) * costs.scoring
        parts.append(Part(tuple(group), seconds, 1e3 * costs.step, costs.preparing))
    return parts


@contextmanager
def _fitting_into_memory(group: Sequence[Run]) -> Iterator[None]:
    """Refuse, in one line, runs of which not even one step fits into memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if kind_of(error) != "out of memory":
            raise
        several = f" in a pack of {len(group)}" if len(group) > 1 else ""
        size = f"{group[0].train.batch:,} strings of up to {group[0].train.lengths[1]:,} symbols"
        said = f"{group[0].run_id}{several}: a step of {size} does not fit into memory"
        raise ValueError(f"{said}: lower train.batch, train.lengths or exec.pack") from None


@dataclass(frozen=True)
class Packing:
    """The gain of training a model's runs as packs."""

    model: str
    size: int
    gain: float
    """Speed relative to the same runs one after the other, evaluation included."""


def packing(parts: Sequence[Part], settings: Exec) -> list[Packing]:
    """Measure the gain of packs where they are not the default: for each model, on its most frequent shape."""
    device = find_device(settings.device)
    if settings.pack or device.type != "cpu" or not stacks(settings.backend):
        return []
    groups: dict[str, list[Run]] = {}
    for group in packs([run for part in parts for run in part.runs], size=len):
        name = group[0].model.name
        if len(group) > max(1, len(groups.get(name, ()))):
            groups[name] = group[:_PACKED]
    found = []
    for name, group in groups.items():
        with pinned(settings.threads):
            alone, together = (_measured(some, settings, device) for some in (group[:1], group))
        one_by_one = len(group) * (group[0].train.steps * alone.step + alone.scoring)
        as_one = group[0].train.steps * together.step + len(group) * together.scoring
        found.append(Packing(name, len(group), one_by_one / as_one))
    return found


def save(parts: Sequence[Part], results: Path) -> None:
    """Save the expected seconds of each run. A run in a pack counts for its share."""
    refuse_published(results)
    file, kept = plan_file(results), expected_seconds(results)
    for part in parts:
        share = (part.seconds + part.preparing) / len(part.runs)
        kept |= {run.run_id: round(share, 2) for run in part.runs}
    results.mkdir(parents=True, exist_ok=True)
    checkpoint.write_atomically(file, (json.dumps(kept, indent=0, sort_keys=True) + "\n").encode())


@dataclass(frozen=True)
class _Costs:
    step: float  # seconds of a step of all runs in the pack
    scoring: float  # seconds of all validations and the last scores of one run
    preparing: float


def _costs(group: Sequence[Run], settings: Exec, device: torch.device, gains: dict[str, tuple[float, float]]) -> _Costs:
    """Return the costs of a shape. The gain of compilation is measured once for each model.

    Compiling takes minutes, and its gain depends on the model but hardly on the task.
    """
    run = group[0]
    if not compiles(settings, device, steps=min(run.train.steps, _LONGEST)):
        return _measured(group, settings, device)
    plainly = _measured(group, replace(settings, compile="off"), device)
    model = json.dumps([plain(run.model), run.train.precision, len(group)], sort_keys=True)
    if model not in gains:
        compiled = _measured(group, settings, device)
        gains[model] = compiled.step / plainly.step, compiled.preparing
    gain, preparing = gains[model]
    return replace(plainly, step=plainly.step * gain, preparing=preparing)


def _measured(group: Sequence[Run], settings: Exec, device: torch.device) -> _Costs:
    """Time a few steps and a validation batch of a shape, at its longest strings."""
    train, score = group[0].train, group[0].eval
    longest = max(train.lengths[1], *train.curriculum, 0)
    short = {"steps": min(train.steps, _LONGEST), "curriculum": (), "lengths": (train.lengths[0], longest)}
    few = min(score.batch, score.validation)
    shorter = [replace(run, train=replace(run.train, **short), eval=replace(score, validation=few)) for run in group]
    pack = Pack(shorter, device=device, backend=settings.backend)
    steps = stepper(pack, settings)
    cuda = device.type == "cuda"
    warm, sampled = (1 + WARM_UP + UNROLLED, 10 * UNROLLED) if cuda else (2, _SAMPLED)
    start = _now(device)
    steps.advance(0, warm, lambda done: None)
    warmed = _now(device)
    steps.advance(warm, warm + sampled, lambda done: None)
    a_step = (_now(device) - warmed) / sampled
    how: Any = {"backend": settings.backend, "replayed": captures(settings, device)}
    together = pays(pack)
    scorer = PackEvaluator(pack, **how) if together else Evaluator(pack.run, pack.models[0], device=device, **how)
    for _ in range(2):  # the first call of a shape allocates, the second is captured
        scorer.validation()
    start_scoring = _now(device)
    scorer.validation()
    a_string = (_now(device) - start_scoring) / (few * pack.count if together else few)
    # A string twice as long takes at least twice the time: this adds the longer test strings of a record.
    longer = sum(score.extrapolation * length / score.lengths[1] * 2 for length in score.extrapolate)
    strings = (train.steps // score.every if score.every else 0) * score.validation
    strings += score.test + 2 * score.validation + longer
    return _Costs(a_step, a_string * strings, max(0.0, warmed - start - warm * a_step))


def _fitting(group: Sequence[Run], settings: Exec, device: torch.device) -> int:
    """Return how many runs of a shape fit. The memory of a step with one and with two replicas shows what each adds."""
    if len(group) < 2:
        return 1
    taken = []
    for count in (1, 2):
        torch.cuda.reset_peak_memory_stats(device)
        pack = Pack(group[:count], device=device, backend=settings.backend)
        pack.advance(pack.run.train.longest(pack.run.train.steps - 1))
        taken.append(torch.cuda.max_memory_allocated(device))
        del pack
    free = _SHARE * torch.cuda.mem_get_info(device)[0]
    each = max(1, taken[1] - taken[0])
    return max(1, min(len(group), 1 + int((free - taken[0]) / each)))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()
