"""Every task of the suite with strategies for all of its fields, and what the definitions say of its vocabulary."""

from typing import Any

from hypothesis import strategies as st

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Task
from support.oracles_flare import ALPHABETS
from support.oracles_flare import NAMES as FLARE
from support.oracles_grammar import LANGUAGES_BY_GRAMMAR
from support.oracles_groups import elements, generators

Fields = st.SearchStrategy[dict[str, Any]]

COUNTS = st.sampled_from(["total", "input"])
QUERIES = st.sampled_from(["none", "token"])
MARKS = st.sampled_from(["none", "token", "act"])
SUPERVISIONS = st.sampled_from(["final", "dense"])
DECODES = st.sampled_from(["parallel", "teacher"])
EVERY = st.booleans()
NEGATIVES = st.sampled_from(["near", "uniform", "edits", "one_edit", "border"])
FINAL = st.just("final")
SYMBOLS = st.integers(2, 6) | st.integers(2, 300)
MODULI = st.integers(2, 12) | st.integers(2, 50)
PRIMES = st.sampled_from([2, 3, 5, 7, 11, 13, 23, 47])
GROUPS = st.sampled_from(["S3", "S4", "A4", "A5", "S5", "Z2", "Z60", "D5", "A4xZ5", "Z3xD4xZ2"])
NO_FILE = {"file": st.just(""), "file_sha256": st.just("")}  # files: tests/tasks/test_att.py
PATTERNS = st.sampled_from(
    ["(ab|ba)*", "(ab)*", "a*b+a?", "(a|bb)*(ab)?", "[ab]*abb", "(a.b|c)*", "a{2,4}(b|ca)*", "([ab].c)*", "[^a]+a|b*"]
)
TABLES = st.sampled_from(
    [
        "even: a>odd b>even; odd: a>even b>odd; accept odd",
        "s: a>t; t: b>s; accept s",
        "0: 0>0 1>1; 1: 0>2 1>0; 2: 0>1 1>2; accept 0",
        "p: x>q y>p z>p; q: x>q z>p; r: x>p; accept q r",
    ]
)


def classified(
    *, query: st.SearchStrategy[str] = QUERIES, supervision: st.SearchStrategy[str] = FINAL, **own: Any
) -> Fields:
    return st.fixed_dictionaries({"count": COUNTS, "query": query, "supervision": supervision, **own})


def transduced(*, query: st.SearchStrategy[str] = QUERIES, **own: Any) -> Fields:
    return st.fixed_dictionaries({"count": COUNTS, "query": query, "decode": DECODES, **own})


def marked(**own: Any) -> Fields:
    return transduced(query=MARKS, **own)


@st.composite
def associations(draw: st.DrawFn) -> dict[str, Any]:
    num_keys = draw(st.integers(1, 20) | st.integers(1, 300))
    return {
        "num_keys": num_keys,
        "num_values": draw(SYMBOLS),
        "pairs": draw(st.integers(1, min(num_keys, 20))),
        "power": draw(st.integers(1, 100)),
        "filler": draw(st.sampled_from(["blank", "values"])),
    }


@st.composite
def products(draw: st.DrawFn) -> dict[str, Any]:
    """Any group with what it has inputs of, any of the three layouts."""
    group = draw(GROUPS)
    inputs = ["all", "generators"]
    inputs += [f"generators={draw(st.integers(len(generators(group)), len(elements(group))))}"]
    inputs += ["3-perm"] * ("x" not in group and group[0] in "SA") + ["swaps"] * ("x" not in group and group[0] == "S")
    layouts = st.one_of(
        st.tuples(st.integers(1, 4), st.sampled_from(["last", "every"]), st.just(0)),
        st.tuples(st.just(1), st.just("last"), st.integers(1, 100) | st.just(100)),
    )
    tokens_per, asks, reveal = draw(layouts)
    parts = ["element"] if "x" in group else ["element", "image", "source"]
    own = {
        "group": group,
        "inputs": draw(st.sampled_from(inputs)),
        "pick": draw(st.integers(0, 5)),
        "tokens_per": tokens_per,
        "asks": asks,
        "reveal": reveal,
        "observe": draw(st.sampled_from(parts)),
        "effect": 100,  # tests/tasks/test_word_problem_unsure.py
    }
    fields = draw(classified(supervision=SUPERVISIONS))
    is_whole = reveal == 0 and fields["query"] == "none" and own["inputs"] == "all" and group != "Z2"
    return fields | own | {"held_pairs": draw(st.integers(0, 60)) if is_whole else 0}


