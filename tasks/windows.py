"""The best score of a model that sees only the last symbols of a string.

    windowed(FlipFlop(silence=True), (225, 256), window=31)  ->  0.54

The task says what its last symbols tell (`told_by_end`); where they tell nothing, the model guesses an answer.
"""

import torch

from chomsky_ladder.tasks.base import PAD, Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

STRINGS = 4096


def windowed(task: Task, lengths: tuple[int, int], *, window: int) -> float | None:
    """Return the accuracy on test strings of these lengths; None if the task does not define what a window tells."""
    legal = torch.tensor(task.legal_lengths(*lengths))
    if not isinstance(task, Classification) or type(task).told_by_end is Classification.told_by_end or not len(legal):
        return None
    draw = Draw(seed=0, split="test", rows_B=torch.arange(STRINGS))
    size_B = task.size(legal[draw.child("lengths").integers(len(legal))])
    x_BL, answer_B = task.examples(draw, size_B, int(size_B.max()))
    told_B = torch.zeros_like(answer_B)
    for size in size_B.unique().tolist():
        rows_B = size_B == size
        try:
            told_B[rows_B] = task.told_by_end(x_BL[rows_B, max(size - window, 0) : size])
        except NotImplementedError:  # the task cannot say for these settings
            return None
    chance = 1 / len(task.answers)
    return float(torch.where(told_B == PAD, chance, (told_B == answer_B).double()).mean())
