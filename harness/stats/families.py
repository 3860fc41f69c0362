"""Four scores of a climb, by family of rungs: memory, state tracking, counting and stacks, retrieval.

A family's score is the mean over its rungs of the seeds' scaled accuracy at the longest test lengths, clipped to 0..1,
with a bootstrap interval over seeds within each rung. There is no total: a sum of rungs would count state tracking four
times.
"""

from chomsky_ladder.harness.stats.aggregates import Estimate, mean
from chomsky_ladder.harness.stats.climb import Climb

FAMILIES = {
    "memory": ("flip_flop", "even_pairs"),
    "state tracking": ("parity", "cycle_nav", "word_problem"),
    "counting and stacks": ("majority", "dyck", "reverse_string", "repetition", "bucket_sort"),
    "retrieval": ("mqar",),
}
"""The tasks of each family. A rung of another task belongs to none."""


def family_scores(climb: Climb) -> dict[str, Estimate]:
    """Return the score of each family of which every rung was run."""
    found = {}
    for family, tasks in FAMILIES.items():
        steps = [step for step in climb.steps if step.rung.task in tasks]
        if steps and all(step.n for step in steps):
            cut = {step.rung.name: tuple(min(1.0, max(0.0, score)) for score in step.scores) for step in steps}
            found[family] = mean(cut)
    return found


def family_text(score: Estimate | None) -> str:
    """Return a score with its interval, which is left out where it rounds to the score."""
    if score is None:
        return "-"
    shown = [f"{round(value, 2) + 0.0:.2f}" for value in (score.value, score.low, score.high) if value is not None]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"
