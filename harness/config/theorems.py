"""The known results, as data: (transition, demand) -> can, cannot or open, with the paper and what it assumes.

Depth and width are fixed. Precision is that of the paper, which is said: at finite precision any fixed state is a
finite automaton, so that counting has results only at precision log n, where a state is O(log n) bits. "Open" stands
where nothing is proven and where what is proven hangs on an assumption that an architecture here does not settle.
Papers by their arXiv numbers. A stack of the climb has two blocks: a result for more of them says so and is open.
"""

Result = tuple[str, str]  # the word of a verdict, and why

_FINITE = "star-free", "parity", "cyclic", "solvable", "non-solvable"  # what a finite automaton does

_AC0 = (
    "open",
    (
        "at fixed precision no: AC0 has no modular counting (Li et al. 2024, 2402.12875); at precision log n constant "
        "depth does for solvable groups (Liu et al. 2023, 2210.10749)"
    ),
)
_TC0_ATTENTION = "cannot", "in TC0 at precision log n (Merrill and Sabharwal 2023, 2207.00729), unless TC0 = NC1"
_TC0_LINEAR = "cannot", "in TC0 at precision log n (Merrill et al. 2024, 2404.08819), unless TC0 = NC1"
_VIEW = "cannot", "the answer depends on what lies before the last blocks * (window - 1) + 1 positions"
_STAR_FREE_ONLY = (
    "finite precision and eigenvalues in [0, 1]: exactly the star-free languages (Sarrof et al. 2024, 2405.17394)"
)
_FIXED = (
    "cannot",
    "no parity with a transition that is the same at every token, at any depth (Khavari et al. 2025, 2508.07395)",
)
_SARROF_COUNTS = "can", "counters at precision log n, with an eigenvalue of 1 (Sarrof et al. 2024, 2405.17394)"
_LOG_COUNTS = "can", "global counting at precision log n (Alsmann et al. 2026, 2601.19467)"
_BITS = "a string of n symbols does not fit into a fixed state of O(log n) bits"
_COPY = "cannot", f"{_BITS} (Jelassi et al. 2024, 2402.01032)"
_REVERSE = "cannot", f"{_BITS}: the count of Jelassi et al. 2024 (2402.01032) for copying"
_NEST = "cannot", "2^(n/2) stacks do not fit into a fixed state of O(log n) bits (Merrill et al. 2020, 2004.08500)"
_GRAZZI_PARITY = (
    "cannot",
    "finite precision: needs an eigenvalue that is not real and positive (Grazzi et al. 2024, 2411.12537)",
)
_GRAZZI_COUNT = (
    "cannot",
    (
        "finite precision, two layers: counting modulo 3 or 5 needs a product of two transitions with a complex "
        "eigenvalue (Grazzi et al. 2024, 2411.12537)"
    ),
)
_REGULAR = "can", "finite precision: every finite automaton (Merrill 2019, 1906.01615)"
_NO_COUNT = "cannot", "finite precision: its numbers saturate (Weiss et al. 2018, 1805.04908; Merrill 2019, 1906.01615)"
_COUNT = "can", "counts at precision log n (Weiss et al. 2018, 1805.04908; Merrill 2019, 1906.01615)"
_SIZE = "open", "what fits into the state decides, not how it moves: the keys of a string are few"
_LAYERS = "of enough layers, every regular language (Grazzi et al. 2024, 2411.12537; Siems et al. 2025, 2502.10297)"


def _state() -> dict[str, Result]:
    """What no state of a fixed size holds."""
    return {"nesting": _NEST, "reversal": _REVERSE, "copying": _COPY, "recall": _SIZE}


