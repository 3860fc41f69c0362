"""The known results, as data: (transition, demand) -> can, cannot or open, with the paper and its assumptions.

Depth and width are fixed. Each entry names the precision that its paper assumes. At finite precision any fixed state is
a finite automaton, so results on counting exist only at precision log n, where a state has O(log n) bits. "Open" means
that nothing is proven, or that the proof needs an assumption on which an architecture here leaves the choice open.
Papers are named by their arXiv numbers. A result that needs more layers than the two of the climb is marked open, with
that reason. For star-free languages no number is enough for all: each language needs its own number of layers.

harness/config/objections.py lists the objections of a review, and the answers.
"""

from collections.abc import Iterable
from typing import Literal

Word = Literal["can", "cannot", "open"]
Result = tuple[Word, str]  # the mark, and the reason


def _can(why: str) -> Result:
    return "can", why


def _cannot(why: str) -> Result:
    return "cannot", why


def _open(why: str) -> Result:
    return "open", why


_FINITE = "star-free", "parity", "cyclic", "solvable", "non-solvable"  # demands that a finite automaton meets

_AC0 = _open(
    "at fixed precision no: AC0 has no modular counting (Li et al. 2024, 2402.12875); at precision log n constant "
    "depth does for solvable groups (Liu et al. 2023, 2210.10749)"
)
_TC0_ATTENTION = _cannot(
    "in TC0 at precision log n (Merrill and Sabharwal 2023, 2207.00729), unless TC0 = NC1",
)
_TC0_LINEAR = _cannot("in TC0 at precision log n (Merrill et al. 2024, 2404.08819), unless TC0 = NC1")
_VIEW = _cannot("the answer depends on what lies before the last blocks * (window - 1) + 1 positions")
_STAR_FREE_ONLY = (
    "finite precision and eigenvalues in [0, 1]: exactly the star-free languages (Sarrof et al. 2024, 2405.17394)"
)
_FIXED = _cannot(
    "no parity with a transition that is the same at every token, at any depth (Khavari et al. 2025, 2508.07395)",
)
_SARROF_COUNTS = _can("counters at precision log n, with an eigenvalue of 1 (Sarrof et al. 2024, 2405.17394)")
_LOG_COUNTS = _can("global counting at precision log n (Alsmann et al. 2026, 2601.19467)")
_RASP = "averaging hard attention that knows the places' numbers (Weiss et al. 2021, 2106.06981)"
_RASP_ALONE = _open(f"by {_RASP}; by softmax of bounded scores over turned keys nothing is proven")
_SLSTM = _can(
    "where its forget gate is shut, h is s(o) tanh(z): a simple recurrent network, which follows every finite "
    "automaton (Merrill 2019, 1906.01615)"
)
_STACK = _can(
    "a neural stack simulates every pushdown automaton (Stogin et al. 2020, 2006.03651); those here, of Joulin and "
    "Mikolov 2015 (1503.01007) and of DuSell and Chiang 2021 (2109.01982), move exactly where weights are saturated"
)
_TAPE = _can(
    "a neural tape that is long enough simulates every Turing machine in real time (Stogin et al. 2020, 2006.03651); "
    "the one here, of Deletang et al. 2022 (2207.02098), moves exactly where its softmax is saturated"
)
_BITS = "a string of n symbols does not fit into a fixed state of O(log n) bits"
_COPY = _cannot(f"{_BITS} (Jelassi et al. 2024, 2402.01032)")
_REVERSE = _cannot(f"{_BITS}: the count of Jelassi et al. 2024 (2402.01032) for copying")
_NEST = _cannot(
    "2^(n/2) stacks do not fit into a fixed state of O(log n) bits (Merrill et al. 2020, 2004.08500)",
)
_GRAZZI_PARITY = _cannot(
    "finite precision: needs an eigenvalue that is not real and positive (Grazzi et al. 2024, 2411.12537)",
)
_GRAZZI_COUNT = _cannot(
    "finite precision, two layers: counting modulo 3 or 5 needs a product of two transitions with a complex "
    "eigenvalue (Grazzi et al. 2024, 2411.12537)"
)
_REGULAR = _can("finite precision: every finite automaton (Merrill 2019, 1906.01615)")
_NO_COUNT = _cannot(
    "finite precision: its numbers saturate (Weiss et al. 2018, 1805.04908; Merrill 2019, 1906.01615)",
)
_COUNT = _can("counts at precision log n (Weiss et al. 2018, 1805.04908; Merrill 2019, 1906.01615)")
_SIZE = _open("what fits into the state decides, not how it moves: the keys of a string are few")
_LAYERS = "of enough layers, every regular language (Grazzi et al. 2024, 2411.12537; Siems et al. 2025, 2502.10297)"


def _each(demands: Iterable[str], result: Result) -> dict[str, Result]:
    return dict.fromkeys(demands, result)


def _state() -> dict[str, Result]:
    """Return the demands that no state of fixed size can meet."""
    return {"nesting": _NEST, "reversal": _REVERSE, "copying": _COPY, "recall": _SIZE}


