"""Measure the cost of an architecture: training, prefill and decoding of every model, as rows of one report.

    train      forward, backward and optimiser (AdamW, fused) of cross entropy at every position, timed separately
    prefill    a prompt from an empty state to the next token: its time is the time to first token; a model without a
               step form has its forward pass instead
    decode     one more token, and the choice of the most probable, always from the same state

The cost of a decoded token depends on its state. So a cache is made for the whole context, but only filled with up to
256 tokens. Steps are pure (models/base.py): one that lengthens a cache copies it. Every model must first pass the
conformance suite, or its row says why it is refused. A point that runs out of memory has a row that says OOM.

Bytes are a simple model of the least traffic. In training a weight is read twice, its gradient written and read, and
the weight and its two moments read and written: 40 bytes in fp32. In prefill and decoding a weight is read once. Other
memory alive at the peak is written and read once, and so is a state. Operations are those of
harness/throughput/flops.py.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.sizing import active_parameters
from chomsky_ladder.harness.conform import suite as conformance
from chomsky_ladder.harness.conform.say import said_of
from chomsky_ladder.harness.throughput.flops import counted, work_of
from chomsky_ladder.harness.throughput.grid import Grid, Match, Point
from chomsky_ladder.harness.throughput.measure import Meter, ceilings, little_garbage, ran_out, release, within
from chomsky_ladder.harness.throughput.memory import bounded, peak_of
from chomsky_ladder.harness.throughput.sizes import matched, ways_of
from chomsky_ladder.harness.train.compiled import called_plainly
from chomsky_ladder.harness.train.machine import processor, publishable_provenance
from chomsky_ladder.harness.train.replays import captured
from chomsky_ladder.models.backbone import Model, count_parameters, state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context, require
from chomsky_ladder.models.kernels.choose import available
from chomsky_ladder.tasks.draw import Draw

FORMAT = "throughput 1"
FILLED = 256  # tokens put into a cache
TRAIN_BYTES = 40  # bytes of traffic for each weight and step
PATIENCE_S = {"cpu": 0, "cuda": 180}  # seconds for a point with its compilation; 0: no limit
_HEAD = ("model", "match", "way", "precision", "what", "length", "batch")
_SIZES = ("d_model", "parameters", "state_bytes")
_TIMES = ("ms", "ms_p20", "ms_p80", "wall_ms")
_PARTS = tuple(f"{part}_{name}" for part in ("forward", "backward", "update") for name in _TIMES)
_WORK = ("flops_per_token", "counted_per_token", "gflop_per_s", "bytes", "gb_per_s")
_REST = ("tokens_per_s", "repeats", "first_s", "peak_bytes", "reserved_bytes", "backends", "not_run")
COLUMNS = (*_HEAD, *_SIZES, *_TIMES, *_PARTS, *_WORK, *_REST)

Row = dict[str, Any]
Tell = Callable[[str], None]


def report_of(
    names: Sequence[str], grid: Grid, device: torch.device, *, tell: Tell, keep: Callable[[Row], None] = lambda _: None
) -> Row:
    """Measure these models. `keep` receives the report after each of them."""
    classes, begun = [find_model(name) for name in names], time.perf_counter()
    meter = Meter(device, repeats=grid.repeats, threads=grid.threads)
    report: Row = {
        "format": FORMAT,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "torch": str(torch.__version__),
        "clock": meter.clock,
        "grid": asdict(grid),
        "kernels": {kernel.name: kernel.missing() for kernel in available()},
        "ceilings": {precision: ceilings(meter, precision) for precision in grid.precisions},
        "seconds": 0.0,
        "rows": [],
        "peers": [],
        "provenance": publishable_provenance(),
    }
    for cls in classes:
        start = time.perf_counter()
        with little_garbage():
            report["rows"] += _rows_or_fault(cls, grid, meter)
        report["seconds"] = round(time.perf_counter() - begun, 1)
        tell(f"{cls.name}: {time.perf_counter() - start:.0f} s")
        keep(report)
    return report


def _rows_or_fault(cls: type[ModelConfig], grid: Grid, meter: Meter) -> list[Row]:
    """Return a model's rows. If it fails, return the rows so far, and one that says why."""
    rows: list[Row] = []
    try:
        for row in model_rows(cls, grid, meter):
            rows.append(row)
    except Exception as error:  # anything may fail in a user's model; the others are measured all the same
        rows.append({"model": cls.name, "not_run": f"failed: {said_of(error)}"})
    return rows


