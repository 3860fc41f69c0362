"""Count arithmetic operations per token, by a formula that knows no architecture, and by torch's counter.

    forward, per token     2 W + 4 S + A          backward    twice the forward
    decode at context c    2 W + 4 S + 2 G c

W is the number of weights a token uses, each with one multiplication and addition per use. The embedding and unused
experts are left out. S is the size of a constant state, each number changed and read once (4 operations). That is too
many for log-linear attention: a token changes few of its levels, and most are empty in a short string. G is the number
of values that a growing state gains with every token. The next token reads all of them. Both are found by comparing
states of two lengths. A is the average cost of attention: G L for a causal model (half of the positions), 2 G L for one
that sees all. It is 0 unless the model declares quadratic cost, so transforms of n log n are not included. For a model
without a state, G is two numbers per layer, channel and position: keys and values.

The counter (torch.utils.flop_counter) counts matrix products and convolutions, and a masked product in full. It does
not see elementwise work, transforms and fused recurrences, so it counts the reference path. Chunked scans do more
products than the recurrence in the formula. The table shows the difference.
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
    state: int  # numbers that do not grow
    grown: int  # numbers that a token of context adds
    causal: bool
    quadratic: bool

    def forward(self, length: int) -> float:
        """Return the operations per token, averaged over a string."""
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
    """Return the operations per token that torch's counter sees in a forward pass on the reference path."""
    with torch.no_grad(), flop_counter() as counter:
        model(tokens_BL, Context(backend="reference"))
    return counter.get_total_flops() / tokens_BL.numel()


@contextlib.contextmanager
def flop_counter() -> Iterator[FlopCounterMode]:
    """Return torch's counter, restricted to its own products."""
    with by_torch(), FlopCounterMode(display=False) as counter:
        yield counter