@st.composite
def hidden(draw: st.DrawFn) -> dict[str, Any]:
    """Grammars of few states and of many, with any of what tests selectivity."""
    symbols = draw(st.integers(2, 8) | st.integers(2, 52))
    low, high = draw(st.tuples(st.integers(1, 4), st.integers(1, 12)).map(sorted))
    return {
        "grammar": draw(st.integers(0, 1000)),
        "symbols": symbols,
        "ambiguous": draw(st.integers(0, symbols)),
        "copies": draw(st.integers(1, 10)),
        "density": draw(st.integers(1, 100)),
        "ends": draw(st.just(0) | st.integers(1, 100)),
        "starts": draw(st.integers(1, symbols)),
        "steps": (low, high),
        "noise": draw(st.sampled_from([0, 20, 100])) if high > 1 else 0,
        "distractors": draw(st.sampled_from([0, 10, 100])),
        "quiet": draw(st.integers(1, 20)),
    }


VARIANTS: dict[str, Fields] = {
    "parity": classified(supervision=SUPERVISIONS),
    "even_pairs": classified(supervision=SUPERVISIONS),
    "cycle_nav": classified(supervision=SUPERVISIONS, cycle=st.integers(2, 7) | st.integers(2, 300)),
    "mod_arithmetic": classified(
        query=QUERIES | st.just("equals"),
        supervision=SUPERVISIONS,
        modulus=MODULI,
        operators=st.sampled_from(["+-*", "+-"]),
    ),
    "bucket_sort": transduced(num_symbols=SYMBOLS),
    "reverse_string": marked(num_symbols=SYMBOLS),
    "stack_manipulation": marked(
        num_symbols=st.integers(2, 6) | st.integers(2, 100),
        push=st.integers(1, 5) | st.just(0),
        pop=st.integers(1, 5),
        reads=st.sampled_from(["bottom_up", "top_down"]),
        end=st.sampled_from(["none", "token"]),
        every_length=EVERY,
    ).filter(lambda fields: not fields["every_length"] or fields["decode"] == "parallel"),
    "odds_first": marked(num_symbols=SYMBOLS, first=st.sampled_from(["odd", "even"])),
    "repetition": marked(num_symbols=SYMBOLS, copies=st.integers(1, 8)),
    "duplicate_string": marked(num_symbols=SYMBOLS, copies=st.integers(1, 8)),
    "compression": marked(num_symbols=SYMBOLS, copies=st.integers(1, 8)),
    "missing_duplicate": classified(
        num_symbols=SYMBOLS, hole=st.sampled_from(["second", "either"]), every_length=EVERY
    ),
    "set": marked(num_symbols=SYMBOLS),
    "majority": classified(
        supervision=SUPERVISIONS,
        num_symbols=st.integers(2, 6) | st.integers(2, 100),
        tie=st.sampled_from(["smallest", "unique"]),
    ),
    "majority_count": classified(supervision=SUPERVISIONS, num_symbols=st.integers(2, 6) | st.integers(2, 100)),
    "binary_addition": transduced(padding=st.sampled_from(["zeros", "none"]), every_length=EVERY),
    "binary_multiplication": transduced(padding=st.sampled_from(["zeros", "none"]), every_length=EVERY),
    "compute_sqrt": transduced(),
    "word_problem": products(),
    "regular": classified(
        supervision=SUPERVISIONS,
        negatives=NEGATIVES,
        pattern=PATTERNS,
        table=st.just(""),
        alphabet=st.sampled_from(["", "abc", "zcab"]),
        **NO_FILE,
    )
    | classified(
        supervision=SUPERVISIONS,
        negatives=NEGATIVES,
        pattern=st.sampled_from(["", "a*b"]),
        table=TABLES,
        alphabet=st.sampled_from(["", "yx10bza"]),
        **NO_FILE,
    ),
    "random_dfa": classified(
        supervision=SUPERVISIONS,
        negatives=NEGATIVES,
        automaton=st.integers(0, 1000),
        num_states=st.integers(2, 12),
        num_symbols=st.integers(2, 4),
    ),
    "mlregtest": classified(
        supervision=SUPERVISIONS,
        negatives=st.sampled_from(["uniform", "border"]),
        language=st.sampled_from(
            ["04.04.SL.4.1.1", "04.03.TcoSL.2.1.8", "04.04.Zp.3.1.6", "16.07.TLTT.2.3.9", "64.64.PT.2.1.0"]
        ),
        test=st.sampled_from(["random", "adversarial"]),
    ),
    **{name: classified(language=st.sampled_from(find_task(name).languages)) for name in FLARE[1:]},
    "flare_regular": classified(
        supervision=SUPERVISIONS,
        negatives=st.sampled_from(["edits", "uniform", "one_edit", "border"]),
        members=st.just("uniform"),
        language=st.sampled_from(find_task("flare_regular").languages),
    )
    | classified(
        supervision=SUPERVISIONS,
        negatives=st.just("edits"),
        members=st.just("walks"),
        language=st.sampled_from(find_task("flare_regular").languages),
    ),
    "grammar": classified(supervision=SUPERVISIONS, grammar=st.sampled_from(sorted(LANGUAGES_BY_GRAMMAR))),
    "flip_flop": classified(supervision=SUPERVISIONS, ignore=st.integers(0, 99), undo=st.just(0), silence=st.booleans())
    | classified(supervision=SUPERVISIONS, ignore=st.integers(0, 49), undo=st.integers(1, 50), silence=st.booleans()),
    "dyck": classified(
        supervision=SUPERVISIONS,
        kinds=st.integers(2, 4),
        depth=st.integers(2, 64),
        ask=st.just("close"),
        nesting=st.sampled_from(["uniform", "deep"]),
    )
    | classified(
        supervision=SUPERVISIONS,
        kinds=st.integers(2, 4),
        depth=st.just(1),
        ask=st.just("close"),
        nesting=st.just("uniform"),
    )
    | classified(kinds=st.integers(1, 4), depth=st.integers(1, 64), ask=st.just("valid"), nesting=st.just("uniform")),
    "counter_language": classified(
        supervision=SUPERVISIONS,
        language=st.sampled_from(["anbn", "anbncn"]),
        near=st.integers(1, 64),
        misordered=st.integers(0, 100) | st.sampled_from([0, 100]),
    ),
    "induction_heads": classified(num_symbols=SYMBOLS),
    "k_hop": classified(
        supervision=SUPERVISIONS,
        num_symbols=st.integers(3, 6) | st.integers(3, 300),
        hops=st.tuples(st.integers(0, 12), st.integers(0, 64)).map(lambda hops: tuple(sorted(hops))),
    ),
    "needle": classified(
        num_values=SYMBOLS,
        num_noise=st.integers(1, 100),
        span=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda span: tuple(sorted(span))),
    ),
    "selective_copying": marked(
        num_symbols=SYMBOLS, data=st.integers(1, 20), noise=st.sampled_from(["anywhere", "before"])
    ),
    "mqar": associations(),
    "hidden_states": hidden(),
    "state_recall": classified(bits=st.integers(6, 12) | st.integers(6, 40), variables=st.integers(3, 6)),
    "qa_places": st.just({}),
    "qa_times": st.fixed_dictionaries({"things": st.integers(3, 24)}),
    "qa_shapes": st.fixed_dictionaries({"things": st.integers(3, 24)}),
    "mod_arithmetic_brackets": classified(
        query=QUERIES | st.just("equals"), modulus=MODULI, operators=st.sampled_from(["+-*", "+-"])
    ),
    "formula_value": classified(),
    "mano": classified(modulus=PRIMES, operators=st.just("+-*")) | classified(modulus=MODULI, operators=st.just("+-")),
    "depo": classified(num_nodes=st.integers(3, 20) | st.integers(3, 300), steps=st.integers(1, 40)),
    "brevo": transduced(num_nodes=st.integers(3, 20) | st.integers(3, 300)),
    "reachability": classified(num_nodes=st.integers(8, 20) | st.integers(8, 300)),
    "solve_equation": classified(query=MARKS, modulus=MODULI, operators=st.just("+-"), every_length=EVERY)
    | classified(query=MARKS, modulus=PRIMES, operators=st.just("+-*"), every_length=EVERY),
}
"""The fields of a task, by its name."""

