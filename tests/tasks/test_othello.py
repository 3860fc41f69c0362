"""The task of the next move: its layout, what it allows, its states, and how often what holds of random games."""

import math
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.tasks.base import PAD, Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.othello import Othello
from support.oracles_othello import Game

torch.set_num_threads(1)

ROWS = 2000
both_sizes = pytest.mark.parametrize("size", [8, 6])


def sample(task: Othello, lengths: list[int], *, width: int = 0, seed: int = 0) -> Batch:
    draw = Draw(seed=seed, split="train", rows_B=torch.arange(len(lengths)))
    return task.sample(draw, torch.tensor(lengths), width or max(map(task.positions, lengths)))


@lru_cache
def whole_games(size: int) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Whole games, what they allow, and the boards as the mover sees them."""
    task = Othello(size=size)
    batch = sample(task, [60] * ROWS, seed=4)
    return batch, task.allowed(batch.tokens_BL), task.state(batch.tokens_BL)


@both_sizes
def test_vocabulary(size: int) -> None:
    task = Othello(size=size)
    middle = {"d4", "e4", "d5", "e5"} if size == 8 else {"c3", "d3", "c4", "d4"}
    squares = [f"{column}{row}" for row in range(1, size + 1) for column in "abcdefgh"[:size]]
    assert list(task.squares) == squares
    assert list(task.vocab) == ["PAD", *(square for square in squares if square not in middle)]
    assert len(task.vocab) == {8: 61, 6: 33}[size] and task.answers == tuple(range(1, len(task.vocab)))


def test_other_boards_are_refused() -> None:
    with pytest.raises(ValueError, match="size must be 6 or 8, not 7"):
        Othello(size=7)


@both_sizes
def test_lengths(size: int) -> None:
    task = Othello(size=size)
    assert task.legal_lengths(1, 300) == tuple(range(2, 61)) and task.legal_lengths(61, 99) == ()
    assert [task.positions(length) for length in (2, 20, 60)] == [1, 19, size**2 - 5]
    assert task.own_lengths == (60, 60)


@pytest.mark.full
@both_sizes
def test_inputs_and_targets_are_the_moves_of_one_game(size: int) -> None:
    task = Othello(size=size)
    lengths = [2, 3, 17, 31, 40, 60, 60, 60] * 40
    batch = sample(task, lengths, width=62)
    ended = 0
    for row, length in enumerate(lengths):
        tokens, targets, scored = (part[row].tolist() for part in batch[:3])
        positions = int(batch.length_B[row])
        assert positions == task.positions(length) and int(batch.prompt_B[row]) == 1
        game, moves = Game(size), [*tokens[:1], *targets]
        for place in range(62):
            inside = place < positions
            assert tokens[place] == (moves[place] if inside else PAD)
            if game.moves and inside:
                assert task.vocab[tokens[place]] in game.moves
                game.play(task.vocab[tokens[place]])
            assert scored[place] == (inside and bool(game.moves)) == (targets[place] != PAD)
            assert not scored[place] or task.vocab[targets[place]] in game.moves
        ended += not all(scored[:positions])
    assert ended > 0
    whole = sample(task, [60] * len(lengths), width=62)
    for row, length in enumerate(lengths):
        assert torch.equal(
            batch.targets_BL[row, : min(length, size**2 - 4) - 1], whole.targets_BL[row, : min(length, size**2 - 4) - 1]
        )


@both_sizes
def test_what_is_allowed_and_the_boards(size: int) -> None:
    task = Othello(size=size)
    vocab = task.vocab
    batch, allowed_BLV, mover_BLS = (
        part[:60] if i else Batch(*(x[:60] for x in part)) for i, part in enumerate(whole_games(size))
    )
    black_BLS, black_moves_BL = task.state_as("black_white", batch.tokens_BL), task.black_moves(batch.tokens_BL)
    assert not allowed_BLV[..., PAD].any()
    for row, tokens in enumerate(batch.tokens_BL.tolist()):
        game = Game(size)
        for place, token in enumerate(tokens):
            if token != PAD:
                game.play(vocab[token])
            allowed = [vocab[token] for token in allowed_BLV[row, place].nonzero()[:, 0].tolist()]
            assert allowed == game.moves
            assert mover_BLS[row, place].tolist() == game.labels(game.viewer)
            assert black_BLS[row, place].tolist() == game.labels("B")
            assert bool(black_moves_BL[row, place]) == (game.viewer == "B")


@pytest.mark.full
def test_the_small_board_conforms_too() -> None:
    outcomes = {outcome.check: outcome.verdict for outcome in check(Othello(size=6))}
    assert set(outcomes.values()) <= {"ok", "skip"}
    assert outcomes["sampling never waits for the host"] == outcomes["constants are made once"] == "ok"


def test_passes_make_parity_a_poor_guess() -> None:
    """34 percent of games have a pass, and 27.5 percent give the 60th move to the player whose turn it is not."""
    task = Othello()
    batch, allowed_BLV, _ = whole_games(8)
    black_BL = task.black_moves(batch.tokens_BL)
    playing_BL = allowed_BLV.any(2)
    passed_B = ((black_BL[:, 1:] == black_BL[:, :-1]) & playing_BL[:, 1:]).any(1)
    assert float(passed_B.double().mean()) == pytest.approx(0.34, abs=5 * (0.34 * 0.66 / ROWS) ** 0.5)
    wrong = black_BL[:, 58][playing_BL[:, 58]].double().mean()  # 59 moves played: by parity it is white's turn
    assert float(wrong) == pytest.approx(0.275, abs=5 * (0.275 * 0.725 / ROWS) ** 0.5)


def test_floors_of_the_docstring() -> None:
    """The standard deviations of means of 2,000 games are .0017 nats, .0003, .00025 and .0007: three of them."""
    batch, allowed_BLV, state_BLS = whole_games(8)
    num = allowed_BLV.sum(2)[batch.scored_BL].double()
    left = (state_BLS == 0).sum(2)[batch.scored_BL].double()
    assert float(num.log().mean()) == pytest.approx(2.0101, abs=0.005)
    assert float((1 / num).mean()) == pytest.approx(0.1706, abs=0.0010)
    assert float(num.mean()) / 60 == pytest.approx(0.1435, abs=0.00075)
    assert float((num / left).mean()) == pytest.approx(0.409, abs=0.002)
    facts = {name: float(value) for name, value in Othello().facts.items()}
    assert facts["lowest_loss"] == pytest.approx(2.0101, abs=0.005)
    assert facts["highest_hit_rate"] == pytest.approx(0.1706, abs=0.0015)
    assert facts["legal_of_all_moves"] == pytest.approx(0.144, abs=0.0015)
    assert facts["legal_of_empty_squares"] == pytest.approx(0.409, abs=0.0025)


def test_majorities_of_the_docstring() -> None:
    _, _, state_BLS = whole_games(8)
    counts_SC = np.stack([(state_BLS == label).sum((0, 1)).numpy() for label in range(3)], 1)
    counts_LSC = np.stack([(state_BLS == label).sum(0).numpy() for label in range(3)], 2)
    total = counts_SC.sum()
    assert counts_SC[:, 0].sum() / total == pytest.approx(0.469, abs=0.001)
    assert counts_SC.max(1).sum() / total == pytest.approx(0.539, abs=0.002)
    assert counts_LSC.max(2).sum() / total == pytest.approx(0.622, abs=0.004)
    facts = Othello().facts
    for name, value in {
        "always_empty": 0.469,
        "commonest_of_square": 0.539,
        "commonest_of_square_and_ply": 0.622,
    }.items():
        assert float(facts[name]) == pytest.approx(value, abs=0.003)


@both_sizes
@pytest.mark.parametrize("score", ["tokens", "lengths"])
def test_floors_are_the_best_of_such_guesses(size: int, score: str) -> None:
    """The expected floors come from counting other games one by one."""
    task, lengths = Othello(size=size), [5, 20, 60]
    batch, allowed_BLV, _ = whole_games(size)
    legal: dict[int, Counter[tuple[int, int]]] = {}
    for length in lengths:
        places = allowed_BLV[:, : task.positions(length)].sum(0)
        legal[length] = Counter({(p, t): int(n) for (p, t), n in np.ndenumerate(places.numpy()) if t})
    scored = {length: int(batch.scored_BL[:, : task.positions(length)].sum()) for length in lengths}
    if score == "lengths":
        weight = {length: 1 / scored[length] / len(lengths) for length in lengths}
    else:
        weight = {length: 1 / sum(scored.values()) for length in lengths}
    guess: Counter[int] = Counter()
    by_place: Counter[tuple[int, int]] = Counter()
    for length in lengths:
        for (place, token), num in legal[length].items():
            guess[token] += num * weight[length]
            by_place[place, token] += num * weight[length]
    best_of_place = [max(by_place[place, t] for t in task.answers) for place in range(task.positions(60))]
    floors = task.floors(lengths, score=score)
    assert floors.s_rand == pytest.approx(sum(guess.values()) / len(task.answers), abs=0.002)
    assert floors.best_constant == pytest.approx(max(guess.values()), abs=0.01)
    assert floors.content_free == pytest.approx(sum(best_of_place), abs=0.01)
    assert floors.s_rand < floors.best_constant < floors.content_free < 1


def test_games_of_a_file_come_in_the_same_layout() -> None:
    task = Othello()
    batch = whole_games(8)[0]
    games_BP = torch.cat([batch.tokens_BL[:, :1], batch.targets_BL], 1)
    for width in (59, 64):
        again = task.batch_of(games_BP, torch.full((ROWS,), 60), width)
        assert torch.equal(again.tokens_BL[:, :59], batch.tokens_BL) and torch.equal(
            again.scored_BL[:, :59], batch.scored_BL
        )
        assert again.tokens_BL.shape == (ROWS, width) and not again.tokens_BL[:, 59:].any()


@both_sizes
def test_a_model_is_trained_and_scored_by_its_legal_moves(size: int, tmp_path: Path) -> None:
    run = Run(
        task=Othello(size=size),
        model=MambaConfig(d_model=8, num_blocks=1),
        train=Train(steps=3, batch=8, lengths=(60, 60)),
        eval=Eval(lengths=(60, 60), bins=(60,), extrapolate=(), test=32, validation=16, every=0),
    )
    result = execute(run, Exec(device="cpu", results=tmp_path), quiet=True)
    assert result["status"] == "done" and result["test"]["scaled"] is None
    assert result["test"]["hits"] <= result["test"]["accuracy"] < 0.6
    assert math.isclose(result["floors"]["s_rand"], Othello(size=size).floors([60]).s_rand)
