"""Games of two players on a board, of which only the moves are shown: what Othello and chess have in common.

    d3 c3 c4 e3 f2  ->  c3 c4 e3 f2 ..        read at each move: the next one; any legal move is right

Games are uniform over the legal moves at every ply. A length counts the first moves of a game, all of which but the
last are input. Games that end sooner leave blank positions, not scored. The harness replays and edits boards by the
functions that such a task declares (harness/inside/cases.py). In the main view of `state` a label is 0 for an empty
square, then come the kinds of the player to move, then the same kinds of the other player.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import PAD, Batch, Floors, Task
from chomsky_ladder.tasks.draw import Draw

EMPTY = 0
SHORTEST, USUAL = 2, 60  # moves
Edit = Literal["flip", "erase"]


@lru_cache
def names_of(size: int) -> tuple[str, ...]:
    """Return the name of every square, row by row: a1, b1 .."""
    return tuple(f"{column}{row}" for row in range(1, size + 1) for column in "abcdefgh"[:size])


@dataclass(frozen=True, kw_only=True)
class BoardGame(Task):
    level = "none"
    own_lengths = (USUAL, USUAL)

    longest: ClassVar[int] = USUAL
    """The greatest length."""
    counted: ClassVar[int] = 2000
    """Games on which floors and facts are counted, twice: guesses made on the first ones are scored on the second."""
    colours: ClassVar[tuple[str, str]] = ("white", "black")
    """The player who begins, and the other."""

    counts_if_learnt = False
    """True if studies count a model's numbers only if its likeliest moves are legal, as published work has it."""

    size = 8  # without a type, so that it can be a game's own field
    """Squares on a side of the board."""

    @property
    def squares(self) -> tuple[str, ...]:
        """Return the names of the squares in the order of `state`'s parts: row by row from a1."""
        return names_of(self.size)

    @property
    def plies(self) -> int:
        """Return the most moves that a game can have, or that are played."""
        return self.longest

    def games(self, draw: Draw, plies: int) -> Tensor:
        """Return the first moves of random games, as tokens [B, plies]; PAD after a game's end."""
        raise NotImplementedError

    def replay(self, tokens_BL: Tensor) -> Iterator[Any]:
        """Yield the position after each token: a tuple of tensors [.., B], of which `black` says who is to move.

        PAD and illegal moves change nothing. Once the game is over, it is the turn of the player who did not move last.
        """
        raise NotImplementedError

    def played(self, position: Any, token_B: Tensor) -> Any:
        """Return the position after one more token."""
        raise NotImplementedError

    def legal(self, position: Any) -> Tensor:
        """Return the legal moves, bool [B, V]."""
        raise NotImplementedError

    def labels(self, positions: Any, *, sees: Literal["mover", "first"]) -> Tensor:
        """Return the label of each square of positions [.., B, L] from a player's view: int64 [B, L, S]."""
        raise NotImplementedError

    def edited(self, position: Any, cell_B: Tensor, edit: Edit) -> Any:
        """Return the position with one square changed, and the same player to move.

        A board that cannot be has no legal moves.
        """
        raise NotImplementedError

    def may_edit(self, board_BS: Tensor, edit: Edit) -> Tensor:
        """Return the squares that may be edited, bool [B, S], by labels in the main view."""
        raise NotImplementedError

    def other_colour(self, label: Tensor) -> Tensor:
        """Return the label of the same piece of the other player."""
        kinds = self.state_sizes[0] // 2
        return (label - 1 + kinds) % (2 * kinds) + 1

    def lands(self, token: int) -> int:
        """Return the number of the square to which a move leads."""
        raise NotImplementedError

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.vocab)))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, SHORTEST), min(high, self.longest) + 1))

    def positions(self, length: int) -> int:
        return min(length, self.plies) - 1

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        return self.batch_of(self.games(draw, min(width + 1, self.plies)), lengths_B, width)

    def batch_of(self, games_BP: Tensor, lengths_B: Tensor, width: int) -> Batch:
        """Make a batch of the first moves of games, random ones or a file's (`tasks._othello_files.load_games`)."""
        length_B = lengths_B.clamp(max=self.plies) - 1
        games_BP = pad(games_BP, (0, max(width + 1 - games_BP.shape[1], 0)), value=PAD)[:, : width + 1]
        inside_BL = torch.arange(width, device=games_BP.device) < length_B[:, None]
        tokens_BL, targets_BL = (torch.where(inside_BL, moves, PAD) for moves in (games_BP[:, :-1], games_BP[:, 1:]))
        return Batch(tokens_BL, targets_BL, targets_BL != PAD, length_B, torch.ones_like(length_B))

    def allowed(self, tokens_BL: Tensor) -> Tensor:
        """Return the legal moves after each position; none when the game is over."""
        return torch.stack([self.legal(position) for position in self.replay(tokens_BL)], dim=1)

    @property
    def state_parts(self) -> tuple[str, ...]:
        return self.squares

    def state(self, tokens_BL: Tensor) -> Tensor:
        return self.labels(stacked(self.replay(tokens_BL)), sees="mover")

    def state_as(self, view: str, tokens_BL: Tensor) -> Tensor:
        sees = "mover" if view == next(iter(self.state_views)) else "first"
        return self.labels(stacked(self.replay(tokens_BL)), sees=sees)

    def black_moves(self, tokens_BL: Tensor) -> Tensor:
        """Return True if black is to move after each position, bool [B, L]."""
        return torch.stack([position.black for position in self.replay(tokens_BL)], dim=1)

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the rates of legal moves: of uniform guesses, of one move always, of one for each ply."""
        guess_LC, legal_LC, scored_L = _legal_shares(self, self.positions(max(*lengths, USUAL)))
        weight_L = np.zeros_like(scored_L)
        for length in lengths:
            part = slice(self.positions(length))
            weight_L[part] += 1 / scored_L[part].sum() if score == "lengths" else 1
        at_random = weight_L @ legal_LC.mean(1)
        constant = weight_L @ legal_LC[:, (weight_L @ guess_LC).argmax()]
        by_ply = weight_L @ np.take_along_axis(legal_LC, guess_LC.argmax(1)[:, None], axis=1)[:, 0]
        answers = weight_L @ scored_L
        return Floors(
            s_rand=float(at_random / answers),
            best_constant=float(constant / answers),
            content_free=float(max(by_ply, constant) / answers),
        )

    @property
    def facts(self) -> dict[str, str]:
        return {name: f"{value:.3f}" for name, value in measured(self).items()}


def stacked(positions: Iterator[Any]) -> Any:
    """Return positions side by side, as one of tensors [.., B, L]."""
    kept = list(positions)
    return type(kept[0])(*(torch.stack(parts, -1) for parts in zip(*kept, strict=True)))


def inputs(task: BoardGame, half: int, width: int) -> Tensor:
    """Return the input of some games."""
    draw = Draw(seed=half, split="floors", rows_B=torch.arange(task.counted))
    return task.games(draw, width + 1)[:, :-1]


@lru_cache
def _legal_shares(task: BoardGame, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of games in which each answer is legal, in two samples, [L, C]; and those still played."""
    first_BLC, second_BLC = (task.allowed(inputs(task, half, width))[..., 1:] for half in range(2))
    shares = first_BLC, second_BLC, second_BLC.any(2)
    first, second, plays = (share.sum(0).numpy() / task.counted for share in shares)
    return first, second, plays


@lru_cache
def measured(task: BoardGame) -> dict[str, float]:
    """Count statistics of random games of the usual length on some. The last three guess the labels of `state`."""
    width = task.positions(USUAL)
    first_BLS, second_BLS = (task.state(inputs(task, half, width)) for half in range(2))
    num_BL = task.allowed(inputs(task, 1, width)).sum(2)
    num_N = num_BL[num_BL > 0].double()
    counts_LSC = torch.stack([(first_BLS == label).sum(0) for label in range(task.state_sizes[0])], dim=2)
    return {
        "lowest_loss": float(num_N.log().mean()),  # mean log number of legal moves
        "highest_hit_rate": float((1 / num_N).mean()),  # how often the move played can be guessed
        "legal_of_all_moves": float(num_N.mean() / len(task.answers)),  # how often a random move is legal
        "always_empty": float((second_BLS == EMPTY).double().mean()),
        "commonest_of_square": float((second_BLS == counts_LSC.sum(0).argmax(1)).double().mean()),
        "commonest_of_square_and_ply": float((second_BLS == counts_LSC.argmax(2)).double().mean()),
    }