_TABLE: dict[str, dict[str, Result]] = {
    "attention": {
        "star-free": (
            "can",
            "strict masking and hard attention: exactly the star-free languages (Yang et al. 2024, 2310.13897), which "
            "soft attention can imitate (Yang et al. 2024, 2412.09925)",
        ),
        "parity": (
            "open",
            "at fixed precision no (AC0; Li et al. 2024, 2402.12875); with positions i / n and precision log n a "
            "construction exists (Chiang and Cholak 2022, 2202.12172)",
        ),
        "cyclic": _AC0,
        "solvable": _AC0,
        "non-solvable": _TC0_ATTENTION,
        "majority": ("can", "saturated attention at precision log n (Merrill et al. 2022, 2106.16213)"),
        "counter": ("can", "precision log n (Yang and Chiang 2024, 2404.04393)"),
        "nesting": (
            "open",
            "of bounded depth, yes (Yao et al. 2021, 2105.11115); by hard attention, no (Hahn 2020, 1906.06755)",
        ),
        "reversal": ("can", "averaging hard attention with the places' numbers (Weiss et al. 2021, 2106.06981)"),
        "copying": (
            "open",
            "token by token, where stretches rarely repeat (Jelassi et al. 2024, 2402.01032); here all at once",
        ),
        "sorting": ("can", "averaging hard attention with the places' numbers (Weiss et al. 2021, 2106.06981)"),
        "recall": ("can", "two layers, of a width that does not grow (Arora et al. 2023, 2312.04927)"),
    },
    "window": dict.fromkeys(
        (
            *("star-free", "parity", "cyclic", "solvable", "non-solvable", "majority", "counter", "nesting"),
            *("reversal", "copying", "sorting", "recall"),
        ),
        _VIEW,
    ),
    "diagonal": {
        "star-free": ("can", _STAR_FREE_ONLY),
        "parity": ("cannot", _STAR_FREE_ONLY),
        "cyclic": ("cannot", _STAR_FREE_ONLY),
        "solvable": ("cannot", _STAR_FREE_ONLY),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "fixed diagonal": {
        "parity": _FIXED,
        "cyclic": ("cannot", _STAR_FREE_ONLY),
        "solvable": ("cannot", _STAR_FREE_ONLY),
        "non-solvable": _TC0_LINEAR,
        **_state(),
    },
    "fixed linear": {
        "star-free": ("open", "as far as is known it lacks what `since` asks (Alsmann et al. 2026, 2601.19467)"),
        "parity": _FIXED,
        "solvable": (
            "cannot",
            "a swap of two makes parity part of it, and that it cannot (Khavari et al. 2025, 2508.07395)",
        ),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _LOG_COUNTS,
        **_state(),
    },
    "signed diagonal": {
        "star-free": ("can", "as with eigenvalues in [0, 1] (Sarrof et al. 2024, 2405.17394)"),
        "parity": ("can", "an eigenvalue of -1 (Sarrof et al. 2024, 2405.17394; Grazzi et al. 2024, 2411.12537)"),
        "cyclic": _GRAZZI_COUNT,
        "solvable": (
            "cannot",
            "it has a cycle of 3: counting modulo 3 needs a complex eigenvalue (Grazzi et al. 2024, 2411.12537)",
        ),
        "non-solvable": _TC0_LINEAR,
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "complex diagonal": {
        "star-free": ("can", "as with eigenvalues in [0, 1] (Sarrof et al. 2024, 2405.17394)"),
        "parity": ("can", "one layer: a commutative group (Shakerinava et al. 2026, 2603.01959)"),
        "cyclic": ("can", "one layer: a commutative group (Shakerinava et al. 2026, 2603.01959)"),
        "solvable": (
            "can",
            "as many layers as a subnormal series with commutative factors has, two for S3 (Shakerinava et al. 2026, "
            "2603.01959)",
        ),
        "non-solvable": (
            "cannot",
            "at any depth, finite precision (Shakerinava et al. 2026, 2603.01959); in TC0 at precision log n",
        ),
        "majority": _LOG_COUNTS,
        "counter": _SARROF_COUNTS,
        **_state(),
    },
    "projection": {
        "parity": _GRAZZI_PARITY,
        "cyclic": _GRAZZI_COUNT,
        "solvable": (
            "cannot",
            "a swap of two makes parity part of it, and that it cannot (Grazzi et al. 2024, 2411.12537)",
        ),
        "non-solvable": _GRAZZI_COUNT,
        **_state(),
    },
    "reflection": {
        "star-free": ("can", _LAYERS),
        "parity": ("can", "one layer: an eigenvalue of -1 (Grazzi et al. 2024, 2411.12537)"),
        "cyclic": ("can", "two layers: a rotation is two reflections (Siems et al. 2025, 2502.10297)"),
        "solvable": ("can", "S3 is a dihedral group: two layers (Siems et al. 2025, 2502.10297)"),
        "non-solvable": ("open", "four layers do (Siems et al. 2025, 2502.10297); of two nothing is known"),
        **_state(),
    },
    "reflections": {
        "star-free": ("can", _LAYERS),
        "parity": ("can", "one layer (Grazzi et al. 2024, 2411.12537)"),
        "cyclic": ("can", "one layer, two reflections (Grazzi et al. 2024, 2411.12537)"),
        "solvable": ("can", "one layer: n - 1 reflections for n things (Grazzi et al. 2024, 2411.12537)"),
        "non-solvable": (
            "can",
            "one layer: A5 turns a space of three dimensions, two reflections; S5 needs four (Siems et al. 2025, "
            "2502.10297)",
        ),
        **_state(),
    },
    "generalised delta": dict.fromkeys(
        _FINITE,
        (
            "open",
            "four layers do with twice the removal (Peng et al. 2025, 2503.14456); as released, and here, no "
            "eigenvalue reaches -1",
        ),
    )
    | _state(),
    "dense blocks": dict.fromkeys(
        _FINITE, ("can", "one layer, blocks as large as the automaton asks (Walker et al. 2025, 2505.17761)")
    )
    | _state(),
    "gated units": dict.fromkeys(_FINITE, _REGULAR) | dict.fromkeys(("majority", "counter"), _NO_COUNT) | _state(),
    "lstm": dict.fromkeys(_FINITE, _REGULAR) | dict.fromkeys(("majority", "counter"), _COUNT) | _state(),
    "slstm": dict.fromkeys(_FINITE, _REGULAR) | _state(),
    "stack": dict.fromkeys(_FINITE, _REGULAR)
    | dict.fromkeys(
        ("majority", "counter", "nesting", "reversal"),
        (
            "can",
            "a deterministic pushdown automaton (Joulin and Mikolov 2015, 1503.01007; Deletang et al. 2022, "
            "2207.02098)",
        ),
    ),
    "tape": dict.fromkeys(_FINITE, _REGULAR)
    | dict.fromkeys(
        ("majority", "counter", "nesting", "reversal", "copying"),
        ("can", "a Turing machine of linear time, where the tape is long enough (Deletang et al. 2022, 2207.02098)"),
    ),
    "memory": dict.fromkeys(_FINITE, _REGULAR),
}

RESULTS: dict[tuple[str, str], Result] = {
    (transition, demand): result for transition, row in _TABLE.items() for demand, result in row.items()
}