def model_rows(cls: type[ModelConfig], grid: Grid, meter: Meter) -> Iterator[Row]:
    """Yield a row for every point of a model, or one that says why there are none."""
    failed = [found for found in conformance.check(conformance.specimen(cls)) if found.verdict == "FAIL"]
    if failed:
        yield {"model": cls.name, "not_run": f"refused: {failed[0].check}: {failed[0].reason}"}
        return
    if cls.device not in ("any", meter.device.type):
        yield {"model": cls.name, "not_run": f"runs on a CUDA device alone, not on {meter.device}"}
        return
    ways = ways_of(cls.name, grid, meter.device)
    matches: tuple[Match, ...] = ("parameters", "state")
    faults, is_measured = list[str](), False
    for match in matches:
        try:
            config = matched(cls(), match, grid)
        except ValueError as error:
            yield {"model": cls.name, "match": match, "not_run": str(error)}
            continue
        bench = Bench(config, match, grid, meter)
        for point in grid.points(match, ways):
            row = bench.row(point)
            is_measured |= "not_run" not in row
            yield row
        faults += bench.faults
    if faults and not is_measured:
        yield {"model": cls.name, "not_run": f"failed: {faults[0]}"}


class Bench:
    """Measures one model at one size."""

    def __init__(self, config: ModelConfig, match: Match, grid: Grid, meter: Meter) -> None:
        self.config, self.match, self.grid, self.meter, self.device = config, match, grid, meter, meter.device
        self.faults: list[str] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: Model = config.build(grid.vocab)
        self.work = work_of(self.model)
        self.parameters = active_parameters(config, grid.vocab)
        self.model.to(self.device)

    @cached_property
    def counted(self) -> float:
        at = min(self.grid.at, self.config.longest_input or self.grid.at)
        return counted(self.model, self.tokens(1, at, self.device))

    def tokens(self, batch: int, length: int, device: torch.device) -> Tensor:
        rows_B = torch.arange(batch, device=device)
        return Draw(seed=0, split="throughput", rows_B=rows_B).integers(self.grid.vocab, (length,))

    def row(self, point: Point) -> Row:
        way = point.way
        head = (self.config.name, self.match, way.name, way.precision, point.what, point.length, point.batch)
        row: Row = dict(zip(_HEAD, head, strict=True))
        row |= {"d_model": self.config.d_model, "parameters": self.parameters}
        most = self.config.longest_input
        if point.what == "decode" and not self.config.stepwise:
            return row | {"not_run": "no step form"}
        if most is not None and point.length > most:
            return row | {"not_run": f"takes no more than {most} positions"}
        try:
            patient, bound = within(PATIENCE_S[self.device.type]), bounded(self.device, self.grid.memory or None)
            with patient, bound, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the tracer, about caches and speed
                row |= self._measured(point)
        except Exception as error:  # a failing point must not stop the others
            row["not_run"] = "OOM" if ran_out(error) else said_of(error)[:200]
            self.faults += [] if ran_out(error) else [row["not_run"]]
        self.model.zero_grad()
        release(self.device)
        return row

    def _measured(self, point: Point) -> Row:
        row: Row = {}
        if self.config.stepwise:
            row["state_bytes"] = state_bytes(self._state(1, point.length))
        trial: Trial = {"train": Training, "prefill": Prefill, "decode": Decoding}[point.what](self, point)
        row["first_s"] = round(self.meter.first(trial.once), 4)  # compiles and tunes
        slowest = self.grid.slowest
        if row["first_s"] > slowest and (took := self.meter.once(trial.once) / 1e3) > slowest:
            return row | {"not_run": f"over {slowest:g} s: {took:.1f} s"}
        if point.what == "decode":
            row["bytes"] = trial.weight_bytes + 2 * row["state_bytes"] * point.batch
        elif not point.way.graph:  # a replay allocates nothing
            peak = peak_of(trial.once, self.device)
            row["peak_bytes"] = trial.standing + peak.allocated
            row["reserved_bytes"] = None if peak.reserved is None else trial.standing + peak.reserved
            row["bytes"] = trial.weight_bytes + 2 * peak.allocated
        row |= trial.times() | {"repeats": self.meter.repeats, "backends": " ".join(sorted(trial.ctx.backends))}
        made = point.batch * (1 if point.what == "decode" else point.length)
        row["tokens_per_s"] = made / row["ms"] * 1e3
        row["flops_per_token"] = getattr(self.work, _FORMS[point.what])(point.length)
        if point.length == self.grid.at and point.what != "decode":
            row["counted_per_token"] = self.counted * (3 if point.what == "train" else 1)
        row["gflop_per_s"] = row["flops_per_token"] * row["tokens_per_s"] / 1e9
        if "bytes" in row:
            row["gb_per_s"] = row["bytes"] / row["ms"] / 1e6
        return row

    def _state(self, batch: int, length: int) -> Any:
        parameter = next(self.model.parameters())
        with torch.no_grad():
            return self.model.init_state(batch, max_length=length, device=self.device, dtype=parameter.dtype)


