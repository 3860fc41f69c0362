"""The frequencies of strings of the first seven tasks, and of the halves of the others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.stack_manipulation import StackManipulation
from support.oracles import ORACLES
from support.oracles_automata import is_member, nest


def strings(task: Task, length: int, *, rows: int = 20_000, seed: int = 1) -> list[list[int]]:
    """Many strings of one length, which is the number of their symbols."""
    draw = Draw(seed=seed, split="train", rows_B=torch.arange(rows))
    return task.sample(draw, torch.full((rows,), length), task.positions(length)).tokens_BL[:, :length].tolist()


def spelled_out(task: Task, length: int) -> list[list[str]]:
    vocab = task.vocab
    return [[vocab[token] for token in row] for row in strings(task, length)]


def assert_share(counted: int, of: int, p: float) -> None:
    """Five standard deviations."""
    assert abs(counted - of * p) <= 5 * (of * p * (1 - p)) ** 0.5, (counted, of, p)


def assert_uniform(found: Sequence[object], num: int) -> None:
    counts = Counter(found)
    assert len(counts) == num
    for count in counts.values():
        assert_share(count, len(found), 1 / num)


HIDDEN = str.maketrans("01", "##")
UNIFORM = ["parity", "even_pairs", "cycle_nav", "mod_arithmetic", "bucket_sort", "reverse_string", "stack_manipulation"]
UNIFORM += ["odds_first", "repetition", "duplicate_string", "compression", "majority_count"]


@pytest.mark.parametrize("name", UNIFORM)
def test_neighbouring_symbols_are_uniform_and_independent(name: str) -> None:
    """Five standard deviations for every pair of symbols at two neighbouring places of a string of ten or eleven."""
    task = replace(find_task(name)(), count="input", query="none")
    if name == "majority_count":
        task = replace(task, num_symbols=7)
    (length,) = task.legal_lengths(10, 11)[-1:]
    tokens = strings(task, length)
    if name == "stack_manipulation":  # symbols lie densely only in the initial stack, operations at the end
        tokens = [row[:1] + row[-1:] for row in tokens if row[-1] in range(7, 11)]
    step = 2 if name == "mod_arithmetic" else 1
    for places in {(0, 1), (0, step), (len(tokens[0]) - 1 - step, len(tokens[0]) - 1)}:
        num = [len({row[place] for row in tokens}) for place in places]
        assert_uniform([tuple(row[place] for place in places) for row in tokens], num[0] * num[1])


@pytest.mark.parametrize(("push", "pop"), [(1, 1), (3, 1), (1, 4), (0, 1)])
def test_initial_stacks_are_uniform_in_size_and_operations_follow_their_weights(push: int, pop: int) -> None:
    task, size = StackManipulation(count="input", push=push, pop=pop), 9
    words = spelled_out(task, size)
    assert_uniform([sum(symbol.startswith("ST") for symbol in word) for word in words], size - 1)
    free = [after for word in words for before, after in pairwise(word[:-1]) if before.startswith("P")]
    assert_share(sum(symbol.startswith("PS") for symbol in free), len(free), push / (push + pop))


@pytest.mark.parametrize(("hole", "places"), [("second", range(5, 10)), ("either", range(10))])
def test_the_missing_symbol_lies_anywhere(hole: str, places: range) -> None:
    found = [word.index("MIS") for word in spelled_out(find_task("missing_duplicate")(count="input", hole=hole), 10)]
    assert set(found) == set(places)
    assert_uniform(found, len(places))


@pytest.mark.parametrize("misordered", [0, 20, 75, 100])
@pytest.mark.parametrize("language", ["anbn", "anbncn"])
def test_half_of_the_strings_are_members_and_of_the_others_so_many_are_sorted(language: str, misordered: int) -> None:
    letters = language.replace("n", "")
    words = spelled_out(find_task("counter_language")(count="input", language=language, misordered=misordered), 12)
    members = sum(is_member(word, letters) for word in words)
    assert_share(members, len(words), 1 / 2)
    assert_share(sum(word == sorted(word) for word in words) - members, len(words), (100 - misordered) / 200)


def test_letters_move_up_to_the_number_asked_for_and_never_all_of_a_block() -> None:
    for near, block, most in [(1, 6, 1), (4, 6, 4), (64, 6, 5), (64, 2, 1)]:
        words = spelled_out(find_task("counter_language")(count="input", near=near, misordered=0), 2 * block)
        assert_uniform([word.count("a") for word in words if word.count("a") != block], 2 * most)


@pytest.mark.parametrize("kinds", [1, 2, 4])
def test_half_of_the_strings_are_balanced(kinds: int) -> None:
    words = spelled_out(find_task("dyck")(count="input", ask="valid", kinds=kinds), 12)
    assert_share(sum(nest(word, depth=8) == [] for word in words), len(words), 1 / 2)


def test_half_of_the_faults_keep_the_number_of_each_kind() -> None:
    """Nearly all strings of this length have two closing brackets of different kinds to exchange."""
    words = spelled_out(find_task("dyck")(count="input", ask="valid", kinds=2), 40)
    unbalanced = [word for word in words if nest(word, depth=8) != []]
    assert_share(sum(word.count("(") == word.count(")") for word in unbalanced), len(unbalanced), 1 / 2)


@pytest.mark.parametrize(("depth", "size", "balanced", "dipping"), [(2, 8, 8, 6), (8, 8, 14, 6), (8, 4, 2, 4)])
def test_strings_of_one_kind_are_uniform(depth: int, size: int, balanced: int, dipping: int) -> None:
    words = spelled_out(find_task("dyck")(count="input", ask="valid", kinds=1, depth=depth), size)
    for found, num in (True, balanced), (False, dipping):
        assert_uniform(["".join(word) for word in words if (nest(word, depth=depth) == []) == found], num)


def test_prefixes_with_open_brackets_are_uniform() -> None:
    words = spelled_out(find_task("dyck")(count="input", depth=2), 4)
    assert_uniform(["".join(word) for word in words], 2 * 2**3)  # ()(( and (()( with kinds for three pairs


def test_instructions_are_ignored_as_often_as_asked_for() -> None:
    inner = [
        word[place] for word in spelled_out(find_task("flip_flop")(count="input", ignore=60), 9) for place in (2, 6)
    ]
    for instruction, p in {"i": 0.6, "w": 0.2, "r": 0.2}.items():
        assert_share(inner.count(instruction), len(inner), p)


def test_writes_are_undone_as_often_as_asked_for() -> None:
    task = find_task("flip_flop")(count="input", ignore=20, undo=30)
    inner = [word[place] for word in spelled_out(task, 9) for place in (2, 6)]
    for instruction, p in {"i": 0.2, "u": 0.3, "w": 0.25, "r": 0.25}.items():
        assert_share(inner.count(instruction), len(inner), p)
    assert (task.level, task.demand, task.tracks_state) == ("context_free", "nesting", False)
    usual = find_task("flip_flop")()
    assert (usual.level, usual.demand, usual.tracks_state) == ("regular", "star-free", True)


@pytest.mark.parametrize(("span", "places"), [((0, 100), range(11)), ((20, 50), range(2, 6)), ((33, 38), range(3, 4))])
def test_the_needle_lies_anywhere_in_its_span(span: tuple[int, int], places: range) -> None:
    words = spelled_out(find_task("needle")(count="input", span=span), 12)
    found = [next(i for i, symbol in enumerate(word) if symbol.startswith("v")) for word in words]
    assert set(found) == set(places)
    assert_uniform(found, len(places))


def test_the_first_mark_lies_anywhere() -> None:
    assert_uniform([word.index("MARK") for word in spelled_out(find_task("induction_heads")(count="input"), 9)], 7)


def test_sums_split_anywhere_and_numbers_are_uniform() -> None:
    words = ["".join(word) for word in spelled_out(find_task("binary_addition")(count="input"), 8)]
    assert_uniform([word.index("+") for word in words], 6)
    assert_uniform([word for word in words if word.index("+") == 3], (2**3 - 1) * (2**4 - 1))


@pytest.mark.parametrize(("inputs", "num"), [("all", 6), ("generators", 2)])
def test_permutations_are_uniform(inputs: str, num: int) -> None:
    words = spelled_out(find_task("word_problem")(count="input", group="S3", inputs=inputs), 3)
    assert_uniform([tuple(word) for word in words], num**3)


def test_only_digits_tell_the_value_of_a_formula_and_all_that_fit_are_as_frequent() -> None:
    task = find_task("formula_value")(count="input")
    words = [" ".join(word) for word in spelled_out(task, 4)]  # NOT before a gate, or before a digit of one
    assert_share(sum(word[:3] == "NOT" for word in words), len(words), 1 / 2)
    for shape in ("NOT AND # #", "NOT OR # #", "AND # NOT #", "OR NOT # #"):
        alike = [word for word in words if word.translate(HIDDEN) == shape]
        values = [ORACLES["formula_value"](word.split())[0] for word in alike]
        assert_share(len(alike), len(words), 1 / 4 if shape[0] == "N" else 1 / 8)
        assert_share(values.count("1"), len(alike), 1 / 2)
        found = [[word for word, own in zip(alike, values, strict=True) if own == value] for value in "01"]
        assert sorted(len(set(fits)) for fits in found) == [1, 3]
        for fits in found:
            assert_uniform(fits, len(set(fits)))


@pytest.mark.parametrize("hops", [(0, 0), (2, 2), (1, 4)])
def test_symbols_and_hops_are_uniform_and_a_hop_misses_as_often_as_coins_say(hops: tuple[int, int]) -> None:
    task = find_task("k_hop")(count="input", hops=hops)
    words = spelled_out(task, 9)
    assert_uniform([tuple(word[:3]) for word in words], (hops[1] - hops[0] + 1) * 4 * 3)
    found = Counter(ORACLES["k_hop"](word)[0] for word in words)
    for answer, p in zip(task.answers, task.answer_law(9)[0, list(task.answers)], strict=True):
        assert_share(found[task.vocab[answer]], len(words), p)


def test_the_edges_of_a_graph_have_any_order_and_its_paths_cross_anywhere() -> None:
    """Four edges are two paths: 24 orders of them, each with both answers, with the nodes renamed in their order."""
    words = spelled_out(find_task("reachability")(count="input"), 11)
    assert_uniform([tuple(list(dict.fromkeys(word)).index(symbol) for symbol in word) for word in words], 48)


def test_degrees_tell_nothing_of_a_way() -> None:
    """Edges out of the start and into it, out of the end and into it."""
    task = find_task("reachability")(count="input")
    words = [[task.vocab[token] for token in row] for row in strings(task, 35, rows=1000)]
    ways = [ORACLES["reachability"](word) == ["YES"] for word in words]
    for place, end in (0, -2), (1, -2), (0, -1), (1, -1):
        degrees = [sum(word[i] == word[end] for i in range(place, 32, 2)) for word in words]
        for degree in range(4):
            alike = [way for way, own in zip(ways, degrees, strict=True) if own == degree]
            assert_share(sum(alike), len(alike), 1 / 2)


def test_edges_of_a_cycle_have_any_order_and_the_question_is_uniform() -> None:
    """Two cycles of three names, 3! orders of edges, three nodes to ask for, one or two steps."""
    words = spelled_out(find_task("depo")(count="input", num_nodes=3, steps=2), 8)
    assert_uniform([tuple(word) for word in words], 2 * 6 * 3 * 2)
