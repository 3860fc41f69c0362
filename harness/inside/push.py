"""Push the stream along a probe's direction, and read the model's moves after it.

At layer l, to change a square from class `a` to `b`, with the rows w of the linear probe and its log odds z of b over
a:

    d = w_b - w_a        x <- x + (strength z*_ab - z) d / |d|^2

After the push the probe reads `strength` times z*_ab, the mean log odds over boards on which a square is b. The push is
made from layer l on, at one position. Controls take steps of the same length along another direction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.inside.cases import Cases, Change
from chomsky_ladder.harness.inside.probe import Probes
from chomsky_ladder.harness.inside.streams import Trained, stream_positions, strings_of
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw

Along = Literal["probe", "random", "wrong_square"]


@dataclass(frozen=True)
class Push:
    """The layer at which a push starts, its strength and its direction."""

    start: int
    strength: float
    along: Along = "probe"


class Pushed(NamedTuple):
    """The results of a push."""

    logits_BJV: Tensor  # float64, at the edit and after each further move
    step_KB: Tensor  # length of the push at each layer from the first on
    share_KB: Tensor  # the same as a share of the stream's norm


class Pusher:
    """A model and its probes, ready to be pushed on any cases."""

    def __init__(self, trained: Trained, probes: Probes, *, seed: int, games: int) -> None:
        self.run, self.model, _ = trained
        self.device = next(self.model.parameters()).device
        self.probes, self.seed, self.num_layers = probes.to(self.device), seed, self.model.num_layers
        self.typical = self._typical(games)

    def _typical(self, games: int) -> list[Tensor]:
        """Return z* for each layer, [C, C]: the mean log odds of column over row where the column's class is true."""
        strings = strings_of(
            self.run, "intervene/validation", count=games, lengths=self.run.train.lengths, device=self.device
        )
        found, labels_NS = [], strings.labels[self.probes.views[0]]
        for layer, x_ND in enumerate(stream_positions(self.run, self.model, strings)):
            logits_NSC = self.probes.logits(x_ND, layer, strings.position_N)
            of_class = [logits_NSC[labels_NS == c].double().mean(0) for c in range(logits_NSC.shape[2])]
            found.append(torch.stack([logits_C[c] - logits_C for c, logits_C in enumerate(of_class)], 1).float())
        return found

    @torch.no_grad()
    def logits(self, cases: Cases, push: Push | None = None, like: Pushed | None = None) -> Pushed:
        """Return the model's logits. Pushes in another direction than the probe's are as long as those of `like`."""
        logits, steps, shares = [], [], []
        for rows_N in torch.arange(cases.count, device=self.device).split(self.run.eval.batch):
            part = cases.part(rows_N)
            taken: list[tuple[Tensor, Tensor]] = []
            edits = {}
            if push is not None:
                given_KB = None if like is None else like.step_KB[:, rows_N]
                edits = {
                    layer: self._edit(layer, part, push, rows_N, given_KB, taken)
                    for layer in range(push.start, self.num_layers + 1)
                }
            ctx = Context(valid_BL=part.tokens_BL != PAD, prompt_B=torch.ones_like(part.last_B), edits=edits)
            with autocast(self.run, self.device):
                logits_BLV = self.model(part.tokens_BL, ctx)
            row_N = torch.arange(len(rows_N), device=self.device)
            at = [part.last_B + moved for moved in range(len(part.moments))]
            logits.append(torch.stack([logits_BLV[row_N, place_B] for place_B in at], 1).double())
            steps.append(
                torch.stack([step_B for step_B, _ in taken]) if taken else logits_BLV.new_zeros(0, len(rows_N))
            )
            shares.append(torch.stack([share_B for _, share_B in taken]) if taken else steps[-1])
        return Pushed(torch.cat(logits), torch.cat(steps, 1), torch.cat(shares, 1))

    def _edit(
        self,
        layer: int,
        part: Cases,
        push: Push,
        rows_N: Tensor,
        given_KB: Tensor | None,
        taken: list[tuple[Tensor, Tensor]],
    ) -> Callable[[Tensor], Tensor]:
        """Return the function that pushes the stream of a layer. It appends lengths, absolute and relative, to `taken`.

        The length is `given_KB`, or what the probe needs to reach the strength.
        """
        row_N = torch.arange(len(rows_N), device=self.device)
        at_BL1 = (torch.arange(part.tokens_BL.shape[1], device=self.device) == part.last_B[:, None])[..., None]

        def edit(x_BLD: Tensor) -> Tensor:
            x_BD = x_BLD[row_N, part.last_B].float()
            if given_KB is None:
                along_BD, rise_B = self._direction(layer, part.change)
                missing_B = push.strength * self._typical_of(layer, part.change) - self._log_odds(layer, part, x_BD)
                step_B = missing_B / rise_B
            else:
                along_BD = self._other_direction(layer, part, push.along, rows_N, x_BD.shape[1])
                step_B = given_KB[layer - push.start]
            taken.append((step_B, step_B.abs() / x_BD.norm(dim=1).clamp(min=1e-12)))
            moved_BD = x_BD + step_B[:, None] * along_BD
            return torch.where(at_BL1, moved_BD[:, None].to(x_BLD.dtype), x_BLD)

        return edit

    def _direction(self, layer: int, change: Change) -> tuple[Tensor, Tensor]:
        """Return the unit vector towards the new class, and the rise of the log odds along it."""
        rows_SCD = self.probes.directions(layer)
        towards_BD = rows_SCD[change.cell_B, change.after_B] - rows_SCD[change.cell_B, change.before_B]
        length_B = towards_BD.norm(dim=1).clamp(min=1e-12)
        return towards_BD / length_B[:, None], length_B

    def _other_direction(self, layer: int, part: Cases, along: Along, rows_N: Tensor, width: int) -> Tensor:
        if along == "wrong_square":
            return self._direction(layer, part.wrong)[0]
        draw = Draw(seed=self.seed, split=f"intervene/random/{layer}", rows_B=rows_N)
        normal_BD = draw.uniform((12, width)).sum(1) - 6  # of variance 1, close to normal
        return normal_BD / normal_BD.norm(dim=1, keepdim=True)

    def _typical_of(self, layer: int, change: Change) -> Tensor:
        return self.typical[layer][change.before_B, change.after_B]

    def _log_odds(self, layer: int, part: Cases, x_BD: Tensor) -> Tensor:
        logits_BSC = self.probes.logits(x_BD, layer, part.last_B)
        row_N, change = torch.arange(len(x_BD), device=x_BD.device), part.change
        logits_BC = logits_BSC[row_N, change.cell_B]
        return logits_BC[row_N, change.after_B] - logits_BC[row_N, change.before_B]


def wrong_moves(scores_BV: Tensor, legal_BV: Tensor) -> Tensor:
    """Return the moves in which the N highest scores differ from the N legal moves, bool [B, V].

    Ties go to the first.
    """
    scores_BV = scores_BV.clone()
    scores_BV[:, PAD] = -torch.inf
    order_BV = scores_BV.argsort(dim=1, descending=True, stable=True)
    ranks_BV = torch.arange(scores_BV.shape[1], device=scores_BV.device).expand_as(order_BV)
    rank_BV = torch.zeros_like(order_BV).scatter(1, order_BV, ranks_BV)
    return (rank_BV < legal_BV.sum(1, keepdim=True)) ^ legal_BV


def mean_of(errors_B: Tensor) -> dict[str, float]:
    """Return the mean over cases, its standard deviation (n - 1) and standard error."""
    errors_B = errors_B.double()
    sd = float(errors_B.std()) if len(errors_B) > 1 else 0.0
    return {"mean": float(errors_B.mean()), "sd": sd, "se": sd / max(len(errors_B), 1) ** 0.5}
