"""Automata from files in AT&T's format are those they were printed from; what is no language is refused."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.tasks import _mlregtest
from chomsky_ladder.tasks._att import from_att, open_att
from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._regex import from_pattern
from chomsky_ladder.tasks.regular import Regular
from support.cases import full

ODD = "0\t1\ta\ta\n1\t0\ta\ta\n0\t0\tb\tb\n1\t1\tb\tb\n1\n"
LANGUAGES = sorted(_mlregtest.names())


def printed(automaton: Automaton) -> str:
    """Print a minimal automaton as OpenFst does, without moves into dead states."""
    alive = {state for state, accepts in enumerate(automaton.accepting) if accepts}
    while True:
        more = {s for s, row in enumerate(automaton.transitions) if alive & set(row)} | alive
        if more == alive:
            break
        alive = more
    moves = [
        f"{state}\t{after}\t{symbol}\t{symbol}"
        for state, row in enumerate(automaton.transitions)
        for symbol, after in zip(automaton.alphabet, row, strict=True)
        if {state, after} <= alive
    ]
    return "\n".join([*moves, *(str(state) for state in alive if automaton.accepting[state])]) + "\n"


@pytest.mark.parametrize("language", [*LANGUAGES[::200], *map(full, LANGUAGES[1::20])])
def test_a_printed_language_is_read_as_itself(language: str) -> None:
    """Both are minimal and numbered breadth-first, so they are equal, symbol by symbol."""
    automaton = _mlregtest.language(language)
    assert from_att(printed(automaton), alphabet=automaton.alphabet) == automaton


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (ODD, "b*a(b*ab*a)*b*"),
        ("s s a\ns s b\ns t a\nt u b\nu", "(a|b)*ab"),  # two ways under one symbol, three columns, words for states
        ("0 1 <eps> <eps>\n1 1 a a\n1 2 ε\n2 2 b b\n2 0.0", "a*b*"),  # empty moves, and a weight of nothing
        ("0 1 a a 0\n\n1 0 b b 0\n0", "(ab)*"),
    ],
)
def test_ways_and_empty_moves(text: str, pattern: str) -> None:
    assert from_att(text, alphabet="") == from_pattern(pattern, alphabet="ab")


def test_it_accepts_what_the_file_says() -> None:
    """Against a walk over the lines, for all short strings."""
    automaton = from_att(ODD, alphabet="")
    moves = {(line.split()[0], line.split()[2]): line.split()[1] for line in ODD.splitlines() if "\t" in line}
    for size in range(8):
        for word in itertools.product("ab", repeat=size):
            state, place = "0", 0
            for symbol in word:
                state, place = moves[state, symbol], automaton.transitions[place]["ab".index(symbol)]
            assert automaton.accepting[place] == (state == "1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("0 1 a b\n1", "line 1: 'a' becomes 'b': that is a transducer, and no language"),
        ("0 1 a a 0.5\n1", "line 1: weight 0.5: a language has no weights but 0"),
        ("0 1 a a\n1 2.5", "line 2: weight 2.5"),
        ("0 1 a a x\n1", "line 1: 'x' is no weight"),
        ("0 1 a a 0 0\n1", "line 1: a line has at most five columns"),
        ("0 1 ab\n1", "line 1: a symbol is one visible character or <eps>, not 'ab'"),
        ("0 1 a\n", "has no state of acceptance: a line with nothing but its name"),
        ("0 1 a\n1", "has 1 symbols, and an alphabet 2..64"),
    ],
)
def test_what_is_no_language_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        from_att(text, alphabet="")
    assert str(refused.value).startswith("regular: ") and "\n" not in str(refused.value)


def test_symbols_that_do_not_occur_are_those_of_the_alphabet() -> None:
    assert from_att("0 0 a\n0", alphabet="ab") == from_pattern("a*", alphabet="ab")
    with pytest.raises(ValueError, match="'b', which the file has, is not in the alphabet 'ac'"):
        from_att(ODD, alphabet="ac")
    with pytest.raises(ValueError, match="must list each symbol once"):
        from_att(ODD, alphabet="abb")


def test_a_run_has_the_hash_and_not_the_place(tmp_path: Path) -> None:
    for name in ("one.att", "other.att"):
        (tmp_path / name).write_text(ODD)
    task = Regular(file=str(tmp_path / "one.att"))
    assert len(task.file_sha256) == 16 and task.dfa == from_pattern("b*a(b*ab*a)*b*", alphabet="ab")
    runs: list[Run] = [
        replace(preset_run("parity", "lstm", protocol="quick"), task=Regular(file=str(tmp_path / name)))
        for name in ("one.att", "other.att")
    ]
    assert runs[0].run_id == runs[1].run_id
    (tmp_path / "other.att").write_text(ODD + "0\n")
    with pytest.raises(ValueError, match=r"has another automaton now than file_sha256="):
        Regular(file=str(tmp_path / "other.att"), file_sha256=task.file_sha256)
    (tmp_path / "one.att").unlink()
    open_att.cache_clear()  # as in another process
    kept = Regular(file=task.file, file_sha256=task.file_sha256)  # of a record
    with pytest.raises(ValueError, match="has gone"):
        _ = kept.dfa
    with pytest.raises(ValueError, match="there is no file"):
        Regular(file=task.file)


def test_one_language_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "odd.att").write_text(ODD)
    with pytest.raises(ValueError, match="leave one out"):
        Regular(file=str(tmp_path / "odd.att"), table="a: x>a; accept a")
    with pytest.raises(ValueError, match="the hash of a file, which is not given"):
        Regular(file_sha256="0" * 16)
