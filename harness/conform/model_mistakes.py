"""Mistakes that are easily made in a model and fail late: found by looking at its modules, named with their cure."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.compare import Skip
from chomsky_ladder.harness.conform.model import _build, _tokens
from chomsky_ladder.models.backbone import Backbone, Model
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context


def what_it_owns_is_registered(config: ModelConfig) -> None:
    """Modules, weights and tensors that torch does not know of are neither trained, nor moved, nor kept."""
    model = _build(config)
    known, weights = set(model.modules()), set(model.parameters())
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") and name in vars(nn.Module()):
                continue
            where = f"{type(module).__name__}.{name} ({path})"
            lost = [part for part in _inside(value) if isinstance(part, nn.Module) and part not in known]
            assert not lost, (
                f"{where} holds {len(lost)} modules that are not registered, so that nothing trains them: "
                f"make it an nn.Module{'Dict' if isinstance(value, dict) else 'List'}"
            )
            for part in _inside(value):
                if part in weights:  # as torch's recurrent layers hold theirs once more
                    continue
                assert not isinstance(part, nn.Parameter), f"{where} holds weights that are not registered"
                assert not isinstance(part, Tensor), (
                    f"{where} is a tensor that is neither weight nor buffer, and stays on the CPU: "
                    f"self.register_buffer({name!r}, ..)"
                )


def its_dropout_is_the_contexts(config: ModelConfig) -> None:
    for path, module in _build(config).named_modules():
        kinds = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
        rate = getattr(module, "p", getattr(module, "dropout", 0)) if isinstance(module, kinds) else 0
        assert rate == 0, (
            f"{type(module).__name__} at {path} draws from torch's generator, which no seed of a run keys, in scoring "
            "too: take ctx.dropout(x, self.rate), which knows when to"
        )


def blocks_keep_the_shape_of_the_stream(config: ModelConfig) -> None:
    model = _build(config)
    if not isinstance(model, Backbone):
        raise Skip("it is no stack of blocks")
    x_BLD = model.embedding(_tokens(3, 7))
    ctx = Context()
    ctx.common = model.common
    for number, block in enumerate(model.blocks, start=1):
        y: Any = block(x_BLD, ctx)
        what = f"block {number} ({type(block).__name__}) returns"
        assert isinstance(y, Tensor), f"{what} a {type(y).__name__}, not the stream alone"
        assert y.shape == x_BLD.shape, (
            f"{what} {tuple(y.shape)} for a stream of {tuple(x_BLD.shape)}: [B, L, d_model] comes in and goes out; "
            "project it back"
        )
        x_BLD = y


def it_steps_if_it_says_so(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    for block in _blocks(_build(config)):
        for name in ("init_state", "step"):
            assert getattr(type(block), name) is not getattr(Block, name), (
                f"{type(block).__name__} has no {name}: write init_state and step, or declare `stepwise = False` "
                f"in {type(config).__name__}"
            )


def _blocks(model: Model) -> list[nn.Module]:
    return list(model.blocks) if isinstance(model, Backbone) else []


def _inside(value: Any) -> Iterator[Any]:
    """A value, and what plain lists, tuples and dicts hold."""
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inside(part)
    elif isinstance(value, torch.Tensor | nn.Module):
        yield value