_FORMS = {"train": "train", "prefill": "forward", "decode": "decode"}


class Trial:
    """One point. `once` is the call that is repeated."""

    def __init__(self, bench: Bench, point: Point) -> None:
        self.bench, self.point, self.meter, self.model = bench, point, bench.meter, bench.model
        self.ctx = Context(backend=point.way.backend)
        self.weight_bytes = 4 * count_parameters(self.model)
        self.standing = self.weight_bytes
        self._act: Callable[[], Any] | None = None

    def step(self) -> None:
        raise NotImplementedError

    def once(self) -> None:
        """Take a step, or replay its graph if there is one."""
        if self._act is None:
            self._act = captured(self.step, self.meter.device) if self.point.way.graph else self.step
        self._act()

    def times(self) -> Row:
        return self.meter.call(self.once).named()

    def context(self) -> Context:
        """Return a fresh context. The set of kernels that ran is kept."""
        return Context(backend=self.point.way.backend, backends=self.ctx.backends)

    def autocast(self) -> torch.autocast:
        bf16 = self.point.way.precision == "bf16"
        return torch.autocast(self.meter.device.type, dtype=torch.bfloat16, enabled=bf16)


class Training(Trial):
    def __init__(self, bench: Bench, point: Point) -> None:
        super().__init__(bench, point)
        tokens_BL = bench.tokens(point.batch, point.length + 1, self.meter.device)
        self.inputs_BL, self.targets_BL = tokens_BL[:, :-1].contiguous(), tokens_BL[:, 1:].contiguous()
        learnt = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.AdamW(learnt, lr=1e-5, fused=True, capturable=point.way.graph)
        self.weight_bytes *= TRAIN_BYTES // 4
        self.standing *= 3  # two moments
        self.loss: Tensor | None = None
        self.loss_of: Callable[[], Tensor] = lambda: self._loss(self.context())
        if point.way.compiled:
            torch.compiler.reset()  # code made for earlier points counts against a limit of variants
            _, why = called_plainly(self.loss_of)  # records the kernels: a growing set would recompile
            require(not why, why)
            self.loss_of = torch.compile(partial(self._alone, point.way.backend), fullgraph=True, dynamic=False)

    def _loss(self, ctx: Context) -> Tensor:
        with self.autocast():
            logits_BLV = self.model(self.inputs_BL, ctx)
            loss = nn.functional.cross_entropy(logits_BLV.flatten(0, 1).float(), self.targets_BL.flatten())
        return loss + sum(value for values in ctx.losses.values() for value in values)

    def _alone(self, backend: str) -> Tensor:
        return self._loss(Context(backend=backend))

    def forward(self) -> None:
        self.loss = self.loss_of()

    def backward(self) -> None:
        assert self.loss is not None
        self.loss.backward()
        self.loss = None

    def update(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()

    def step(self) -> None:
        self.forward()
        self.backward()
        self.update()

    def times(self) -> Row:
        if self.point.way.graph:
            return super().times()
        parts = {"forward": self.forward, "backward": self.backward, "update": self.update}
        spreads = self.meter.parts(parts)
        whole = spreads.pop("whole").named()
        return whole | {
            key: value for name, spread in spreads.items() for key, value in spread.named(f"{name}_").items()
        }


class Prefill(Trial):
    def __init__(self, bench: Bench, point: Point) -> None:
        super().__init__(bench, point)
        self.tokens_BL = bench.tokens(point.batch, point.length, self.meter.device)

    @torch.no_grad()
    def step(self) -> Tensor:
        with self.autocast():
            if not self.bench.config.stepwise:
                return self.model(self.tokens_BL, self.context())[:, -1].argmax(-1)
            state = self.bench._state(self.point.batch, self.point.length)
            return self.model.extend(self.tokens_BL, state, self.context())[0][:, -1].argmax(-1)


class Decoding(Trial):
    @torch.no_grad()
    def __init__(self, bench: Bench, point: Point) -> None:
        super().__init__(bench, point)
        tokens_BL = bench.tokens(point.batch, min(point.length, FILLED), self.meter.device)
        self.token_B, self.state = tokens_BL[:, -1].contiguous(), bench._state(point.batch, point.length)
        if tokens_BL.shape[1] > 1:
            with self.autocast():
                _, self.state = self.model.extend(tokens_BL[:, :-1], self.state, self.context())

    @torch.no_grad()
    def step(self) -> Tensor:
        with self.autocast():
            return self.model.step(self.token_B, self.state, self.context())[0].argmax(-1)

    def times(self) -> Row:
        return self.meter.blocks(self.once).named()
