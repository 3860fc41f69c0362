"""Verdicts of theory on a transition (how a model moves its state) and a demand (of a task): can, cannot or open.

    verdict("diagonal", "parity")     cannot   Sarrof et al. 2024: at finite precision exactly the star-free languages
    verdict("lstm", "majority")       can      Weiss et al. 2018: it counts without bound

A model declares its `transition` (models/base.py), a task its `demand` (tasks/base.py), both with their settings. The
results are in harness/config/theorems.py. "Can" means that weights exist, not that training finds them. A stack of
several kinds of blocks can do what one of them can, because the other blocks may leave the stream alone. It cannot do
what no kind can alone if one bound, that of constant-depth threshold circuits, covers all kinds together. Everything
else is open.
"""

from functools import lru_cache
from typing import NamedTuple

from chomsky_ladder.harness.config.theorems import OF_MODELS, RESULTS, Word

JOIN = " + "  # between the transitions of a stack of several kinds

TRANSITIONS: dict[str, str] = {
    "attention": "softmax attention over all positions it may see",
    "looped attention": "softmax attention over all positions it may see, by the same layers a fixed number of times",
    "window": "softmax attention over the last few positions",
    "diagonal": "diagonal, with eigenvalues in [0, 1] that depend on the token",
    "fixed diagonal": "diagonal, with eigenvalues in [0, 1] that are the same at every token",
    "fixed linear": "linear and the same at every token, with complex eigenvalues",
    "signed diagonal": "diagonal, with real eigenvalues in [-1, 1] that depend on the token",
    "complex diagonal": "diagonal, with complex eigenvalues that depend on the token",
    "projection": "the identity less a projection that depends on the token, eigenvalues in [0, 1]",
    "reflection": "the identity less up to twice a projection, eigenvalues in [-1, 1]",
    "reflections": "a product of several reflections a token",
    "generalised delta": "a diagonal less a matrix of rank one, eigenvalues above -1",
    "dense blocks": "blocks of full matrices that depend on the token",
    "one-hot columns": "every number of the state is added to one of its places, which the token chooses, and scaled",
    "one-hot rows": "every place of the state takes one of its numbers, which the token chooses, and scales it",
    "gated units": "non-linear, in numbers that cannot leave [-1, 1]",
    "lstm": "non-linear, with cells that can count",
    "slstm": "non-linear, with exponential gates and a normaliser",
    "stack": "a non-linear controller with stacks",
    "tape": "a non-linear controller with a tape",
    "memory": "a non-linear controller with a memory of a fixed number of rows",
    "one vector": "whatever reads the string, answers are made of one vector of a fixed size",
}

DEMANDS: dict[str, str] = {
    "star-free": "a finite automaton without groups",
    "parity": "counting modulo 2",
    "cyclic": "counting modulo m, which is no power of 2",
    "solvable": "a solvable group that is not commutative",
    "non-solvable": "a group that is not solvable: complete for NC1",
    "majority": "comparing two counts",
    "counter": "counting without bound, to compare exactly",
    "nesting": "a stack without bound",
    "reversal": "the whole string, last symbol first",
    "copying": "the whole string, first symbol first",
    "sorting": "the count of every symbol, read out in order",
    "recall": "a dictionary",
}


class Verdict(NamedTuple):
    word: Word
    """Says if weights exist that do it at every length."""
    why: str
    """The paper and its assumptions; for open cases, the question that remains."""


NOT_DECLARED = Verdict("open", "no transition or demand is declared")
NO_RESULT = Verdict("open", "no result that we know of")


@lru_cache(maxsize=4096)
def verdict(transition: str, demand: str, *, model: str = "") -> Verdict:
    """Return the verdict on a transition (or several, joined by " + ") and a demand. Either may be "", not declared."""
    if (model, transition, demand) in OF_MODELS:
        return Verdict(*OF_MODELS[model, transition, demand])
    if not transition or not demand:
        return NOT_DECLARED
    kinds = transition.split(JOIN)
    found = [_of_one(kind, demand) for kind in kinds]
    for kind, one in zip(kinds, found, strict=True):
        if one.word == "can":
            return one if len(kinds) == 1 else Verdict("can", f"{kind}: {one.why}")
    if len(kinds) == 1:
        return found[0]
    if demand == "non-solvable" and all("TC0" in one.why and one.word == "cannot" for one in found):
        return Verdict(
            "cannot", "each kind of block is in TC0 at precision log n, and so is the stack; unless TC0 = NC1"
        )
    return Verdict("open", "a stack of several kinds, none of which is known to do it alone")


def known(transition: str) -> bool:
    """Return True if the table has every transition that a model declares. "" is fine."""
    return not transition or all(kind in TRANSITIONS for kind in transition.split(JOIN))


def _of_one(transition: str, demand: str) -> Verdict:
    found = RESULTS.get((transition, demand))
    return Verdict(*found) if found else NO_RESULT
