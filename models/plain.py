"""A user's own module as a model: ordinary PyTorch on [B, L, D], with none of our code in it.

    class Mean(nn.Module):
        def __init__(self, d_model: int, scale: float) -> None: ...
        def forward(self, x_BLD): return self.out(x_BLD.cumsum(1) / count)

    register(wrap("mean", lambda config: Mean(config.d_model, config.scale), settings={"scale": 1.0}))
    plain_model("mean", lambda d_model: Mean(d_model, 1.0))         the same without settings

then, with `--plugin FILE`: ladder check mean, ladder climb mean --model.scale 2. A class needs no file of ours at all:
`ladder climb my_package.layers:Mean` (models/plain_class.py). The module may stand in three places:

    layer   x = x + module(norm(x)), x = x + SwiGLU(norm(x))        in each of `num_blocks`
    block   x = module(x)                                           each of `num_blocks`
    stack   x = module(x)                                           all of them: between embedding and head

A module may return a tuple with the stream first (`nn.GRU`), or have it as `last_hidden_state` (transformers). A module
whose forward takes `ctx` receives the context (models/block.py): `ctx.valid_BL` for padding, `ctx.add_loss` for its own
loss. Unless `sees="all"` it must be causal, which `ladder check` tests. It has no step form, so nothing is decoded
token by token. A model with a step form needs a file of its own (CONTRIBUTING.md).
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import Device, ModelConfig, register
from chomsky_ladder.models.block import Block, Context, require
from chomsky_ladder.models.layers.feed_forward import SwiGLU, swiglu_width
from chomsky_ladder.models.layers.residual import Layer, Residual

Stands = Literal["layer", "block", "stack"]
Make = Callable[[Any], nn.Module]
CHOICES = {
    "sees": ("past", "prompt", "all"),
    "cost": ("linear", "n log n", "quadratic", "unknown"),
    "device": ("any", "cuda"),
}
TRIED = 8  # positions of the string a module is tried on


class Plain(Layer):
    """A module that knows nothing of contexts, unless it takes one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.takes_context = "ctx" in inspect.signature(module.forward).parameters

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        given = self.module(x_BLD, ctx=ctx) if self.takes_context else self.module(x_BLD)
        y_BLD = stream_of(given)
        same = isinstance(y_BLD, Tensor) and y_BLD.shape == x_BLD.shape
        found = f"{tuple(y_BLD.shape)}" if isinstance(y_BLD, Tensor) else type(given).__name__
        said = f"{type(self.module).__name__} must return a tensor of its input's shape {tuple(x_BLD.shape)}, not"
        require(same, f"{said} {found}")
        return y_BLD


class PlainBlock(Block):
    """A module that stands for a whole block, or for all of them."""

    def __init__(self, module: nn.Module, *, dropout: float) -> None:
        super().__init__()
        self.plain, self.dropout = Plain(module), dropout

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return ctx.dropout(self.plain(x_BLD, ctx), self.dropout)


def stream_of(given: Any) -> Any:
    """Return the stream from what a module returns."""
    if isinstance(given, tuple | list) and given:
        return given[0]
    return getattr(given, "last_hidden_state", given)


@dataclass(frozen=True, kw_only=True)
class PlainConfig(ModelConfig):
    """The config shared by all wrapped modules. `wrap` makes a subclass for each."""

    family = "plain"
    stepwise, stackable = False, False
    state_growth, cost = "unknown", "unknown"
    of_class: ClassVar[str] = ""
    """The class in its module, if the command line named it (models/plain_class.py)."""

    def make(self) -> nn.Module:
        """Return a new module, as its author makes it."""
        raise NotImplementedError

    def block(self, layer: int) -> Block:
        return PlainBlock(self.module(), dropout=self.dropout)

    def module(self) -> nn.Module:
        """Return a new module. Errors in its author's code are reported in one line."""
        try:
            made = self.make()
        except Exception as error:  # anything may fail in a user's code
            raise ValueError(f"{self.name} cannot be made at d_model={self.d_model}: {said(error)}") from error
        neither = f"{self.name} is no nn.Module and no function that makes one"
        require(isinstance(made, nn.Module), f"{neither}: at d_model={self.d_model} it made {type(made).__name__}")
        return made

    def unworkable(self) -> str:
        return _tried(self)


@dataclass(frozen=True, kw_only=True)
class PlainLayerConfig(PlainConfig):
    """A wrapped module after a norm, followed by a feed-forward unless it is to stand alone."""

    feed_forward: ClassVar[bool] = True

    d_inner: int = 0
    """Width inside the feed-forward, if there is one; 0 for 8/3 of the model's, rounded up to a multiple of 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    def block(self, layer: int) -> Block:
        layers: list[nn.Module] = [Plain(self.module())]
        if self.feed_forward:
            layers.append(SwiGLU(self.d_model, swiglu_width(self.d_model, self.d_inner)))
        return Residual(self.d_model, layers, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class PlainStackConfig(PlainConfig):
    """A wrapped module that is all blocks. Its author makes as many as `config.num_blocks` says."""

    convolves = False

    def blocks(self) -> list[Block]:
        return [self.block(0)]

    def unworkable(self) -> str:
        return _tried(self) or _depth_ignored(self)


@dataclass(frozen=True, kw_only=True)
class PlainArgsConfig(PlainConfig):
    """A wrapped module with arguments unknown to us."""

    args: str = "{}"
    """Further arguments of the module, a JSON object: {"heads": 2}."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            given = json.loads(self.args)
        except ValueError:
            given = None
        require(isinstance(given, dict), f"{self.name}: args must be a JSON object such as '{{\"heads\": 2}}'")
        object.__setattr__(self, "args", json.dumps(given, sort_keys=True))  # however it is spelled, it is one model

    @property
    def given(self) -> dict[str, Any]:
        return json.loads(self.args)


