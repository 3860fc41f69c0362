"""Train the `xlstm` package on parity like its authors' public experiment, beside a step of the harness.

The public experiment (github.com/NX-AI/xlstm, experiments/, the three parity_xlstm*.yaml) has 2 blocks of width 64 with
1 head, and batches of 256 strings of 3..40 tokens, answer included. Each string is made by one Python call from its own
NumPy generator, as an array of 256 and a mask. The answer is then hidden and the targets shifted by one. So every batch
has 255 positions, of which at most 39 can matter. A DataLoader without workers collates them. The loop is plain:
forward, cross entropy, backward, torch.optim.AdamW (learning rate 1e-3, decay .1, betas .9 and .999, no clipping), and
the loss read at every step. The sLSTM has a convolution of 4, and recurrent matrices of 0 at the start.

Some things are simplified here, each in the package's favour: no learning-rate schedule, torchmetrics or progress bar
in the loop. The sLSTM runs the backend "vanilla", the only one without the CUDA extension, in the precision of the run.
The experiment trains under bf16 autocast on a GPU with that extension. So on CUDA the sLSTM's rows show a slower way
than the public one. The process keeps freed memory, as the harness does (harness/train/machine.py), which also helps
the package.

The cropped rows cut every batch to its longest string, usually 39 positions, as batches have here. What remains is the
step without the padding. The clock and the ceilings of both scripts are at the end of this file.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.backbone import count_parameters

COPIED = {"cpu": 1 << 28, "cuda": 1 << 31}  # bytes
PRODUCT = {"cpu": 2048, "cuda": 8192}  # rows and columns
PAD, A, B = 0, 1, 2
IGNORED = -1
STRINGS = 5_120_000  # in the public data set: 20,000 batches
GOALS = {  # how many times faster than the public way a step here should be
    "public padded": {"1:0": 15, "1:1": 30, "0:1": 60},
    "public cropped": {"1:0": 3, "1:1": 3, "0:1": 5},
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the model, of a batch and of a run."""

    steps: int = 20_000
    precision: Literal["fp32", "bf16", "fp64"] = "fp32"
    batch: int = 256
    width: int = 64
    blocks: int = 2
    heads: int = 1
    lengths: tuple[int, int] = (3, 40)
    """Shortest and longest string. In the public experiment the answer counts as a token."""
    context: int = 256
    """Length to which the public experiment pads every string."""


class Strings(Dataset):
    """Parity strings, one a call: a b b a ?  ->  inputs a b b a 0 0 .., and the answer as target at the last a."""

    def __init__(self, *, lengths: tuple[int, int], context: int, seed: int) -> None:
        self.lengths, self.context, self.seed = lengths, context, seed

    def __len__(self) -> int:
        return STRINGS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = np.random.default_rng(self.seed + index)
        low, high = self.lengths
        string_L = np.zeros(self.context, dtype=np.int32)
        string_L[:] = generator.integers(A, B + 1, size=self.context)
        size = int(generator.integers(low, high + 1))
        string_L[size - 1 :] = PAD
        string_L[size - 1] = A + (string_L[: size - 1] == B).sum() % 2
        answer_L = np.zeros_like(string_L)
        answer_L[size - 1] = 1
        # The public data set can put tokens before and after a string; in this experiment these are empty.
        none = torch.arange(0)
        joined_L = torch.cat([none, torch.from_numpy(string_L), none])
        hidden_L = torch.cat([none, torch.from_numpy(answer_L), none]) == 1
        inputs_L = torch.where(hidden_L, PAD, joined_L).long()
        targets_L = torch.where(hidden_L, joined_L, IGNORED).long()
        return inputs_L[:-1], targets_L[1:]


def package_model(ratio: str, sizes: Sizes) -> nn.Module:
    """Return the package's language model. Raise ImportError without the package."""
    from xlstm import (
        mLSTMBlockConfig,
        mLSTMLayerConfig,
        sLSTMBlockConfig,
        sLSTMLayerConfig,
        xLSTMLMModel,
        xLSTMLMModelConfig,
    )

    mlstm, slstm = map(int, ratio.split(":"))
    kind = "bfloat16" if sizes.precision == "bf16" else "float32"
    config = xLSTMLMModelConfig(
        mlstm_block=mLSTMBlockConfig(mlstm=mLSTMLayerConfig(num_heads=sizes.heads)),
        slstm_block=sLSTMBlockConfig(slstm=sLSTMLayerConfig(backend="vanilla", num_heads=sizes.heads, dtype=kind)),
        slstm_at=[layer for layer in range(sizes.blocks) if layer % (mlstm + slstm) >= mlstm],
        num_blocks=sizes.blocks,
        embedding_dim=sizes.width,
        context_length=sizes.context,
        vocab_size=3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        model = xLSTMLMModel(config)
        model.reset_parameters()
    return model


class PublicLoop:
    """The training loop of the public experiment, step by step."""

    def __init__(self, ratio: str, sizes: Sizes, *, device: torch.device, cropped: bool) -> None:
        self.device, self.cropped = device, cropped
        self.autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=sizes.precision == "bf16")
        strings = Strings(lengths=sizes.lengths, context=sizes.context, seed=1)
        self._batches = iter(DataLoader(strings, batch_size=sizes.batch))
        self.model: Any = package_model(ratio, sizes).to(device)
        decayed, others = self.model._create_weight_decay_optim_groups()
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3)
        self.losses: list[float] = []

    def load(self) -> tuple[Tensor, Tensor]:
        """Return the next batch [B, L] of inputs and targets."""
        inputs_BL, targets_BL = next(self._batches)
        if self.cropped:
            width = int((targets_BL != IGNORED).any(0).nonzero().max()) + 1
            inputs_BL, targets_BL = inputs_BL[:, :width], targets_BL[:, :width]
        return inputs_BL.to(self.device), targets_BL.to(self.device)

    def step(self) -> None:
        inputs_BL, targets_BL = self.load()
        self.optimizer.zero_grad()
        with self.autocast:
            logits_BLV = self.model(inputs_BL)
            loss = nn.functional.cross_entropy(logits_BLV.flatten(0, 1), targets_BL.flatten(), ignore_index=IGNORED)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def run_of(name: str, sizes: Sizes, *, task: str = "parity") -> Run:
    """Return our run of a model such as lstm or xlstm[0:1], with those of the sizes that it has."""
    model, _, ratio = name.rstrip("]").partition("[")
    config = find_model(model)
    has = {field.name for field in fields(config)}
    if ratio and "ratio" not in has:
        raise ValueError(f"{model} has no ratio: {name}")
    asked = {"d_model": sizes.width, "num_blocks": sizes.blocks, "num_heads": sizes.heads, "ratio": ratio}
    settings = {key: value for key, value in asked.items() if key in has and value}
    train = Train(steps=sizes.steps, batch=sizes.batch, lengths=sizes.lengths, precision=sizes.precision)
    return Run(task=find_task(task)(), model=config(**settings), train=train, eval=Eval(every=0))


