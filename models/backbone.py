"""Embedding, blocks, final norm and head. All architectures share this code, so they only differ in their blocks.

    logits = head(norm(block_n(.. block_1(embedding(tokens)))))        with `before_head=relu` head(relu(norm(..)))

The embedding starts from N(0, 1) and the head from N(0, 1/D). With `ends_init=small` both start from N(0, 2/(5 D))
(Nguyen and Salazar 2019, 1910.05895), as in the xLSTM authors' package.

`ctx.taps` and `ctx.edits` read and replace the stream at any layer, in `forward` and in `step`, for every model alike.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Block, Context, Norm, State, make_norm
from chomsky_ladder.models.layers.canon import Places, convolved
from chomsky_ladder.models.layers.feedback import Feedback, fed
from chomsky_ladder.models.layers.linear import take_over
from chomsky_ladder.models.operations.norm import normed


class Stack(Protocol):
    """The parts of a config (models/base.py) that describe the blocks between embedding and head."""

    @property
    def d_model(self) -> int: ...
    @property
    def final_norm(self) -> Norm: ...
    @property
    def before_head(self) -> Literal["none", "relu"]: ...
    @property
    def ends_init(self) -> Literal["unit", "small"]: ...
    @property
    def short_conv(self) -> int: ...
    @property
    def conv_places(self) -> Places: ...
    @property
    def feedback(self) -> Feedback: ...
    def blocks(self) -> Sequence[Block]: ...
    def common_module(self) -> nn.Module | None: ...


class Model(nn.Module):
    """The interface of a model. `Backbone` implements it; `ModelConfig.build` may return another."""

    config: Any  # its ModelConfig (models/base.py)
    num_layers: int

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        raise NotImplementedError

    def step(self, tokens_B: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        raise NotImplementedError

    def extend(self, tokens_BL: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        raise NotImplementedError


class Backbone(Model):
    def __init__(self, config: Stack, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.blocks: Any = nn.ModuleList(config.blocks())
        self.common = config.common_module()
        self.norm = make_norm(config.final_norm, config.d_model)
        self.head = nn.Linear(config.d_model, vocab_size, bias=False)
        # Logits start with unit order at any width, so that the first loss is near log(V).
        nn.init.normal_(self.head.weight, std=config.d_model**-0.5)
        if config.ends_init == "small":
            for module in (self.embedding, self.head):
                nn.init.normal_(module.weight, std=(2 / (5 * config.d_model)) ** 0.5)
        if config.short_conv:  # drawn last, so that all else starts as without
            places = {"width": config.short_conv, "places": config.conv_places}
            self.blocks = nn.ModuleList(convolved(self.blocks, config.d_model, **places))
        if config.feedback != "none":
            self.blocks = nn.ModuleList(fed(self.blocks, config.d_model, feedback=config.feedback))
        take_over(self)

    @property
    def num_layers(self) -> int:
        return len(self.blocks)

    def forward(self, tokens_BL: Tensor, ctx: Context | None = None) -> Tensor:
        """Return the logits [B, L, V], or [B, 1, V] for one asked position.

        A context is only needed if there is padding.
        """
        ctx = Context() if ctx is None else ctx
        ctx.common = self.common
        x_BLD = ctx.visit(0, self.embedding(tokens_BL))
        streams_wanted = bool(ctx.taps or ctx.edits)
        for layer, block in enumerate(self.blocks, start=1):
            asked_alone = layer == self.num_layers and ctx.asked_B is not None and not streams_wanted
            x_BLD = ctx.visit(layer, block.at_asked(x_BLD, ctx) if asked_alone else block(x_BLD, ctx))
        return self._logits(x_BLD, ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return [block.init_state(batch, max_length=max_length, device=device, dtype=dtype) for block in self.blocks]

    def step(self, tokens_B: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Read one token in each row. Return the logits [B, V] after it, and the new state."""
        return self._carry("step", tokens_B, state, ctx)

    def extend(self, tokens_BL: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Read several tokens in each row from a state. Return the logits [B, L, V], and the state after the last."""
        return self._carry("extend", tokens_BL, state, ctx)

    def _carry(
        self, form: Literal["step", "extend"], tokens: Tensor, state: State, ctx: Context
    ) -> tuple[Tensor, State]:
        ctx.common = self.common
        x = ctx.visit(0, self.embedding(tokens))
        after = []
        for layer, (block, block_state) in enumerate(zip(self.blocks, state, strict=True), start=1):
            x, block_state = getattr(block, form)(x, block_state, ctx)
            x = ctx.visit(layer, x)
            after.append(block_state)
        return self._logits(x, ctx), after

    def _logits(self, x: Tensor, ctx: Context) -> Tensor:
        """Return the logits in the weights' own precision.

        In bf16 the largest would tie, and ties go to the lowest token.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = normed(x.to(self.head.weight.dtype), self.norm, ctx)
            return self.head(torch.relu(x) if self.config.before_head == "relu" else x)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def state_bytes(state: State) -> int:
    """Return the bytes that a state holds."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, dict):
        return sum(map(state_bytes, state.values()))
    if isinstance(state, list | tuple):
        return sum(map(state_bytes, state))
    assert state is None, f"a state is made of tensors, tuples, lists and dicts, not {type(state).__name__}"
    return 0
