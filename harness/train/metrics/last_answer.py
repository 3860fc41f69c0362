"""The share of strings whose last answer is right, for tasks whose earlier answers are steps on the way to it.

steps and answer a b b a, said a a a a     ->     1: the mistake on the way was corrected
"""

from torch import Tensor

from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import Metric, register


def answer_is_right(answers: Answers) -> Tensor:
    is_answer_BL = answers.task.final_answers(answers.batch)
    return (answers.right_BL | ~is_answer_BL).all(1)


register(
    Metric(
        name="last_answer",
        about="the answer right, whatever the steps before it",
        count=answer_is_right,
        per="strings",
        wants=lambda task: task.writes_steps,
    )
)