def public_rows(
    ratio: str, sizes: Sizes, *, device: torch.device, repeats: int, padded_repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield rows for a step here, of the public loop and of the cropped one.

    Without `padded_repeats` the public one is left out.
    """
    run = run_of(f"xlstm[{ratio}]", sizes)
    run = replace(run, model=replace(run.model, conv="causal4", recurrent_init="zeros"))
    pack = Pack([run], device=device, backend="auto")
    longest = run.train.longest(0)
    steps: dict[str, Callable[[], Any]] = {"plain": lambda: pack.advance(longest)}
    loaders: dict[str, Callable[[], Any]] = {"plain": lambda: pack.draw(pack.step_number, longest)}
    count = {"plain": count_parameters(pack.models[0])}
    not_run = {} if padded_repeats else {"public padded": "left out by --padded"}
    for way in [way for way in GOALS if way not in not_run]:
        try:
            loop = PublicLoop(ratio, sizes, device=device, cropped=way == "public cropped")
        except ImportError as error:
            not_run[way] = f"{error} (pip install xlstm==2.0.6)"
            continue
        steps[way], loaders[way], count[way] = loop.step, loop.load, count_parameters(loop.model)
    counted = dict.fromkeys(steps, repeats) | ({"public padded": padded_repeats} if "public padded" in steps else {})
    times = interleaved(steps, counted, device=device)
    loading = interleaved(loaders, dict.fromkeys(loaders, repeats), device=device)
    assert pack.seen()[0].live, "a run that diverged takes no steps"
    for way in ("plain", *GOALS):
        row: dict[str, Any] = {"model": f"xlstm[{ratio}] as in the package", "way": way}
        if way in not_run:
            yield row | {"not_run": not_run[way]}
            continue
        row |= {"parameters": count[way], "loader_ms": loading[way]["ms"], **times[way]}
        row |= rates(times[way]["ms"], steps=sizes.steps)
        if way != "plain":
            row["goal"] = GOALS[way].get(ratio)
            row["times_ours"] = round(times[way]["ms"] / times["plain"]["ms"], 2)
        if way == "public padded":
            row["padding_factor"] = round(times[way]["ms"] / times["public cropped"]["ms"], 2)
        yield row


def now(device: torch.device) -> float:
    """Return milliseconds: of this process on a CPU, of the wall clock on CUDA after synchronising."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter() * 1e3
    return time.process_time() * 1e3


def interleaved(
    turns: dict[str, Callable[[], Any]], repeats: dict[str, int], *, device: torch.device, steps: int = 1
) -> dict[str, dict[str, float]]:
    """Return the time of a step of each way, measured in turns of several steps, after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(1 + max(repeats.values())):
        names = [name for name in turns if turn <= repeats[name]]
        for name in reversed(names) if turn % 2 else names:
            start = now(device)
            turns[name]()
            times[name].append((now(device) - start) / steps)
    columns = {"ms": 0.5, "ms_p20": 0.2, "ms_p80": 0.8}
    return {
        name: {column: round(float(np.quantile(spent[1:], q)), 3) for column, q in columns.items()}
        for name, spent in times.items()
    }


def rates(ms: float, *, steps: int, replicas: int = 1) -> dict[str, float]:
    """Return steps per second, and runs of this many steps per hour."""
    return {"steps_per_s": round(1e3 / ms, 3), "runs_per_hour": round(3.6e6 * replicas / (ms * steps), 4)}


def ceilings(device: torch.device, precision: str) -> dict[str, float]:
    """Return GB per second of a large copy and GFLOP per second of a large product: the best of six."""
    source = torch.ones(COPIED[device.type] // 4, device=device)
    target, size = torch.zeros_like(source), PRODUCT[device.type]
    a = torch.full((size, size), 0.5, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    out = torch.empty_like(a)
    best = {"copy": float("inf"), "product": float("inf")}
    for _ in range(6):
        for name, function in (("copy", lambda: target.copy_(source)), ("product", lambda: torch.mm(a, a, out=out))):
            start = now(device)
            function()
            best[name] = min(best[name], now(device) - start)
    copied, multiplied = 2 * source.nbytes / best["copy"] / 1e6, 2 * size**3 / best["product"] / 1e6
    return {"copy_gb_per_s": round(copied, 2), "product_gflop_per_s": round(multiplied, 2)}