_TABLE: dict[str, dict[str, Result]] = {
    "attention": {
        "star-free": _open(
            "strict masking and hard attention without positions: exactly the star-free languages (Yang et al. 2024, "
            "2310.13897); softmax imitates it by unbounded positions or a temperature that depends on the length (Yang "
            "et al. 2024, 2412.09925), and here there is neither",
        ),
        "parity": _open(
            "at fixed precision no (AC0; Li et al. 2024, 2402.12875); with positions i / n and precision log n a "
            "construction exists (Chiang and Cholak 2022, 2202.12172)",
        ),
        "cyclic": _AC0,
        "solvable": _AC0,
        "non-solvable": _TC0_ATTENTION,
        "majority": _can("saturated attention at precision log n (Merrill et al. 2022, 2106.16213)"),
        "counter": _can("precision log n (Yang and Chiang 2024, 2404.04393)"),
        "nesting": _open(
            f"of bounded depth, yes (Yao et al. 2021, 2105.11115); of any, by {_RASP}; by hard attention, no (Hahn "
            "2020, 1906.06755)",
        ),
        "reversal": _RASP_ALONE,
        "copying": _open(
            f"token by token, where stretches rarely repeat (Jelassi et al. 2024, 2402.01032); all at once, by {_RASP}",
        ),
        "sorting": _RASP_ALONE,
        "recall": _can("two layers, of a width that does not grow (Arora et al. 2023, 2312.04927)"),
    },
    "looped attention": {"non-solvable": _TC0_ATTENTION},
    "window": _each(
        (
            *("star-free", "parity", "cyclic", "solvable", "non-solvable", "majority", "counter", "nesting"),
            *("reversal", "copying", "sorting", "recall"),
        ),
        _VIEW,
    ),
    "diagonal": {
        "star-free": _can(_STAR_FREE_ONLY),
        "parity": _cannot(_STAR_FREE_ONLY),
        "cyclic": _cannot(_STAR_FREE_ONLY),
        "solvable": _cannot(_STAR_FREE_ONLY),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "fixed diagonal": {
        "parity": _FIXED,
        "cyclic": _cannot(_STAR_FREE_ONLY),
        "solvable": _cannot(_STAR_FREE_ONLY),
        "non-solvable": _TC0_LINEAR,
        **_state(),
    },
    "fixed linear": {
        "star-free": _open("as far as is known it lacks what `since` asks (Alsmann et al. 2026, 2601.19467)"),
        "parity": _FIXED,
        "solvable": _cannot(
            "a swap of two makes parity part of it, and that it cannot (Khavari et al. 2025, 2508.07395)",
        ),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _LOG_COUNTS,
        **_state(),
    },
    "signed diagonal": {
        "star-free": _can("as with eigenvalues in [0, 1] (Sarrof et al. 2024, 2405.17394)"),
        "parity": _can("an eigenvalue of -1 (Sarrof et al. 2024, 2405.17394; Grazzi et al. 2024, 2411.12537)"),
        "cyclic": _GRAZZI_COUNT,
        "solvable": _cannot(
            "it has a cycle of 3: counting modulo 3 needs a complex eigenvalue (Grazzi et al. 2024, 2411.12537)",
        ),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "complex diagonal": {
        "star-free": _can("as with eigenvalues in [0, 1] (Sarrof et al. 2024, 2405.17394)"),
        "parity": _can("one layer: a commutative group (Shakerinava et al. 2026, 2603.01959)"),
        "cyclic": _can("one layer: a commutative group (Shakerinava et al. 2026, 2603.01959)"),
        "solvable": _can(
            "as many layers as a subnormal series with commutative factors has, two for S3 (Shakerinava et al. 2026, "
            "2603.01959)",
        ),
        "non-solvable": _cannot(
            "at any depth, finite precision (Shakerinava et al. 2026, 2603.01959); in TC0 at precision log n",
        ),
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "projection": {
        "parity": _GRAZZI_PARITY,
        "cyclic": _GRAZZI_COUNT,
        "solvable": _cannot(
            "a swap of two makes parity part of it, and that it cannot (Grazzi et al. 2024, 2411.12537)",
        ),
        "non-solvable": _GRAZZI_COUNT,
        **_state(),
    },
    "reflection": {
        "star-free": _can(_LAYERS),
        "parity": _can("one layer: an eigenvalue of -1 (Grazzi et al. 2024, 2411.12537)"),
        "cyclic": _can("two layers: a rotation is two reflections (Siems et al. 2025, 2502.10297)"),
        "solvable": _can("S3 is a dihedral group: two layers (Siems et al. 2025, 2502.10297)"),
        "non-solvable": _open("four layers do (Siems et al. 2025, 2502.10297); of two nothing is known"),
        **_state(),
    },
    "reflections": {
        "star-free": _can(_LAYERS),
        "parity": _can("one layer (Grazzi et al. 2024, 2411.12537)"),
        "cyclic": _can("one layer, two reflections (Grazzi et al. 2024, 2411.12537)"),
        "solvable": _can("one layer: n - 1 reflections for n things (Grazzi et al. 2024, 2411.12537)"),
        "non-solvable": _can(
            "one layer: A5 turns a space of three dimensions, two reflections; S5 needs four (Siems et al. 2025, "
            "2502.10297)",
        ),
        **_state(),
    },
    "generalised delta": _each(
        _FINITE,
        _open(
            "four layers do with twice the removal (Peng et al. 2025, 2503.14456); as released, and here, no "
            "eigenvalue reaches -1",
        ),
    )
    | _state(),
    "dense blocks": _each(
        _FINITE, _can("one layer, blocks as large as the automaton asks (Walker et al. 2025, 2505.17761)")
    )
    | {
        "non-solvable": _can(
            "one layer, blocks of 4: A5 and S5 are matrices of whole numbers of that size, which move five things "
            "whose sum is 0; other groups ask for larger blocks (Walker et al. 2025, 2505.17761)",
        )
    }
    | _state(),
    "one-hot columns": _each(
        _FINITE,
        _can("one layer of as many numbers as the automaton has states (Terzic et al. 2025, 2509.22284)"),
    )
    | _state(),
    "one-hot rows": {
        "star-free": _open("no row merges two states, as a theorem's columns do (Terzic et al. 2025, 2509.22284)"),
        **_each(
            _FINITE[1:],
            _can(
                "one layer of as many numbers as the group has elements, whose matrices have one 1 in every row and in "
                "every column (Terzic et al. 2025, 2509.22284)",
            ),
        ),
        "non-solvable": _can(
            "one layer of 30 numbers with signs for the 60 elements of A5, by matrices with one 1 or -1 in every row "
            "and column; of as many numbers as elements for other groups (Terzic et al. 2025, 2509.22284)",
        ),
        **_state(),
    },
    "gated units": _each(_FINITE, _REGULAR) | _each(("majority", "counter"), _NO_COUNT) | _state(),
    "lstm": _each(_FINITE, _REGULAR) | _each(("majority", "counter"), _COUNT) | _state(),
    "slstm": _each(_FINITE, _SLSTM) | _state(),
    "stack": _each(_FINITE, _REGULAR) | _each(("majority", "counter", "nesting", "reversal"), _STACK),
    "tape": _each(_FINITE, _REGULAR) | _each(("majority", "counter", "nesting", "reversal", "copying"), _TAPE),
    "memory": _each(_FINITE, _REGULAR),
    "one vector": {"reversal": _REVERSE, "copying": _COPY},
}

_CONVEX = _open(
    "counters ask for an eigenvalue of 1 beside an input that adds (Sarrof et al. 2024, 2405.17394); here what is kept "
    "and what is added sum to 1"
)
_SCALED = _open(
    "counters ask for an eigenvalue of 1 beside an input that adds (Sarrof et al. 2024, 2405.17394); here the "
    "squares of what is kept and of the factor of what is added sum to 1"
)
_SUMS_OF_SUMS = _open(
    "counters ask for an eigenvalue of 1 (Sarrof et al. 2024, 2405.17394); with it the place, which alone is read, is "
    "a sum of all sums so far"
)
_FORGETS = _open(
    "counters ask for an eigenvalue of 1 (Sarrof et al. 2024, 2405.17394); its decays are fixed and below 1",
)
_OF_MODELS: dict[tuple[str, str], dict[str, Result]] = {
    **{(name, "diagonal"): _each(("majority", "counter"), _CONVEX) for name in ("min_gru", "min_lstm", "hgrn2")},
    ("gated_slot_attention", "diagonal"): _each(("majority", "counter"), _CONVEX),
    ("rg_lru", "diagonal"): _each(("majority", "counter"), _SCALED),
    ("d_linoss", "fixed linear"): _each(("majority", "counter"), _SUMS_OF_SUMS),
    ("retention", "fixed linear"): _each(("majority", "counter"), _FORGETS),
    ("path_attention", ""): {
        "non-solvable": _open(
            "it solves a problem that is complete for NC1 under AC0 reductions (Yang et al. 2025, 2505.16381), which "
            "other attention cannot if TC0 and NC1 differ; that two layers reduce A5 to it is not proven"
        )
    },
    ("kda", "generalised delta"): _each(
        ("parity", "solvable"),
        _cannot(
            "finite precision: a product of two positive semi-definite matrices has no eigenvalue below 0, and parity, "
            "which S3 has in it, needs one that is not real and positive (Grazzi et al. 2024, 2411.12537)"
        ),
    ),
}
"""Results for one model, by name and transition. They do not hold for others with the same transition."""

OF_MODELS: dict[tuple[str, str, str], Result] = {
    (*key, demand): result for key, row in _OF_MODELS.items() for demand, result in row.items()
}
RESULTS: dict[tuple[str, str], Result] = {
    (transition, demand): result for transition, row in _TABLE.items() for demand, result in row.items()
}
