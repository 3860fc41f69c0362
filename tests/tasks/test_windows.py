"""A window tells what a machine finds that looks for it symbol by symbol, and hard settings ask for more."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.dyck import Dyck
from chomsky_ladder.tasks.flip_flop import FlipFlop
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.majority import Majority
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.windows import windowed
from support.cases import full

LONGEST = (225, 256)


def strings(task: Classification, size: int, count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return task.examples(Draw(seed=0, split="test", rows_B=torch.arange(count)), torch.full((count,), size), size)


def told_by_flip_flop(symbols: list[str]) -> str:
    for place in range(len(symbols) - 2, -1, -1):
        if symbols[place] in "wr":
            return symbols[place + 1]
    return "PAD"


def told_by_dyck(symbols: list[str]) -> str:
    owed = 0
    for symbol in reversed(symbols):
        if symbol in "([":
            if not owed:
                return {"(": ")", "[": "]"}[symbol]
            owed -= 1
        else:
            owed += 1
    return "PAD"


@pytest.mark.parametrize(
    ("task", "told"),
    [(FlipFlop(silence=True), told_by_flip_flop), (Dyck(depth=64, nesting="deep"), told_by_dyck)],
    ids=["flip_flop", "dyck"],
)
@pytest.mark.parametrize("window", [16, 30])
def test_a_window_tells_what_its_symbols_do(
    task: Classification, told: Callable[[list[str]], str], window: int
) -> None:
    x_BL, _ = strings(task, 61)
    tail_BW = x_BL[:, -window:]
    want = [told([task.vocab[token] for token in row]) for row in tail_BW.tolist()]
    assert [task.vocab[token] for token in task.told_by_end(tail_BW).tolist()] == want
    assert len(set(want)) == 3, "both answers, and nothing"


def test_what_the_whole_string_tells_is_the_answer() -> None:
    for task in (FlipFlop(silence=True), Dyck(depth=64, nesting="deep"), Majority(num_symbols=2)):
        assert windowed(task, (39, 40), window=40) == 1.0


@pytest.mark.parametrize(
    ("usual", "harder", "most"),
    [(FlipFlop(), FlipFlop(silence=True), 0.56), full(Dyck(depth=64), Dyck(depth=64, nesting="deep"), 0.71)],
    ids=["flip_flop", "dyck"],
)
def test_a_window_suffices_no_more(usual: Classification, harder: Classification, most: float) -> None:
    usually, now = windowed(usual, LONGEST, window=31), windowed(harder, LONGEST, window=31)
    assert usually is not None and now is not None and now < most < 0.9 < usually


def test_no_floor_is_made_up() -> None:
    assert windowed(Parity(), LONGEST, window=31) is None
    assert windowed(Dyck(ask="valid"), LONGEST, window=31) is None
    assert windowed(FlipFlop(undo=10), LONGEST, window=31) is None


def test_deep_strings_are_well_nested_and_their_answers_lie_deep() -> None:
    task = Dyck(depth=64, nesting="deep")
    for size in (1, 2, 3, 9, 40):
        x_BL, answer_B = strings(task, size, 256)
        assert (task.answer(x_BL, torch.full((256,), size)) == answer_B).all()
        for row in x_BL.tolist():
            open_ones: list[int] = []
            for token in row:
                if token % 2:
                    open_ones.append(token)
                else:
                    assert open_ones.pop() == token - 1
            assert open_ones, "what is asked is open"
    depth_BL = task.state(strings(task, 240)[0])[..., 1]
    assert depth_BL.max() == 64 and (depth_BL.amax(1) - depth_BL[:, -1]).double().mean() > 30


def test_a_stack_of_eight_brackets_does_not_hold_deep_strings() -> None:
    found = {}
    for nesting in ("uniform", "deep"):
        task = Dyck(depth=64, nesting=nesting)
        x_BL, answer_B = strings(task, 240, 512)
        right = 0.0
        for row, answer in zip(x_BL.tolist(), answer_B.tolist(), strict=True):
            top: list[int] = []
            for token in row:
                top = [*top, token][-8:] if token % 2 else top[:-1]
            right += (top[-1] + 1 == answer) if top else 0.5
        found[nesting] = right / 512
    assert found["uniform"] > 0.93 and found["deep"] < 0.75


def test_silence_lies_behind_a_pair_drawn_uniformly() -> None:
    task = FlipFlop(ignore=0, silence=True)
    x_BL, _ = strings(task, 41, 2048)
    instructions_BP = x_BL[:, :-1:2]
    spoken_B = (instructions_BP != 3).sum(1)
    assert spoken_B.min() == 1 and spoken_B.max() == 20
    assert torch.histc(spoken_B.double(), 4, 1, 21).div(2048).sub(0.25).abs().max() < 0.04
    assert (instructions_BP.eq(3).int().diff(dim=1) >= 0).all(), "once silent, it stays so"


@pytest.mark.parametrize(
    "settings", [{"nesting": "deep", "ask": "valid"}, {"nesting": "deep", "depth": 1}], ids=["valid", "flat"]
)
def test_a_deep_nesting_needs_depth_and_a_bracket_to_close(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nesting='deep' is of ask='close' alone"):
        Dyck(**settings)
