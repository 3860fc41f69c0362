"""The rows of the table of probes: their accuracies, and paired differences over the same test games.

    d_g = one's share of right cells in game g - the other's        mean d, s.d. (n - 1), s.e. = s.d. / sqrt(n)

Cell accuracy is the share of (position, part) pairs that are right. Board accuracy is the share of positions with every
part right. Occupied accuracy is that of squares with a stone on them.
"""

import math
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.inside.streams import Strings
from chomsky_ladder.tasks.draw import Draw


class Reading:
    """The state that something reads in the test strings, beside the true labels."""

    def __init__(self, said_NS: Tensor, labels_NS: Tensor, strings: Strings, *, is_board: bool) -> None:
        self.labels_NS, self.strings, self.is_board = labels_NS, strings, is_board
        self.right_NS = said_NS == self.labels_NS

    def accuracies(self) -> dict[str, Any]:
        right_NS = self.right_NS.double()
        game_G = self.by_game()
        width = self.strings.batch.tokens_BL.shape[1]
        return {
            "cell": float(right_NS.mean()),
            "board": float(self.right_NS.all(1).double().mean()),
            "occupied": float(right_NS[self.labels_NS != 0].mean()) if self.is_board else None,
            "cell_sd_games": float(game_G.std()),
            "by_position": [
                None if math.isnan(value) else value
                for value in _means(right_NS.mean(1), self.strings.position_N, width).tolist()
            ],
            "by_cell": right_NS.mean(0).tolist(),
        }

    def by_game(self) -> Tensor:
        """Return each game's own cell accuracy."""
        return _means(self.right_NS.double().mean(1), self.strings.string_N, self.strings.count)


def paired(one_G: Tensor, other_G: Tensor) -> dict[str, Any]:
    """Return the mean difference, its spread, and the mean in units of both deviations."""
    difference_G = (one_G - other_G).double()
    mean, sd = float(difference_G.mean()), float(difference_G.std()) if len(difference_G) > 1 else 0.0
    se = sd / math.sqrt(len(difference_G))
    return {
        "mean": mean,
        "sd": sd,
        "se": se,
        "mean_over_sd": mean / sd if sd else None,
        "mean_over_se": mean / se if se else None,
    }


def majority(train: Strings, view: str, test: Strings, *, num_classes: int) -> Tensor:
    """Return the most common training label of each part at the position of each test row, [N, S]."""
    labels_NS, width = train.labels[view], train.batch.tokens_BL.shape[1]
    counts_LSC = torch.zeros(width, labels_NS.shape[1], num_classes, dtype=torch.int64, device=labels_NS.device)
    counts_LSC.index_add_(0, train.position_N, torch.nn.functional.one_hot(labels_NS, num_classes))
    return counts_LSC.argmax(2)[test.position_N]


def labels_of_others(strings: Strings, view: str, *, seed: int) -> Tensor:
    """Return for each position the labels of another string at the same position, if there is one.

    A probe of these labels should find nothing.
    """
    others_NS, labels_NS = strings.labels[view].clone(), strings.labels[view]
    device = labels_NS.device
    for position in range(strings.batch.tokens_BL.shape[1]):
        (rows_M,) = (strings.position_N == position).nonzero(as_tuple=True)
        if len(rows_M) > 1:
            draw = Draw(seed=seed, split="probe/shuffle", rows_B=torch.tensor([position], device=device))
            others_NS[rows_M] = labels_NS[rows_M[draw.permutation(len(rows_M))[0]]]
    return others_NS


def _means(value_N: Tensor, group_N: Tensor, groups: int) -> Tensor:
    """Return the mean of each group; nan for an empty group."""
    zeros = torch.zeros(groups, dtype=torch.float64, device=value_N.device)
    return zeros.index_add(0, group_N, value_N) / zeros.index_add(0, group_N, torch.ones_like(value_N))
