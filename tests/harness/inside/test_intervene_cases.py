"""Cases of edited boards: right on a slow board, however many there are; and moves that are wrong, by hand."""

import pytest
import torch

from chomsky_ladder.harness.inside.cases import EDITS, Edit
from chomsky_ladder.harness.inside.push import wrong_moves
from chomsky_ladder.tasks.othello import Othello
from support.board_player import some_cases
from support.oracles_othello import OTHER, Game


@pytest.mark.parametrize("size", [6, 8])
@pytest.mark.parametrize("edit", EDITS)
def test_edited_boards_are_those_of_a_slow_board(edit: Edit, size: int) -> None:
    task, cases, changed, ended = Othello(size=size), some_cases(edit, size=size), set(), 0
    assert cases.count > 55
    for case in range(cases.count):
        last, games = int(cases.last_B[case]), (Game(size), Game(size))
        tokens = cases.tokens_BL[case].tolist()
        for game, token in ((game, token) for game in games for token in tokens[: last + 1]):
            game.play(task.vocab[token])
        true, edited = games
        cell = int(cases.change.cell_B[case])
        name, before, after = task.squares[cell], *(int(x[case]) for x in cases.change[1:])
        assert true.labels(true.viewer) == cases.board_BS[case].tolist()
        assert true.labels(true.viewer)[cell] == before != 0
        assert after == (3 - before if edit == "flip" else 0)
        if edit == "erase":
            assert name in task.vocab
        sign = {1: edited.viewer, 2: OTHER[edited.viewer], 0: "."}[after]
        edited.board[edited.places[name]] = sign
        edited.moves = edited.moves_of(edited.player)
        assert edited.labels(edited.viewer) == cases.edited_BS[case].tolist()
        wrong = int(cases.wrong.cell_B[case])
        assert wrong != cell and true.labels(true.viewer)[wrong] == int(cases.wrong.before_B[case]) != 0
        assert int(cases.wrong.after_B[case]) == (3 - int(cases.wrong.before_B[case]) if edit == "flip" else 0)
        going = True
        for moves, moment in enumerate(cases.moments):
            if moves:
                token = tokens[last + moves]
                if token == 0:
                    assert not going or not set(true.moves) & set(edited.moves) or true.player != edited.player
                    going = False
                elif going:
                    for game in games:
                        game.play(task.vocab[token])  # which it must allow
            counted = going and true.player == edited.player and true.moves and set(edited.moves) & set(task.vocab)
            assert bool(moment.going_B[case]) == bool(counted), (case, moves)
            if counted:
                for legal_BV, game in ((moment.legal_BV, true), (moment.edited_legal_BV, edited)):
                    found = {task.vocab[token] for token in legal_BV[case].nonzero()[:, 0].tolist()}
                    assert found == set(game.moves) & set(task.vocab)
        ended += not going
        changed.add(name)
        assert set(tokens[last + len(cases.moments) :]) <= {0}
    assert len(changed) > 15


def test_cases_do_not_depend_on_how_many_there_are() -> None:
    few, many = some_cases("flip", count=20), some_cases("flip", count=40)
    assert few.count == 20
    assert torch.equal(few.tokens_BL, many.tokens_BL[:20]) and torch.equal(few.edited_BS, many.edited_BS[:20])


def test_wrong_moves_by_hand() -> None:
    scores_BV = torch.tensor([[9.0, 1, 5, 4, 0, 4], [9, 0, 0, 0, 0, 0]])  # the first token is no move
    legal_BV = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 1]]).bool()
    found = [row.nonzero()[:, 0].tolist() for row in wrong_moves(scores_BV, legal_BV)]
    assert found == [[1, 5], [1, 2, 3, 5]]  # {2, 3, 5} for {1, 2, 3}; of equal ones {1, 2} for {3, 5}
