"""Arithmetic a token, from a stated formula that knows no architecture, and what torch's counter sees of it.

    forward, a token        2 W + 4 S + A          backward    twice the forward
    decode at context c     2 W + 4 S + 2 G c

W are the weights a token meets, each multiplied and added as often as it is met: all but those of the embedding and of
experts it is not sent to. S are the numbers of a constant state, each changed and read once (4 operations), which is
too many for log-linear attention: a token changes few of its levels, and most of them are empty in a short string. G
are those that a growing state gains with every token, all of which the next token reads. Both are found by looking into
states of two lengths.
A is what attention does on average: G L for a causal model (half of the positions), 2 G L for one that sees all; it is
0 unless the model declares quadratic cost, so transforms of n log n are outside. A model without a state has two
numbers a layer, channel and position for G: keys and values.

The counter (torch.utils.flop_counter) sees matrix products and convolutions, and a masked product whole; it is blind to
elementwise work, transforms and fused recurrences, so it counts the reference path. Scans in chunks do more products
than the recurrence of the formula; what the two differ by stands in the table.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from chomsky_ladder.models.backbone import Model, count_parameters, state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.scans.products import by_torch

_SHORT, _LONG = 640, 1152  # contexts whose states are compared
_BACKWARD = 2  # times the forward pass


class Work(NamedTuple):
    weights: int
    state: int  # numbers of it that do not grow
    grown: int  # numbers a token of context adds
    causal: bool
    quadratic: bool

    def forward(self, length: int) -> float:
        """Operations a token, averaged over a string."""
        attended = self.grown * length * (1 if self.causal else 2) if self.quadratic else 0
        return 2.0 * self.weights + 4.0 * self.state + attended

    def train(self, length: int) -> float:
        return (1 + _BACKWARD) * self.forward(length)

    def decode(self, context: int) -> float:
        return 2.0 * self.weights + 4.0 * self.state + 2.0 * self.grown * context


def work_of(model: Model) -> Work:
    config: ModelConfig = model.config
    embedding = getattr(model, "embedding", None)
    outside = 0 if embedding is None else sum(parameter.numel() for parameter in embedding.parameters())
    weights = count_parameters(model) - outside - config.idle_parameters
    weights += sum((part.passes - 1) * count_parameters(part) for part in model.modules() if isinstance(part, Block))
    quadratic, causal = config.cost == "quadratic", config.sees == "past"
    if not config.stepwise:
        return Work(weights, 0, 2 * config.d_model * model.num_layers, causal, quadratic)
    most = config.longest_input or _LONG
    contexts = (_SHORT, _LONG) if most >= _LONG else (most - most // 2, most)
    short, long = (_numbers(model, length) for length in contexts)
    grown = (long - short) // max(1, contexts[1] - contexts[0])
    return Work(weights, short - grown * contexts[0], grown, causal, quadratic)


def _numbers(model: Model, length: int) -> int:
    parameter = next(model.parameters())
    with torch.no_grad():
        state = model.init_state(1, max_length=length, device=parameter.device, dtype=parameter.dtype)
    return state_bytes(state) // parameter.element_size()


def counted(model: Model, tokens_BL: Tensor) -> float:
    """What torch's counter sees of a forward pass on the reference path, a token."""
    with torch.no_grad(), flop_counter() as counter:
        model(tokens_BL, Context(backend="reference"))
    return counter.get_total_flops() / tokens_BL.numel()


@contextlib.contextmanager
def flop_counter() -> Iterator[FlopCounterMode]:
    """torch's counter, which sees its own products alone."""
    with by_torch(), FlopCounterMode(display=False) as counter:
        yield counter
