"""How well something reads the state: accuracies of one row of the table, and differences over the same test games.

    d_g = share of right cells of game g by the one - by the other        mean d, s.d. (n - 1), s.e. = s.d. / sqrt(n)

Cell accuracy is the share of (position, part) pairs that are right, board accuracy that of positions with every part
right, and occupied accuracy that of squares with a stone on them.
"""

import math
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.inside.streams import Strings
from chomsky_ladder.tasks.draw import Draw


class Reading:
    """What something takes the state of the test strings for, beside its labels."""

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
        """Each game's own cell accuracy."""
        return _means(self.right_NS.double().mean(1), self.strings.string_N, self.strings.count)


def paired(one_G: Tensor, other_G: Tensor) -> dict[str, Any]:
    """The mean of the differences, how they scatter, and the mean in units of both deviations."""
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
    """For each test position the commonest label of each part at that position in the training strings, [N, S]."""
    labels_NS, width = train.labels[view], train.batch.tokens_BL.shape[1]
    counts_LSC = torch.zeros(width, labels_NS.shape[1], num_classes, dtype=torch.int64, device=labels_NS.device)
    counts_LSC.index_add_(0, train.position_N, torch.nn.functional.one_hot(labels_NS, num_classes))
    return counts_LSC.argmax(2)[test.position_N]


def labels_of_others(strings: Strings, view: str, *, seed: int) -> Tensor:
    """For each position the labels of another string at the same place, where one is as long: nothing to be read."""
    others_NS, labels_NS = strings.labels[view].clone(), strings.labels[view]
    device = labels_NS.device
    for position in range(strings.batch.tokens_BL.shape[1]):
        (rows_M,) = (strings.position_N == position).nonzero(as_tuple=True)
        if len(rows_M) > 1:
            draw = Draw(seed=seed, split="probe/shuffle", rows_B=torch.tensor([position], device=device))
            others_NS[rows_M] = labels_NS[rows_M[draw.permutation(len(rows_M))[0]]]
    return others_NS


def _means(value_N: Tensor, group_N: Tensor, groups: int) -> Tensor:
    """The mean of each group; nan where a group has nothing."""
    zeros = torch.zeros(groups, dtype=torch.float64, device=value_N.device)
    return zeros.index_add(0, group_N, value_N) / zeros.index_add(0, group_N, torch.ones_like(value_N))
