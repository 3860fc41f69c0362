"""Common mistakes in a model that fail late, found by looking at its modules and reported with their cure."""

from typing import Any

from torch import Tensor, nn

from chomsky_ladder.harness.conform.compare import Skip
from chomsky_ladder.harness.conform.model import _build, _tokens
from chomsky_ladder.harness.train.mistakes import own_dropout, unregistered
from chomsky_ladder.models.backbone import Backbone, Model
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context


def what_it_owns_is_registered(config: ModelConfig) -> None:
    """Check that torch knows all modules, weights and tensors. Others are neither trained, nor moved, nor saved."""
    for said in unregistered(_build(config)):
        raise AssertionError(said)


def its_dropout_is_the_contexts(config: ModelConfig) -> None:
    for said in own_dropout(_build(config)):
        raise AssertionError(said)


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