SPEC: dict[str, tuple[int, int, str]] = {
    "parity": (3, 2, "regular"),
    "even_pairs": (3, 2, "regular"),
    "grammar": (5, 2, "context_free"),
    "cycle_nav": (9, 5, "regular"),
    "mod_arithmetic": (10, 5, "regular"),
    "bucket_sort": (11, 10, "context_sensitive"),
    "reverse_string": (12, 10, "context_free"),
    "stack_manipulation": (11, 4, "context_free"),
    "odds_first": (12, 10, "context_sensitive"),
    "repetition": (12, 10, "context_sensitive"),
    "duplicate_string": (4, 2, "context_sensitive"),
    "compression": (17, 15, "context_sensitive"),
    "missing_duplicate": (11, 9, "context_sensitive"),
    "set": (128, 126, "none"),
    "majority": (64, 63, "counter"),
    "majority_count": (64, 63, "counter"),
    "binary_addition": (5, 3, "context_sensitive"),
    "binary_multiplication": (5, 3, "context_sensitive"),
    "compute_sqrt": (3, 2, "context_sensitive"),
    "word_problem": (121, 120, "regular"),
    "regular": (5, 2, "regular"),
    "random_dfa": (5, 2, "regular"),
    "mlregtest": (7, 2, "regular"),
    "flare_regular": (5, 2, "regular"),
    "flare_context_free": (6, 2, "context_free"),
    "flare_context_sensitive": (6, 2, "context_sensitive"),
    "flip_flop": (6, 2, "regular"),
    "dyck": (5, 2, "context_free"),
    "counter_language": (5, 2, "counter"),
    "induction_heads": (18, 16, "regular"),
    "k_hop": (14, 5, "regular"),
    "needle": (28, 10, "regular"),
    "selective_copying": (19, 16, "none"),
    "mqar": (130, 64, "none"),
    "hidden_states": (72, 61, "regular"),
    "state_recall": (15, 2, "regular"),
    "qa_places": (23, 8, "none"),
    "qa_times": (16, 2, "none"),
    "qa_shapes": (19, 2, "none"),
    "mod_arithmetic_brackets": (12, 5, "context_free"),
    "solve_equation": (14, 5, "context_free"),
    "formula_value": (6, 2, "context_free"),
    "mano": (27, 23, "context_free"),
    "depo": (137, 128, "none"),
    "brevo": (130, 128, "none"),
    "reachability": (68, 2, "none"),
}
"""Symbols in the vocabulary, possible answers, level."""

