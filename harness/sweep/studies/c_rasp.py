"""Nine regular languages of three kinds, to see which of them a model keeps beyond its training lengths.

    ladder study c_rasp --budget smoke|cpu|gpu|full [--engine ray] [--exec.results FOLDER]

in C-RASP      what counters tell that no loop moves (tasks/_c_rasp.py): softmax attention is expected to keep them
star-free      the others without groups: a decaying state of eigenvalues in [0, 1] can keep them at every length
groups         counting modulo two and three: these ask for other eigenvalues, or for a nonlinear state

Eight symbols of ten do nothing and stand anywhere, so that no rule about neighbours decides a string. The pair of
(ab|bbaa)* and (ab|aabb)* is that of Yang et al. 2026 (2608.13433), who train Transformers alone. Every prefix is
labelled in training, the whole string is tested.
"""

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

BETWEEN = "[e-l]*"  # symbols that do nothing
LANGUAGES = {
    "in C-RASP": ("(ab)*", "(a(ab)*b)*", "(ab|bbaa)*", "(ab|ba)*"),
    "star-free": ("(a|b)*b", "(ab|aabb)*", "((ab)+b+)+"),
    "groups": ("(aa)*", "(aaa)*"),
}


def apart(language: str) -> str:
    """Return the pattern of a language with the symbols that do nothing anywhere."""
    return BETWEEN + "".join(f"({one}{BETWEEN})" if one in "ab" else one for one in language)


MODELS = [
    ("transformer", {"positions": "none"}),
    "transformer",
    "fox",
    "mamba",
    ("delta_net", {"eigenvalues": "signed"}),
    "lstm",
]


def runs(budget: Budget = "cpu") -> list[Run]:
    tasks = [("regular", {"pattern": apart(one), "supervision": "dense"}) for of in LANGUAGES.values() for one in of]
    return study_runs(budget, tasks=tasks, models=MODELS)


table = published_tables("regular")
