"""A metric: how often the first answer of a string is right."""

from torch import Tensor

from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import Metric, register


def first_right(answers: Answers) -> Tensor:
    scored_BL = answers.batch.scored_BL
    is_first_BL = scored_BL & (scored_BL.cumsum(1) == 1)
    return (is_first_BL & answers.right_BL).sum(1)


register(Metric(name="first_answer", about="the first answer right", count=first_right, per="strings"))
