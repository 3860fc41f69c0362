"""Low-rank adaptation of a finished run to another task: its weights stay frozen, low-rank factors beside them learn.

    W' = W + U D        W [m, n] of the base run, frozen      D [r, n] normal of variance 1/n      U [m, r] zero

    16 x 64 at rank 4: 64 + 256 = 320 learnt numbers beside 1,024 frozen ones; at the start W' = W to the bit

The method is LoRA (Hu et al. 2021, 2106.09685) with the factor alpha / r set to 1. The adapted weights are the matrices
(harness/train/quantise.py says which tensors these are) whose name fits `train.lora_layers`. Each matrix of a stack,
such as the experts of a layer, has factors of its own. For most models embedding and head depend on the vocabulary.
They are found by building the model with one more token, and `train.lora_ends` says what happens to them:

    keep    frozen like the other weights of the base run; both tasks must have the same tokens in the same order
    new     drawn from the run's seed and trained in full

An adaptation is an ordinary training run: a `Run` of the base run's model with `train.base`. It packs, resumes, is
scored and is tabled by the same code, for every architecture. The only new class is `Adapted`, a module that adds the
factors' product to the weights of its inner model before each call.
"""

import hashlib
from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import RunFolder, find_run
from chomsky_ladder.harness.train.quantise import is_matrix
from chomsky_ladder.models.base import Model, ModelConfig
from chomsky_ladder.models.block import Context, State


class Adapted(Model):
    """A model whose matrices are frozen, each with a trainable product of two factors added to it."""

    def __init__(self, inner: Model, *, rank: int, names: Collection[str], trained: Collection[str]) -> None:
        super().__init__()
        self.inner = inner
        self.names = list(names)
        self.down, self.up = nn.ParameterDict(), nn.ParameterDict()
        for name, weight in inner.named_parameters():
            weight.requires_grad_(name in trained)
            if name in self.names:
                *stack, rows, columns = weight.shape
                r = min(rank, rows, columns)
                self.down[_key(name)] = nn.Parameter(torch.randn(*stack, r, columns) * columns**-0.5)
                self.up[_key(name)] = nn.Parameter(torch.zeros(*stack, rows, r))

    @property
    def config(self) -> ModelConfig:
        return self.inner.config

    @property
    def num_layers(self) -> int:
        return self.inner.num_layers

    def weights(self) -> dict[str, Tensor]:
        """Return the weights that the inner model reads, by the inner model's names."""
        read: dict[str, Tensor] = dict(self.inner.named_parameters())
        for name in self.names:
            read[name] = read[name] + self.up[_key(name)] @ self.down[_key(name)]
        return read

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        return functional_call(self.inner, self.weights(), (tokens_BL, ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self._called("init_state", batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, tokens_B: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self._called("step", tokens_B, state, ctx)

    def extend(self, tokens_BL: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self._called("extend", tokens_BL, state, ctx)

    def _called(self, method: str, *arguments: Any, **named: Any) -> Any:
        caller = _Method(self.inner, method)
        weights = {f"model.{name}": value for name, value in self.weights().items()}
        return functional_call(caller, weights, arguments, named)


class _Method(nn.Module):
    """Call a method of a model as a module, because `functional_call` only takes modules."""

    def __init__(self, model: Model, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return getattr(self.model, self.method)(*arguments, **named)


def _key(name: str) -> str:
    """Turn a parameter's name into a legal name in a `ParameterDict`, which has no dots."""
    return name.replace(".", "/")


def adapted(run: Run) -> Adapted:
    """Build the model of an adaptation from its own seed. `begin` then copies the base run's weights into it."""
    train, vocab = run.train, len(run.task.vocab)
    inner = run.model.build(vocab)
    ends = vocabulary_names(inner, run.model.build(vocab + 1)) if train.lora_ends == "new" else set()
    matrices = [
        name
        for (name, _), matrix in zip(inner.named_parameters(), is_matrix(inner), strict=True)
        if matrix and name not in ends
    ]
    fitting = [name for name in matrices if fits(name, train.lora_layers)]
    require(
        bool(fitting),
        f"train.lora_layers={train.lora_layers!r} fits no matrix of {run.model.name}; there are {', '.join(matrices)}",
    )
    return Adapted(inner, rank=train.lora_rank, names=fitting, trained=ends)


def fits(name: str, patterns: str) -> bool:
    """Return True if a name fits one of the comma-separated patterns, in which * stands for anything."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


def vocabulary_names(one: nn.Module, wider: nn.Module) -> set[str]:
    """Return the names of parameters whose shape differs between a model and one with more tokens."""
    pairs = zip(one.named_parameters(), wider.parameters(), strict=True)
    return {name for (name, ours), theirs in pairs if ours.shape != theirs.shape}


@torch.no_grad()
def begin(model: Model, run: Run, base: Run, trained: nn.Module) -> None:
    """Copy the weights of the base run, as that run is scored, into a model about to be adapted."""
    assert isinstance(model, Adapted)
    require(base.run_id == run.train.base, f"train.base={run.train.base} is not the whole id of a run")
    require(base.model == run.model, f"{run.train.base} is a model of other settings than this run's")
    same = base.task.vocab == run.task.vocab
    require(
        same or run.train.lora_ends == "new",
        f"{base.task.name} and {run.task.name} have other tokens; train.lora_ends=new learns embedding and head anew",
    )
    weights = trained.weights() if isinstance(trained, Adapted) else dict(trained.named_parameters())
    for name, parameter in model.inner.named_parameters():
        if not parameter.requires_grad:
            parameter.copy_(weights[name])


def base_folder(run_id: str, results: Path) -> RunFolder:
    """Return the folder of a finished run that another run can start from."""
    folder = find_run(results, run_id)
    done = folder.result()
    require(done is not None and done["status"] == "done", f"{folder.path.name} has not finished; it cannot be adapted")
    return folder


def adaptation(model: Model, run: Run) -> dict[str, Any]:
    """Return the record's entry on an adapted model: its base run, and the counts of frozen and learnt numbers."""
    assert isinstance(model, Adapted)
    frozen = {name: value for name, value in model.inner.named_parameters() if not value.requires_grad}
    digest = hashlib.sha256()
    for name, value in frozen.items():
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return {
        "base": run.train.base,
        "frozen_sha256": digest.hexdigest(),
        "rank": run.train.lora_rank,
        "layers": model.names,
        "ends": run.train.lora_ends,
        "frozen": sum(value.numel() for value in frozen.values()),
        "learnt": sum(value.numel() for value in model.parameters() if value.requires_grad),
    }


def adapting(base: Run, run: Run, *, rank: int = 8, layers: str = "*") -> Run:
    """Return the run that adapts a finished run to the task of `run`, with the base run's training and evaluation.

    Embedding and head are kept if both tasks have the same tokens. A task that declares its own lengths is trained on
    these.
    """
    ends = "keep" if base.task.vocab == run.task.vocab else "new"
    train, score = base.train, base.eval
    if type(run.task).own_lengths or type(base.task).own_lengths:
        train, score = run.train, run.eval
    return Run(
        task=run.task,
        model=base.model,
        train=replace(train, base=base.run_id, lora_rank=rank, lora_layers=layers, lora_ends=ends, qat=0),
        eval=replace(score, file="", file_sha256=""),
        seed=base.seed,
        protocol=base.protocol,
    )
