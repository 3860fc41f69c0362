"""The accuracy of the best answers, for tasks whose strings do not determine them. In the long run no model has more.

S3, effect=80: 102 021 ?     ->     .64: both took effect in .8 * .8 of all such strings
"""

from torch import Tensor

from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import Metric, register


def chances_of_the_best(answers: Answers) -> Tensor:
    return (answers.task.best_possible(answers.batch.tokens_BL) * answers.batch.scored_BL).sum(1)


register(
    Metric(
        name="best_possible",
        about="the highest accuracy that any model can expect on these strings",
        count=chances_of_the_best,
        per="answers",
        wants=lambda task: task.is_unsure,
    )
)
