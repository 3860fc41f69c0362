"""The metrics of games: pairs held to a plain board, boundaries to every word spelt out, models made by hand."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.inside.games import (
    Accepts,
    Pairs,
    Walks,
    boundary,
    different_states,
    same_state,
    score,
    truth,
)
from chomsky_ladder.tasks.othello import Othello
from support.oracles_othello import Game

torch.set_num_threads(1)

TASK = Othello(size=6)
WALKS = Walks(count=4, depth=3, seed=1)
A, B, C = 1, 2, 3
Table = dict[int, dict[int, int]]  # state -> token -> state: what is not there is not accepted


def accepts_of(table: Table) -> Accepts:
    """The language of a table that starts in state 0; what it does not accept leaves it where it is."""

    def accepts(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        rows = []
        for string, length in zip(tokens_BL.tolist(), length_B.tolist(), strict=True):
            state = 0
            for token in string[:length]:
                state = table[state].get(token, state)
            rows.append([token in table[state] for token in range(4)])
        return torch.tensor(rows)

    return accepts


def pairs_of(*pairs: tuple[Sequence[int], Sequence[int]]) -> Pairs:
    longest = max(len(one) for one, _ in pairs)
    rows = [[[*pair[side], *[0] * (longest - len(pair[side]))] for pair in pairs] for side in (0, 1)]
    return Pairs(torch.tensor(rows), torch.tensor([len(one) for one, _ in pairs]))


# A corridor of four places, from 0 to 3: A leads to the right, B to the left. The model takes 3 for 1.
CORRIDOR: Table = {0: {A: 1}, 1: {A: 2, B: 0}, 2: {A: 3, B: 1}, 3: {B: 2}}
MERGED: Table = {0: {A: 1}, 1: {A: 2, B: 0}, 2: {A: 1, B: 1}}


def test_a_model_that_merges_two_places_scores_what_one_finds_by_hand() -> None:
    many = Walks(count=32, depth=2, seed=0)
    true, model = accepts_of(CORRIDOR), accepts_of(MERGED)
    # Places 0 and 2: B tells them apart, and so does A A, which the model accepts behind both.
    # Places 1 and 3: A, and B B; the model, to which they are one, sees neither.
    pairs = pairs_of(((A, B), (A, A)), ((A, B, A), (A, A, A)))
    assert [x.tolist() for x in boundary(pairs, true, model, many)] == [[2, 2], [1, 0]]
    assert [x.tolist() for x in boundary(pairs, model, true, many)] == [[1, 0], [1, 0]]
    # Place 2 by two ways: behind the second, through 3, the model believes in place 0 and no longer accepts B.
    same = pairs_of(((A, A, B, A), (A, A, A, B)))
    assert boundary(same, model, true, many)[0].tolist() == [1]
    assert boundary(same, true, model, many)[0].tolist() == [0]


def words_of(table: Table, start: Sequence[int], depth: int) -> set[tuple[int, ...]]:
    """Every suffix that the table accepts behind a string, by trying all."""
    accepts = accepts_of(table)
    found = {()}
    for length in range(1, depth + 1):
        for word in product((A, B, C), repeat=length):
            if word[:-1] in found:
                string = torch.tensor([[*start, *word[:-1]]])
                if accepts(string, torch.tensor([string.shape[1]]))[0, word[-1]]:
                    found.add(word)
    return found


def brute_force(
    walker: Table, judge: Table, one: Sequence[int], other: Sequence[int], depth: int
) -> tuple[int, int, set[tuple[int, ...]]]:
    """The size of the walker's boundary, straight from the definition, and how much of it is the judge's."""
    found = right = 0
    for a, b in ((one, other), (other, one)):
        mine, theirs = (words_of(walker, start, depth) for start in (a, b))
        alone = {word for word in mine - theirs if word[:-1] in mine & theirs}
        theirs_too = words_of(judge, a, depth) - words_of(judge, b, depth)
        found, right = found + len(alone), right + len(alone & theirs_too)
    return found, right, set()


def random_table(seed: int) -> Table:
    generator = torch.Generator().manual_seed(seed)
    after = torch.randint(0, 4, (4, 3), generator=generator).tolist()
    legal = (torch.rand(4, 3, generator=generator) < 0.7).tolist()
    return {
        state: {token: after[state][token - 1] for token in (A, B, C) if legal[state][token - 1]} for state in range(4)
    }


@pytest.mark.parametrize("seed", range(6))
def test_walks_find_the_boundary_of_the_definition(seed: int) -> None:
    walker, judge = random_table(seed), random_table(seed + 100)
    starts = [(A, B, A), (A, A, C), (C, B, C), (B, B, B)]
    pairs = [(one, other) for one, other in product(starts, starts) if one < other]
    found_P, right_P = boundary(
        pairs_of(*pairs), accepts_of(walker), accepts_of(judge), Walks(count=200, depth=3, seed=seed)
    )
    expected = [brute_force(walker, judge, one, other, 3)[:2] for one, other in pairs]
    assert list(zip(found_P.tolist(), right_P.tolist(), strict=True)) == expected


def played(tokens: Sequence[int]) -> Game:
    """The board after a game; an illegal move fails."""
    game = Game(6)
    for token in tokens:
        game.play(TASK.vocab[token])
    return game


def test_pairs_of_one_state_are_two_legal_games_to_one_board() -> None:
    pairs = same_state(TASK, length=60, pairs=40, walks=WALKS)
    lengths = pairs.length_P.tolist()
    for one, other, length in zip(*pairs.tokens_2PL.tolist(), lengths, strict=True):
        games = [played(tokens[:length]) for tokens in (one, other)]
        assert games[0].board == games[1].board and games[0].player == games[1].player != ""
        changed = [place for place in range(length) if one[place] != other[place]]
        assert len(changed) == 2 and changed[1] - changed[0] == 2
        assert not any(one[length:]) and not any(other[length:])
    assert len(set(lengths)) > 10 and max(lengths) + WALKS.depth <= 32


def test_pairs_of_two_states_are_legal_games_to_two_boards() -> None:
    pairs = different_states(TASK, length=60, pairs=40, walks=WALKS)
    for one, other, length in zip(*pairs.tokens_2PL.tolist(), pairs.length_P.tolist(), strict=True):
        games = [played(tokens[:length]) for tokens in (one, other)]
        assert games[0].labels(games[0].player) != games[1].labels(games[1].player)
        assert all(game.moves for game in games)


def test_the_rules_themselves_score_one_and_who_accepts_everything_compresses() -> None:
    perfect = score(TASK, truth(TASK), length=60, pairs=20, walks=WALKS)
    assert all((values == 1).all() for values in perfect.values())
    anything = score(TASK, lambda tokens, _: torch.ones(len(tokens), 33) > 0, length=60, pairs=20, walks=WALKS)
    assert (anything["compression_precision"] == 1).all() and (anything["distinction_recall"] == 0).all()
    assert anything["distinction_precision"].isnan().all()


def test_who_knows_the_ply_alone_compresses_and_distinguishes_nothing() -> None:
    def by_ply(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        return (torch.arange(33) + length_B[:, None]) % 3 == 0

    scores = score(TASK, by_ply, length=60, pairs=20, walks=WALKS)
    assert (scores["compression_precision"] == 1).all() and (scores["distinction_recall"] == 0).all()


def test_who_forgets_the_last_stone_turned_is_found_out() -> None:
    """The legal moves of the board one ply before: wrong for the mover's side, so two histories of a board differ."""

    def late(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        return truth(TASK)(tokens_BL, (length_B - 1).clamp(min=1))

    scores = score(TASK, late, length=60, pairs=40, walks=WALKS)
    means = {name: values.nanmean().item() for name, values in scores.items()}
    assert means["compression_precision"] < 1
    assert means["distinction_precision"] < 0.5 and means["distinction_recall"] < 0.5


def test_too_long_suffixes_are_refused() -> None:
    with pytest.raises(ValueError, match="no room for suffixes of 40 tokens"):
        score(TASK, truth(TASK), length=60, pairs=2, walks=Walks(count=1, depth=40, seed=0))
