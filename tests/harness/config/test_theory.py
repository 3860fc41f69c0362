"""Proven results: every declaration has a name in the tables, and the results do not contradict each other."""

import re
from dataclasses import replace

import pytest

from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model, find_task
from chomsky_ladder.harness.config.theorems import OF_MODELS, RESULTS
from chomsky_ladder.harness.config.theory import DEMANDS, TRANSITIONS, known, verdict

REGULAR = ("star-free", "parity", "cyclic", "solvable", "non-solvable")


def test_models_and_tasks_declare_what_there_is() -> None:
    for name, (cls, *_) in all_models().items():
        assert known(cls().transition), name
    for name, (cls, *_) in all_tasks().items():
        assert cls().demand in {"", *DEMANDS}, name


def test_every_result_is_of_known_names_and_has_a_source() -> None:
    for (transition, demand), (word, why) in RESULTS.items():
        assert transition in TRANSITIONS and demand in DEMANDS and word in ("can", "cannot", "open")
        own = transition == "window" or demand == "recall" or demand == "nesting"  # arguments of a line
        assert own or re.search(r"\d{4}\.\d{5}|TC0|layers", why), (transition, demand, why)


def test_what_is_proven_of_one_model_is_of_a_model_there_is() -> None:
    for (name, transition, demand), (word, why) in OF_MODELS.items():
        assert find_model(name)().transition == transition and demand in DEMANDS and word in ("can", "cannot", "open")
        assert re.search(r"\d{4}\.\d{5}", why)
        assert verdict(transition, demand, model=name) == (word, why) != verdict(transition, demand)
    assert verdict("generalised delta", "parity", model="kda").word == "cannot"
    assert verdict("fixed linear", "majority", model="retention").word == "open", "its decays are below 1"
    assert verdict("reflection", "parity", model="kda").word == "can", "with eigenvalues below 0"


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("fixed diagonal", "diagonal"),
        ("diagonal", "signed diagonal"),
        ("signed diagonal", "complex diagonal"),
        ("projection", "reflection"),
        ("reflection", "reflections"),
        ("gated units", "lstm"),
        ("lstm", "stack"),
        ("lstm", "tape"),
        ("window", "attention"),
    ],
)
def test_what_is_part_of_another_can_no_more(smaller: str, larger: str) -> None:
    for demand in DEMANDS:
        words = verdict(smaller, demand).word, verdict(larger, demand).word
        assert words != ("can", "cannot"), demand


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_what_cannot_a_part_cannot_the_whole(transition: str) -> None:
    """S3 has swaps and a cycle of three in it, and A5 has cycles of three and five."""
    can = {demand: verdict(transition, demand).word == "can" for demand in REGULAR}
    assert can["solvable"] <= (can["parity"] and can["cyclic"])
    assert can["non-solvable"] <= can["cyclic"]
    assert verdict(transition, "parity").word != "cannot" or verdict(transition, "solvable").word == "cannot"


def test_what_is_known_best() -> None:
    assert verdict("diagonal", "parity").word == "cannot" and verdict("signed diagonal", "parity").word == "can"
    assert verdict("signed diagonal", "cyclic").word == "cannot" and verdict("complex diagonal", "cyclic").word == "can"
    assert verdict("complex diagonal", "non-solvable").word == verdict("attention", "non-solvable").word == "cannot"
    assert [verdict("lstm", demand).word for demand in (*REGULAR, "counter")] == ["can"] * 6
    assert verdict("gated units", "counter").word == "cannot" and verdict("lstm", "nesting").word == "cannot"
    assert verdict("stack", "nesting").word == "can"


def test_a_stack_of_several_kinds() -> None:
    assert verdict("diagonal + slstm", "parity").word == "can"
    assert verdict("attention + diagonal", "non-solvable").word == "cannot"
    assert verdict("attention + diagonal", "parity").word == "open"
    assert verdict("", "parity") == verdict("diagonal", "") and verdict("", "parity").word == "open"
    assert verdict("somebody's own", "parity").word == "open" and not known("somebody's own")


def test_a_declaration_follows_the_settings() -> None:
    models = {
        ("mamba", "eigenvalues", "signed"): "signed diagonal",
        ("delta_net", "eigenvalues", "signed"): "reflection",
        ("gated_delta_product", "eigenvalues", "signed"): "reflections",
        ("gated_delta_product", "num_householders", 3): "",
        ("xlstm", "ratio", "1:0"): "diagonal",
        ("xlstm", "ratio", "0:1"): "slstm",
        ("mamba3", "rotation", "none"): "diagonal",
        ("rnn", "activation", "relu"): "lstm",
        ("slice", "block_size", 1): "signed diagonal",
        ("hybrid", "pattern", "mamba,transformer"): "attention + diagonal",
        ("hybrid", "pattern", "mamba,hyena"): "",
        ("transformer", "window", 8): "window",
    }
    for (name, field, value), transition in models.items():
        assert find_model(name)(**{field: value}).transition == transition, (name, value)
    word_problem = find_task("word_problem")()
    assert [replace(word_problem, group=group).demand for group in ("S3", "A5", "S5")] == [
        "solvable",
        *["non-solvable"] * 2,
    ]
    cycles = {2: "parity", 3: "cyclic", 4: "", 5: "cyclic", 6: "cyclic", 8: ""}
    assert {size: find_task("cycle_nav")(cycle=size).demand for size in cycles} == cycles
    patterns = {"(aa)*": "parity", "(ab|ba)*": "star-free", "(aaa)*": "cyclic", "(aaaa)*": ""}
    regular = find_task("regular")
    assert {pattern: regular(pattern=pattern, alphabet="ab").demand for pattern in patterns} == patterns
    dyck = find_task("dyck")
    assert [dyck(depth=8).demand, dyck(depth=64).demand, dyck(depth=64, kinds=1, ask="valid").demand] == [
        *("star-free", "nesting", "counter")
    ]