PEOPLE = "mary john sandra daniel anna peter emma tom"
PLACES = "kitchen garden office bathroom hallway bedroom cellar attic"
EVENTS = "breakfast walk lesson lunch swim concert dinner dance"
SHAPES = "circle square triangle star cross heart moon cube"
HIDDEN = "PAD . # a b c #0 a0 a1 b0 b1 c0"
MORE_EVENTS = "meeting game party film race class picnic nap bath flight exam speech tour parade trial wedding"
MORE_SHAPES = "arrow ring cone sphere oval diamond pentagon hexagon octagon pyramid prism spiral arch leaf kite bar"
VOCABULARIES: list[tuple[str, dict[str, Any], str]] = [
    ("stack_manipulation", {}, "PAD ACT POP ST1 ST2 ST3 ST4 PS1 PS2 PS3 PS4"),
    ("stack_manipulation", {"end": "token"}, "PAD ACT POP ST1 ST2 ST3 ST4 PS1 PS2 PS3 PS4 END"),
    ("odds_first", {}, "PAD ACT 0 1 2 3 4 5 6 7 8 9"),
    ("repetition", {}, "PAD ACT 0 1 2 3 4 5 6 7 8 9"),
    ("duplicate_string", {}, "PAD ACT 0 1"),
    ("compression", {}, "PAD ACT 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14"),
    ("missing_duplicate", {}, "PAD MIS 0 1 2 3 4 5 6 7 8"),
    ("missing_duplicate", {"num_symbols": 2, "every_length": True}, "PAD MIS 0 1 EMPTY"),
    ("set", {"num_symbols": 4}, "PAD ACT 0 1 2 3"),
    ("majority", {"num_symbols": 4}, "PAD 1 2 3 4"),
    ("majority_count", {"num_symbols": 4}, "PAD 1 2 3 4"),
    ("binary_addition", {}, "PAD 0 1 + END"),
    ("binary_multiplication", {}, "PAD 0 1 * END"),
    ("compute_sqrt", {}, "PAD 0 1"),
    ("word_problem", {"group": "S3"}, "PAD 012 021 102 120 201 210"),
    ("word_problem", {"group": "Z3"}, "PAD 0 1 2"),
    ("word_problem", {"group": "D3", "tokens_per": 2}, "PAD r0 r1 r2 s0 s1 s2 ."),
    ("word_problem", {"group": "Z2xZ3", "reveal": 9}, "PAD 0|0 0|1 0|2 1|0 1|1 1|2 ?"),
    ("word_problem", {"group": "Z3", "observe": "image"}, "PAD 0 1 2 @0 @1 @2"),
    ("word_problem", {"group": "D3", "observe": "source", "reveal": 9}, "PAD r0 r1 r2 s0 s1 s2 ? @0 @1 @2"),
    ("word_problem", {"group": "A5"}, " ".join(["PAD", *elements("A5")])),
    ("word_problem", {"group": "S5", "inputs": "generators"}, " ".join(["PAD", *elements("S5")])),
    ("mlregtest", {}, "PAD a b c d NO YES"),
    ("mlregtest", {"language": "16.04.TSL.2.1.0"}, "PAD a b c d e f g h i j k l m n o p NO YES"),
    *(
        (name, {"language": language}, f"PAD {ALPHABETS[language]} NO YES")
        for name in FLARE
        for language in find_task(name).languages
    ),
    ("flip_flop", {}, "PAD w r i 0 1"),
    ("flip_flop", {"undo": 9}, "PAD w r i 0 1 u"),
    ("dyck", {}, "PAD ( ) [ ]"),
    ("dyck", {"ask": "valid", "kinds": 4}, "PAD ( ) [ ] { } < > NO YES"),
    ("counter_language", {}, "PAD a b NO YES"),
    ("counter_language", {"language": "anbncn"}, "PAD a b c NO YES"),
    ("induction_heads", {"num_symbols": 3}, "PAD MARK 0 1 2"),
    ("k_hop", {"num_symbols": 3, "hops": (0, 2)}, "PAD _ 0 1 2 h0 h1 h2"),
    ("needle", {"num_values": 2, "num_noise": 3}, "PAD ? v0 v1 n0 n1 n2"),
    ("selective_copying", {"num_symbols": 3}, "PAD ACT _ 0 1 2"),
    ("state_recall", {"bits": 3, "variables": 3}, "PAD ? 0 1 a b c i0 i1 i2"),
    ("mqar", {"num_keys": 3, "num_values": 2, "pairs": 2}, "PAD _ k0 k1 k2 v0 v1"),
    ("hidden_states", {"symbols": 3, "ambiguous": 2, "copies": 2, "starts": 2, "grammar": 1}, HIDDEN),
    ("qa_places", {}, f"PAD . ? where is went to {PEOPLE} {PLACES}"),
    ("qa_times", {}, f"PAD . ? was before after yes no {EVENTS}"),
    ("qa_shapes", {}, f"PAD . ? the is left-of right-of above below yes no {SHAPES}"),
    ("qa_times", {"things": 3}, "PAD . ? was before after yes no breakfast walk lesson"),
    ("qa_times", {"things": 24}, f"PAD . ? was before after yes no {EVENTS} {MORE_EVENTS}"),
    ("qa_shapes", {"things": 24}, f"PAD . ? the is left-of right-of above below yes no {SHAPES} {MORE_SHAPES}"),
    ("mod_arithmetic_brackets", {}, "PAD + - * = ( ) 0 1 2 3 4"),
    ("formula_value", {}, "PAD AND OR NOT 0 1"),
    ("mano", {"modulus": 5}, "PAD + - * 0 1 2 3 4"),
    ("depo", {"num_nodes": 3, "steps": 2}, "PAD n0 n1 n2 h1 h2"),
    ("brevo", {"num_nodes": 3}, "PAD ? n0 n1 n2"),
    ("reachability", {"num_nodes": 8}, "PAD ? n0 n1 n2 n3 n4 n5 n6 n7 NO YES"),
    ("solve_equation", {}, "PAD ACT + - * = ( ) x 0 1 2 3 4"),
]
"""All symbols in the order of their tokens, where they are few."""


def variants(name: str) -> st.SearchStrategy[Task]:
    """A task with any settings."""
    return VARIANTS[name].map(lambda fields: find_task(name)(**fields))
