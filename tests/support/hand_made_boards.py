"""Models with a board in their stream, or none, made by hand to be probed; and strings to read it off."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside.streams import Strings, Trained, strings_of
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context
from support.othello_runs import BOARD, WHOLE


@dataclass(frozen=True, kw_only=True)
class HandMadeConfig(ModelConfig):
    """A stream with the board in black and white in it, or with nothing but which position it is."""

    name, family, year, paper = "hand_made", "test", 2026, "none"
    d_model: int = 36 * 3
    holds: str = "board"

    def block(self, layer: int) -> Block:
        raise NotImplementedError

    def build(self, vocab_size: int) -> "HandMade":
        return HandMade(self)


class HandMade(nn.Module):
    num_layers = 1

    def __init__(self, config: HandMadeConfig) -> None:
        super().__init__()
        self.config, self.weight = config, nn.Parameter(torch.ones(()))

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        batch, length = tokens_BL.shape
        if self.config.holds == "nothing":
            x_BLD = torch.eye(length, self.config.d_model).expand(batch, -1, -1)
        else:
            x_BLD = nn.functional.one_hot(BOARD.state(tokens_BL), 3).flatten(2).float() + 5
        if self.config.holds != "no stream":
            ctx.visit(0, torch.zeros_like(x_BLD))
        return self.weight * ctx.visit(1, x_BLD)


def of_hand(holds: str) -> Trained:
    run = Run(task=BOARD, model=HandMadeConfig(holds=holds), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    return Trained(run, run.model.build(33).eval(), 1)


def some_strings(count: int = 30) -> Strings:
    return strings_of(of_hand("board").run, "probe/test", count=count, lengths=(60, 60))
