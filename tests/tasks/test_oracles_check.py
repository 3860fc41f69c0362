"""The check of `test_oracles` finds one wrong value of every kind, in every task."""

from dataclasses import fields

import pytest

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Task
from support.oracle_checks import STORIES, check, sample, settings
from support.oracle_variants import VARIANTS
from support.oracles import LANGUAGES, MACHINES

PARTS = ["token", "padding", "target", "unscored", "scored", "length", "prompt"]
EVERY_CASE = [(name, part) for name in VARIANTS for part in PARTS]
EVERY_CASE += [(name, "state") for name in MACHINES]
EVERY_CASE += [(name, "blank") for name in ["bucket_sort", "reverse_string", "set", "binary_addition", "compute_sqrt"]]


OUTSIDE: dict[str, list[str]] = {
    "stack_manipulation": ["POP PS1", "ST1 ST2", "ST1 PS1 ST1"],
    "missing_duplicate": ["1 2 1", "MIS 1 0 1", "0 1 0 1", "0 1 1 MIS", "0 MIS 0 MIS"],
    "selective_copying": ["_ 1 2", "1 1 1 1 1 1 1 1 1"],
    "majority": ["0 1", "64"],
    "binary_addition": ["1 +", "+ 1", "0 + 1", "1 + 0 0", "1 + 1 + 1"],
    "binary_multiplication": ["1 + 1", "1 * 0"],
    "compute_sqrt": ["0", "0 0 0"],
    "mod_arithmetic_brackets": [
        "1 + 1",
        "( ( 1 ) )",
        "- ( 1 )",
        "( 1 + 1",
        "( 1 + 1 + 1 )",
        "1 1",
        "( 5 )",
        "- - 1",
        "( )",
    ],
    "solve_equation": ["x = x", "1 = 1", "x + 1 = 2", "( x + x ) = 2", "x =", "x = 5", "( x ) 1"],
    "word_problem": ["01234 0123", "00000", "01234 ?", "01234 .", "01234 @0"],
    "flip_flop": ["w 0 r 1 r", "r 0 r", "i 0 r", "w 0", "w 0 w", "w r r", "w 0 1 0 r", "w 0 u 0 r"],
    "dyck": ["( ]", "( )", ")", "( ( ( ( ( ( ( ( (", "{"],
    "counter_language": ["a", "b b a a", "a b a b a b a b", "a b b a a b", "c c"],
    "induction_heads": ["MARK MARK", "1 2 MARK", "MARK 1 2", "MARK MARK 1 MARK", "1 MARK MARK"],
    "k_hop": ["0 1", "h1 0 0", "h1 4", "h1 h1", "h9 0 1"],
    "needle": ["n1 n2 ?", "v1 v1 ?", "v1 n1", "v10 ?"],
    "mqar": ["k1 v1"],
    "hidden_states": ["g", "#", "a .", "a a", "a0", "a c ."],
    "qa_places": ["where is tom ?", "tom went to attic . where is anna ?", "tom went to tom . where is tom ?"],
    "qa_times": [
        "walk was before walk . was walk before walk ?",
        "walk was before swim . swim was before walk . was walk before swim ?",
        "walk was before swim . walk was before lunch . was swim before lunch ?",
        "walk was before swim . swim was before lunch . was swim before lunch ?",
        "walk was before swim . swim was after dance . was walk before dance ?",
    ],
    "qa_shapes": [
        "the star is above the moon . is the star left-of the moon ?",
        "the star is above the moon . the star is below the moon . is the star above the moon ?",
        "the star is above the moon . the moon is above the cube . is the cube below the moon ?",
        "the star is above the moon . is the star above the star ?",
    ],
    "regular": ["a c"],
    "random_dfa": ["c"],
    "mlregtest": ["a e"],
    "flare_regular": ["0 #"],
    "flare_context_free": ["0 PUSH"],
    "flare_context_sensitive": ["2"],
    "grammar": ["c"],
    "set": ["126"],
    "depo": [
        "n0 n1 n1 n0 h1 n0",
        "n0 n1 n1 n0 n2 n2 h1 n0",
        "n0 n1 n1 n2 n2 n0 h9 n0",
        "n0 n1 n1 n2 n2 n0 h1 n3",
        "n0 n1 n1 n2 n2 n1 h1 n0",
    ],
    "brevo": ["n0 n1 ? n0", "n0 n1 n1 n0 n0 n2 ? n0", "n0 n1 n1 n2 n0 n2 ? n2", "n0 n1 n2 n3 n4 n5 ? n0"],
    "reachability": ["n0 n1 ? n0 n1", "n0 n1 n1 n2 n3 n4 n4 n4 ? n0 n2", "n0 n1 n2 n3 n4 n5 n6 n7 ? n0 n1"],
    "formula_value": ["AND 0", "0 1", "NOT NOT 0", "AND 0 1 1", "2", "OR 1 NOT"],
}
"""Strings that the default task never draws."""


def last_answer_only(name: str) -> Task:
    """The default task, without answers for prefixes."""
    cls = find_task(name)
    return cls(**{field.name: "final" for field in fields(cls) if field.name == "supervision"})


@pytest.mark.parametrize(("name", "part"), EVERY_CASE)
def test_one_wrong_value_is_found(name: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = last_answer_only(name)
    high = 5 if name in STORIES else 40
    lengths, batch = sample(task, seed=0, split="train", start=0, rows=3, low=high - 1, high=high + 1, slack=2)
    check(task, lengths, batch)
    last, wrong = batch.length_B[1] - 1, task.answers[0]
    final = batch.scored_BL[1].nonzero()[-1, 0]
    other = task.answers[int(batch.targets_BL[1, final] == wrong)]
    match part:
        case "token":
            batch.tokens_BL[1, 0] = len(task.vocab)
        case "blank":
            batch.tokens_BL[1, last] = wrong
        case "padding":
            batch.tokens_BL[1, last + 1] = wrong
        case "target":
            batch.targets_BL[1, final] = other
        case "unscored":
            batch.targets_BL[1, 0] = wrong
        case "scored":
            batch.scored_BL[1, final] = False
        case "length":
            batch.length_B[1] += 1
        case "prompt":
            batch.prompt_B[1] -= 1
        case "state":
            state = task.state(batch.tokens_BL)
            state[1, last, 0] += -1 if state[1, last, 0] else 1
            monkeypatch.setattr(type(task), "state", lambda self, tokens_BL: state)
    with pytest.raises((AssertionError, IndexError)):
        check(task, lengths, batch)


@pytest.mark.parametrize("name", OUTSIDE)
def test_strings_of_no_language_are_found(name: str) -> None:
    task = find_task(name)()
    for string in OUTSIDE[name]:
        assert not LANGUAGES[name](string.split(), **settings(task)), string
