"""Accuracy after pairs that training never has, apart from the other answers, for tasks that hold pairs out.

x y x x y z, where x y is held out     ->     held_pair: 2nd and 5th answer        other_pair: 3rd, 4th and 6th
                                              first_held_pair: 2nd                 seen_pairs: none

An answer that is wrong may leave a model with a wrong state at all answers after it. So two more numbers tell most: the
answer right after a string's first held-out pair, and the answers of prefixes whose pairs were all seen in training.
The first element makes no pair, and its answer is in none of them.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import Metric, register

KINDS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "held_pair": ("after a held-out pair", lambda is_held_BL, so_far_BL: is_held_BL),
    "other_pair": ("after another pair", lambda is_held_BL, so_far_BL: ~is_held_BL),
    "first_held_pair": ("after the first held-out pair", lambda is_held_BL, so_far_BL: is_held_BL & (so_far_BL == 1)),
    "seen_pairs": ("after seen pairs alone", lambda is_held_BL, so_far_BL: so_far_BL == 0),
}
"""The metrics: a few words on each, and its marks from those of held-out pairs and their number so far."""


def marks(answers: Answers, kind: str) -> Tensor:
    """Mark the answers of a kind, bool [B, L]."""
    is_pair_BL, is_held_BL = answers.task.after_pairs(answers.batch.tokens_BL)
    return KINDS[kind][1](is_held_BL, is_held_BL.cumsum(1)) & is_pair_BL & answers.batch.scored_BL


def marked(answers: Answers, *, kind: str) -> Tensor:
    """Count the answers of a kind in each string, [B]."""
    return marks(answers, kind).sum(1)


def right(answers: Answers, *, kind: str) -> Tensor:
    """Count those of them that are right, [B]."""
    return (marks(answers, kind) & answers.right_BL).sum(1)


for name, (where, _) in KINDS.items():
    register(
        Metric(
            name=name,
            about=f"accuracy right {where}",
            count=partial(right, kind=name),
            per=partial(marked, kind=name),
            wants=lambda task: task.holds_out,
        )
    )
