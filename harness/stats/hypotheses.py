"""Ten statements about climb-v2, written before its first run had ended, and what the records say of each.

    judge(climbs)      holds up, fails, open (the interval has 0 in it), to come (of which cells?)

The pilot had been seen: one seed of five models on six rungs. A statement compares mean scores at lengths 225..256 of
two groups of cells, or says of cells that most seeds hold them, or do not. Nothing here may be edited: a test has the
hash, and what is to be asked anew is a list of its own.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from chomsky_ladder.harness.stats.aggregates import Estimate, contrast
from chomsky_ladder.harness.stats.climb import Climb, Step

SUITE = "climb-v2"
Place = tuple[str, str]  # a row's label and a rung
Verdict = Literal["holds up", "fails", "open", "to come"]

SIGNED = " (eigenvalues=signed)"
NOPE = "transformer (positions=none)"


def _of(models: Sequence[str], rungs: Sequence[str]) -> tuple[Place, ...]:
    return tuple((model, rung) for model in models for rung in rungs)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    key: str
    says: str
    why: str
    higher: tuple[Place, ...] = ()
    lower: tuple[Place, ...] = ()
    """Cells whose mean is said to be below that of `higher`."""
    held: tuple[Place, ...] = ()
    """Cells that most seeds are said to hold."""
    not_held: tuple[Place, ...] = ()


TRACKING = ("count mod 2", "count mod 3", "compose S3", "compose A5")
NONLINEAR = ("lstm", "lstm_block", "gru", "xlstm (ratio=0:1)")
LINEAR = ("mamba", "mamba2", "gla", "retention", "xlstm (ratio=1:0)")
BOTH_SIGNS = ("delta_net", "gated_delta_net", "mamba")

HYPOTHESES = (
    Hypothesis(
        key="corner",
        says="xLSTM[1:1] composes A5 and recalls: the corner that was empty in climb-v1 is not.",
        why="In the pilot it did both on one seed, at two learning rates.",
        held=_of(("xlstm",), ("compose A5", "recall")),
    ),
    Hypothesis(
        key="shortcut",
        says="xLSTM[1:1] does better on A5 than on a cycle of three, the simpler group.",
        why="To length 40 an mLSTM can count steps and read the count modulo three; A5 has no such shortcut.",
        higher=_of(("xlstm",), ("compose A5",)),
        lower=_of(("xlstm",), ("count mod 3",)),
    ),
    Hypothesis(
        key="one-hot",
        says="PD-SSM does better than DeltaNet [-1,1] on A5.",
        why="Its transitions are maps of states, a product of reflections has to be found (2509.22284, 2411.12537).",
        higher=_of(("pd_ssm",), ("compose A5",)),
        lower=_of((f"delta_net{SIGNED}",), ("compose A5",)),
    ),
    Hypothesis(
        key="reflections",
        says="Four reflections a token do better than one on the cycle of three and on A5.",
        why="A rotation is a product of two reflections (2502.10297).",
        higher=_of((f"gated_delta_product{SIGNED}",), ("count mod 3", "compose A5")),
        lower=_of((f"gated_delta_net{SIGNED}",), ("count mod 3", "compose A5")),
    ),
    Hypothesis(
        key="signs",
        says="Eigenvalues in [-1, 1] help parity, over DeltaNet, Gated DeltaNet and Mamba.",
        why="Positive eigenvalues cannot at every length (2411.12537).",
        higher=_of([f"{name}{SIGNED}" for name in BOTH_SIGNS], ("count mod 2",)),
        lower=_of(BOTH_SIGNS, ("count mod 2",)),
    ),
    Hypothesis(
        key="signs-alone",
        says="Eigenvalues in [-1, 1] alone hold no cycle of three: neither DeltaNet nor Gated DeltaNet does.",
        why="One reflection a token has real eigenvalues; two tokens' products would have to be found.",
        not_held=_of([f"{name}{SIGNED}" for name in BOTH_SIGNS[:2]], ("count mod 3",)),
    ),
    Hypothesis(
        key="nonlinear",
        says="Nonlinear recurrences track state better than linear ones with positive eigenvalues.",
        why="A diagonal or gated linear recurrence is in TC0 (2404.08819).",
        higher=_of(NONLINEAR, TRACKING),
        lower=_of(LINEAR, TRACKING),
    ),
    Hypothesis(
        key="no-positions",
        says="A Transformer without positions does better beyond its training lengths than one with RoPE.",
        why="So it was in a study of small Transformers (2305.19466).",
        higher=_of((NOPE,), ("count", "nest", "copy", "recall")),
        lower=_of(("transformer",), ("count", "nest", "copy", "recall")),
    ),
    Hypothesis(
        key="stack",
        says="A Stack-RNN reverses strings better than an LSTM.",
        why="A reversal is a stack read out, and a state of fixed size cannot hold it at every length.",
        higher=_of(("stack_rnn",), ("reverse",)),
        lower=_of(("lstm",), ("reverse",)),
    ),
    Hypothesis(
        key="recall",
        says="Attention and delta rules recall better than nonlinear recurrences.",
        why="A matrix of keys and values, or all tokens, against a vector of the same size.",
        higher=_of((NOPE, "path_attention", f"delta_net{SIGNED}", f"gated_delta_net{SIGNED}"), ("recall",)),
        lower=_of(NONLINEAR, ("recall",)),
    ),
)


def digest() -> str:
    """The hash of all statements and the cells they name."""
    return hashlib.sha256(json.dumps([asdict(one) for one in HYPOTHESES], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Judged:
    hypothesis: Hypothesis
    verdict: Verdict
    difference: Estimate | None = None
    """The difference between the means of two groups, with an interval over seeds."""
    seeds: tuple[str, ...] = ()
    """The number of seeds that hold each cell said to be held or not."""
    missing: tuple[Place, ...] = ()


def judge(climbs: Sequence[Climb], *, seeds: int) -> list[Judged]:
    """Judge each statement by cells with at least so many seeds."""
    steps = {(one.model, step.rung.name): step for one in climbs for step in one.steps if step.n >= seeds}
    return [_judged(hypothesis, steps) for hypothesis in HYPOTHESES]


def _judged(hypothesis: Hypothesis, steps: dict[Place, Step]) -> Judged:
    one = hypothesis
    missing = tuple(place for place in (*one.higher, *one.lower, *one.held, *one.not_held) if place not in steps)
    if missing:
        return Judged(one, "to come", missing=missing)
    if one.higher:
        difference = contrast(_scores(one.higher, steps), _scores(one.lower, steps))
        low, high = difference.low, difference.high
        clear = low is not None and high is not None and (low > 0 or high < 0)
        return Judged(one, ("holds up" if difference.value > 0 else "fails") if clear else "open", difference)
    asked = [(f"{model}, {rung}", steps[model, rung]) for model, rung in (*one.held, *one.not_held)]
    said = tuple(f"{name}: {step.held} of {step.n}" for name, step in asked)
    kept = all(steps[place].holds for place in one.held) and not any(steps[place].holds for place in one.not_held)
    return Judged(one, "holds up" if kept else "fails", seeds=said)


def _scores(places: Sequence[Place], steps: dict[Place, Step]) -> dict[str, tuple[float, ...]]:
    return {
        f"{model} {rung}": tuple(min(1.0, max(0.0, s)) for s in steps[model, rung].scores) for model, rung in places
    }
