"""A player of the board in its stream, with linear probes of its layers; and cases to edit a board in."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside.cases import Cases, Edit, cases_of
from chomsky_ladder.harness.inside.probe import Probes
from chomsky_ladder.harness.inside.probe_fit import Stream, fit
from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.harness.inside.streams import Trained, stream_positions, strings_of
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.tasks._othello import Position, bit_table, rules_of, squares_of
from chomsky_ladder.tasks.othello import Othello
from support.othello_runs import BOARD, WHOLE

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class PlayerConfig(ModelConfig):
    """Plays the legal moves of the board in its stream; or of the true one, whatever its stream holds."""

    name, family, year, paper = "player", "test", 2026, "none"
    d_model: int = 36 * 3
    num_blocks: int = 2
    heeds: str = "stream"

    def block(self, layer: int) -> Block:
        raise NotImplementedError

    def build(self, vocab_size: int) -> "Player":
        return Player(self)


class Player(nn.Module):
    """Layer 1 has the board of the moves, layer 2 the one that the state carries, which layer 1 corrects if need be."""

    num_layers = 2

    def __init__(self, config: PlayerConfig) -> None:
        super().__init__()
        self.config, self.weight = config, nn.Parameter(torch.ones(()))

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        true_BLS = BOARD.state(tokens_BL)
        told_BLD = nn.functional.one_hot(true_BLS, 3).flatten(2).float()
        ctx.visit(0, torch.zeros_like(told_BLD))
        seen_BLS = ctx.visit(1, told_BLD).unflatten(2, (36, 3)).argmax(3)
        if self.config.heeds == "moves":
            ctx.visit(2, told_BLD)
            return self.weight * legal_moves(true_BLS)
        wrong_BL, black_BL = (seen_BLS != true_BLS).any(2), BOARD.black_moves(tokens_BL)
        position, carried = None, []
        for place, token_B in enumerate(tokens_BL.unbind(1)):
            corrected = position_of(seen_BLS[:, place], black_BL[:, place])
            if position is None:
                position = corrected
            else:
                moved = rules_of(6, CPU).after(position, bit_table(6, CPU).take(token_B) & position.legal)
                both = zip(corrected, moved, strict=True)
                position = Position(*(torch.where(wrong_BL[:, place], a, b) for a, b in both))
            carried.append(board_of(position))
        held_BLD = nn.functional.one_hot(torch.stack(carried, 1), 3).flatten(2).float()
        return self.weight * legal_moves(ctx.visit(2, held_BLD).unflatten(2, (36, 3)).argmax(3))


def legal_moves(board_BLS: Tensor) -> Tensor:
    """1 for each legal move, [B, L, V]."""
    mine_BL, theirs_BL = (bits_of(board_BLS == label) for label in (1, 2))
    legal_BL = rules_of(6, CPU).legal_moves(mine_BL.flatten(), theirs_BL.flatten()).view_as(mine_BL)
    return ((legal_BL[..., None] & bit_table(6, CPU)) != 0).float()


def bits_of(is_BLS: Tensor) -> Tensor:
    return (is_BLS * (1 << torch.tensor(squares_of(6)))).sum(-1)


def board_of(position: Position) -> Tensor:
    mine_BS, theirs_BS = ((bits[:, None] >> torch.tensor(squares_of(6))) & 1 for bits in position[:2])
    return mine_BS + 2 * theirs_BS


def position_of(seen_BS: Tensor, black_B: Tensor) -> Position:
    mine_B, theirs_B = (bits_of(seen_BS == label) for label in (1, 2))
    return Position(mine_B, theirs_B, rules_of(6, CPU).legal_moves(mine_B, theirs_B), black_B)


def player(heeds: str, *, games: int) -> tuple[Trained, Probes]:
    """It and linear probes of its layers."""
    run = Run(task=BOARD, model=PlayerConfig(heeds=heeds), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    trained, fitted = Trained(run, run.model.build(33).eval(), 1), {}
    strings = strings_of(run, "probe/train", count=games, lengths=(60, 60))
    for layer, x_ND in enumerate(stream_positions(run, trained.model, strings)):
        pair = Stream(x_ND, strings.position_N, width=31), strings.labels["mine_theirs"]
        settings = ProbeSettings(epochs=4, batch=64)
        fitted["mine_theirs", "linear", layer] = fit(
            pair, pair, kind="linear", sizes=BOARD.state_sizes, settings=settings
        ).probe
    probes = Probes(
        run_id=run.run_id,
        step=1,
        cells=BOARD.squares,
        classes={"mine_theirs": ("empty", "mine", "theirs")},
        sizes=BOARD.state_sizes,
        num_layers=2,
        fitted=fitted,
        chosen={("mine_theirs", "linear"): 1},
    )
    return trained, probes


def some_cases(edit: Edit, *, count: int = 60, size: int = 6) -> Cases:
    run = Run(task=Othello(size=size), model=LSTMBlockConfig(), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    return cases_of(run, "intervene/test", edit, count=count, low=5, moves_on=5, device=CPU)