def wrap(
    name: str,
    make: Make,
    *,
    stands: Stands = "layer",
    feed_forward: bool = True,
    settings: Mapping[str, int | float | str | bool] | None = None,
    sees: Literal["past", "prompt", "all"] = "past",
    cost: Literal["linear", "n log n", "quadratic", "unknown"] = "unknown",
    transition: str = "",
    device: Device = "any",
    exact: bool = True,
    title: str = "",
    version: int = 1,
    year: int = 2026,
    paper: str = "none",
) -> type[ModelConfig]:
    """Return the config of a model whose module is `make(config)`, to be registered.

    `settings` are fields of the config with their defaults, and become options `--model.NAME` of the command line. The
    other arguments are those that a model may declare (models/base.py). `transition` tells theory how the state moves:
    "attention", "diagonal", "fixed linear", "gated units", .. (harness/config/theory.py has them all).
    """
    declared = {"sees": sees, "cost": cost, "transition": transition, "device": device, "exact": exact}
    declared |= {"title": title, "version": version, "year": year, "paper": paper, "make": lambda self: make(self)}
    if stands == "layer":
        declared["feed_forward"] = feed_forward
    return _config(name, base_of(name, stands), dict(settings or {}), declared, whose=_caller())


def plain_model(
    name: str,
    layer: Callable[[int], nn.Module],
    *,
    transition: str = "",
    feed_forward: bool = True,
    version: int = 1,
    year: int = 2026,
    paper: str = "none",
) -> type[ModelConfig]:
    """Register `layer(d_model)` in pre-norm blocks under a name. Without the feed-forward, the layer stands alone.

    Raise `version` when the code changes: results of another version are other runs.
    """
    declared: dict[str, Any] = {"transition": transition, "feed_forward": feed_forward, "version": version}
    declared |= {"year": year, "paper": paper, "make": lambda self: layer(self.d_model)}
    return register(_config(name, PlainLayerConfig, {}, declared, whose=_caller()))


def refuse_undeclarable(name: str, declared: Mapping[str, Any]) -> None:
    """Refuse a word that no model may declare."""
    for key, choices in CHOICES.items():
        value = declared.get(key, choices[0])
        require(value in choices, f"{name}: {key} is one of {', '.join(choices)}, not {value!r}")


def base_of(name: str, stands: str) -> type[PlainConfig]:
    """Return the config class for this place."""
    found = {"layer": PlainLayerConfig, "block": PlainConfig, "stack": PlainStackConfig}
    require(stands in found, f"{name}: a module stands as a layer, a block or a stack, not as {stands!r}")
    return found[stands]


def _config(
    name: str, base: type[PlainConfig], settings: dict[str, Any], declared: dict[str, Any], *, whose: str
) -> type[PlainConfig]:
    """Return a frozen config with a field for each setting, belonging to the module `whose`."""
    refuse_undeclarable(name, declared)
    for key, value in settings.items():
        plain = isinstance(value, int | float | str) and key.isidentifier()
        require(plain, f"{name}: a setting is a name with a number, a text or a truth value, not {key!r}: {value!r}")
        require(not hasattr(base, key), f"{name}: a model has {key!r} already: call the setting otherwise")
    called = "".join(part.title() for part in name.split("_")) + "Config"
    fields = [(key, type(value), field(default=value)) for key, value in settings.items()]
    namespace = {"name": name, "__module__": whose, **declared}
    return make_dataclass(called, fields, bases=(base,), namespace=namespace, frozen=True, kw_only=True)


def _caller() -> str:
    """Return the module that calls our caller: the model belongs to it."""
    return sys._getframe(2).f_globals.get("__name__", __name__)


@lru_cache(maxsize=1024)
def _tried(config: PlainConfig) -> str:
    """Make the module and, if it runs anywhere, pass a short string through it. Return the error, or ""."""
    with torch.random.fork_rng(devices=[]):
        try:
            blocks = config.blocks()
        except ValueError as error:
            return str(error)
        if config.device != "any":
            return ""
        x_BLD = torch.randn(2, TRIED, config.d_model)
        ctx = Context(valid_BL=torch.ones(2, TRIED) > 0, prompt_B=torch.tensor([1, TRIED]))
        try:
            for block in blocks:
                block(x_BLD, ctx)
        except Exception as error:  # anything may fail in a user's code
            return f"{config.name} does not take a stream [2, {TRIED}, d_model]: {said(error)}"
    return ""


@lru_cache(maxsize=1024)
def _depth_ignored(config: PlainStackConfig) -> str:
    """Return an error if another number of blocks than the default makes the same model, else ""."""
    usual = PlainStackConfig.num_blocks
    if config.num_blocks == usual or config.device != "any":
        return ""
    outputs = []
    for one in (config, replace(config, num_blocks=usual)):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(0)
            x_BLD = torch.randn(2, TRIED, config.d_model)
            outputs.append(one.block(0)(x_BLD, Context()))
    if not torch.equal(*outputs):
        return ""
    same = f"{config.name} is the same model with {config.num_blocks} blocks as with {usual}"
    return f"{same}: it stands as a stack, so make it of config.num_blocks, or leave that at {usual}"


def said(error: BaseException) -> str:
    """Return an error of a user's code in one line. A ValueError, which is meant for people, stays as it is."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if isinstance(error, ValueError) else f"{type(error).__name__}: {first}"
