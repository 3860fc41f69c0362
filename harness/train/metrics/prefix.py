"""The share of a string's answers that come before its first wrong one.

answers a b b a, said a b a a     ->     2 of 4
"""

from torch import Tensor

from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import Metric, register


def answers_before_the_first_wrong_one(answers: Answers) -> Tensor:
    scored_BL = answers.batch.scored_BL
    no_error_BL = (answers.right_BL | ~scored_BL).long().cumprod(1).bool()
    return (no_error_BL & scored_BL).sum(1)


register(
    Metric(
        name="prefix",
        about="the share of answers before the first wrong one",
        count=answers_before_the_first_wrong_one,
        per="answers",
    )
)
