"""Predict on which tasks softmax attention keeps its accuracy at lengths that it was not trained on.

    predicted(Parity())        loses    its state is a group
    predicted(Majority())      keeps    C-RASP compares counts

What is in C-RASP (tasks/_c_rasp.py) keeps, what is not loses. The first is proven for an idealised learner, of
Transformers without positions or with learnt ones (Huang et al. 2025, 2410.02140). The second is what experiments
found, theirs and those of Yang et al. 2026 (2608.13433). Both are about attention that weighs all positions alike, not
about decays, gates or stacks in it, and about any number of layers and long training. They say nothing about what
weights can do: that is harness/config/theory.py.

A regular language is decided by its automaton. Other tasks are judged by what they ask, from papers.
"""

from typing import Literal, NamedTuple

from chomsky_ladder.tasks.base import Task

ATTENTION = ("attention", "looped attention")
"""Transitions that the predictions are about."""


class Prediction(NamedTuple):
    word: Literal["keeps", "loses", "open"]
    why: str


_GROUP = Prediction("loses", "its state is a group, and all regular languages in C-RASP are star-free (2608.13433)")
_REPEATS = Prediction(
    "loses", "with symbols that repeat it asks for more bits between two halves than C-RASP has (2505.21785, lemma 8)"
)
BY_DEMAND: dict[str, Prediction] = {
    **dict.fromkeys(("parity", "cyclic", "solvable", "non-solvable"), _GROUP),
    "majority": Prediction("keeps", "C-RASP compares counts (2404.04393)"),
    "sorting": Prediction(
        "keeps", "a symbol is next if more symbols up to it were read than have been written: a comparison of counts"
    ),
    "copying": _REPEATS,
    "reversal": _REPEATS,
    "recall": Prediction("keeps", "with positions: one symbol alone ever follows a key (2505.21785, lemma 4)"),
}
"""Predictions that hold for every task with the demand."""
_TASKS: dict[str, Prediction] = {
    "flip_flop": Prediction("loses", "the last write, after any number of ignored ones, is not in C-RASP (2608.13433)"),
    "even_pairs": Prediction("open", "in C-RASP if the last symbol is known by its position, else not (2608.13433)"),
}
_IN = {
    "yes": Prediction("keeps", "its automaton is in C-RASP (2608.13433)"),
    "no": Prediction("loses", "its automaton is not in C-RASP (2608.13433)"),
}
_UNKNOWN = Prediction("open", "no result that we know of")


def predicted(task: Task) -> Prediction:
    """Return what is predicted for attention on a task, with its settings."""
    by_automaton = _IN.get(str(task.facts.get("in C-RASP")))
    if by_automaton is None and task.demand == "star-free":
        ignores = getattr(task, "ignore", 1)  # without an ignored write the last one is near
        return _TASKS.get(task.name, _UNKNOWN) if ignores else _UNKNOWN
    return by_automaton or BY_DEMAND.get(task.demand, _UNKNOWN)
