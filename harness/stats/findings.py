"""The findings of many climbs, as sentences whose numbers are counted from the records.

The page leads with them. Fewer than eight whole climbs make no finding.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.climb import Climb, longest
from chomsky_ladder.harness.stats.outcomes import LEARNT

GROUP, RECALL = "compose A5", "recall"
NONLINEAR = {"gated units", "lstm", "slstm", "stack", "tape", "memory"}
FEWEST = 8
_SIGNED = "eigenvalues=signed"
_CYCLES = ("count mod 3", "compose S3", GROUP)
_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Finding:
    key: str
    name: str
    headline: str
    """One sentence with at most three numbers."""
    more: str


def findings(climbs: Sequence[Climb]) -> list[Finding]:
    """Return the findings, the headline first; an empty list where there are few models."""
    whole = [one for one in climbs if one.is_complete]
    if len(whole) < FEWEST:
        return []
    found = [_corner(whole), _holding(whole), _theory(whole), _eigenvalues(whole)]
    return [finding for finding in found if finding is not None]


def _corner(climbs: Sequence[Climb]) -> Finding:
    group, recall = _holders(climbs, GROUP), _holders(climbs, RECALL)
    both = [one for one in group if one in recall]
    headline = (
        f"{_word(len(group)).capitalize()} of {len(climbs)} models {_verb('compose', len(group))} A5 on most seeds, "
        f"{_word(len(recall))} {_verb('recall', len(recall))}, {_word(len(both))} {_verb('do', len(both))} both."
    )
    shares = {one.model: {step.rung.name: step.held / step.n for step in one.steps} for one in climbs}
    others = [one for one in climbs if one not in both]
    nearest = max(others, key=lambda one: shares[one.model][GROUP] + shares[one.model][RECALL])
    seeds = {step.rung.name: f"{step.held} of {step.n}" for step in nearest.steps}
    more = (
        f"{nearest.title} comes {'next' if both else 'nearest'}: recall on {seeds[RECALL]} seeds, A5 on {seeds[GROUP]}."
    )
    alone = [one for one in group if one not in both]
    if alone and {one.transition for one in alone} <= NONLINEAR:
        more = f"{'The others' if both else 'Those'} that compose A5 are nonlinear recurrences. {more}"
    if len(both) == 1:
        more = f"The one that does both is {both[0].title}. {more}"
    return Finding("corner", "State or recall", headline, more)


def _holding(climbs: Sequence[Climb]) -> Finding:
    outcomes = Counter(step.outcome for one in climbs for step in one.steps)
    held, lost = outcomes["held"], outcomes["lost"]
    headline = (
        f"Models hold {held} cells at lengths {_tested(climbs)}, and learn {lost} more at training lengths alone."
    )
    more = f"In the other {outcomes['not learnt']} most seeds stay below {LEARNT} even at training lengths."
    return Finding("holding", "Learnt and lost", headline, more)


def _theory(climbs: Sequence[Climb]) -> Finding:
    met = Counter(step.meeting for one in climbs for step in one.steps)
    held, excluded = met["can, held"], met["cannot, yet held"]
    allowed, forbidden = held + met["can, not held"], excluded + met["cannot, not held"]
    silent = [step for one in climbs for step in one.steps if step.meeting == "open"]
    headline = f"Models hold {held} of the {allowed} cells that theory allows."
    open_held = sum(step.outcome == "held" for step in silent)
    more = f"Of the {forbidden} that it excludes they hold {excluded}, of {len(silent)} without a proof {open_held}."
    return Finding("theory", "Theory says can", headline, more)


def _eigenvalues(climbs: Sequence[Climb]) -> Finding | None:
    signed = [one for one in climbs if _SIGNED in one.model]
    if not signed:
        return None
    parity = _holders(signed, "count mod 2")
    groups = [one for one in signed if any(one in _holders(signed, rung) for rung in _CYCLES)]
    some, none = (_word(len(holders)).capitalize() for holders in (parity, groups))
    models = f"{some} of {_word(len(signed))} models with eigenvalues in [-1, 1]"
    headline = f"{models} {_verb('hold', len(parity))} parity on most seeds."
    more = f"{none} {_verb('hold', len(groups))} a cycle of three, S3 or A5."
    others = [one for one in climbs if one.model in {one.name for one in signed}]
    if others:
        able = len(_holders(others, "count mod 2"))
        more += f" With [0, 1] {_word(able)} of {_word(len(others))} {_verb('hold', able)} parity."
    return Finding("eigenvalues", "Negative eigenvalues", headline, more)


def _tested(climbs: Sequence[Climb]) -> str:
    """Return the lengths at which a rung is held or not, as words."""
    return longest(PROTOCOLS[climbs[0].identity.protocol]).replace("..", " to ") if climbs[0].identity else ""


def _holders(climbs: Sequence[Climb], rung: str) -> list[Climb]:
    """Return the climbs of which most seeds hold a rung."""
    return [one for one in climbs for step in one.steps if step.rung.name == rung and step.holds]


def _word(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else str(number)


def _verb(verb: str, number: int) -> str:
    return verb if number > 1 else f"{verb}es" if verb == "do" else f"{verb}s"
