"""Is the string in this context-free language of FLaRe? Majority, a stack, or a string and its reversal.

    0 1 1 # 1 1 0  ->  YES        marked-reversal
    0 1 1 # 1 1 1  ->  NO         a member after one edit

majority: more 1s than 0s, their number uniform. stack-manipulation: a stack, PUSH with a bit, POP, then # and the
remaining stack, its top first; a POP of the empty stack is not allowed. unmarked-reversal has no #, and is the only one
without a deterministic machine. tasks/_flare.py lists the differences from Butoi et al. 2024 (2411.07107). One more: in
stack-manipulation, all pairs of a stack's size and a number of pushes that make the length are equally likely.
"""

from dataclasses import dataclass

from chomsky_ladder.tasks._flare import Flare
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class FlareContextFree(Flare):
    name, version, level = "flare_context_free", 1, "context_free"
    languages = ("majority", "stack-manipulation", "marked-reversal", "unmarked-reversal")

    language: str = "marked-reversal"
    """The language, by its published name."""
