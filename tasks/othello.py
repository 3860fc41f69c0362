"""The legal next moves in a random game of Othello, of which only the moves are shown.

    d3 c3 c4 e3 f2  ->  c3 c4 e3 f2 ..        read at each move: the next one; any legal move is right

Games are uniform over the legal moves at every ply. Tokens are the squares that can be played on, row by row from a1. A
pass is not written, so the ply does not determine whose turn it is: .34 of the games have a pass, and after ply 59 the
parity is wrong in .28 of them. A length counts the first moves of a game, all of which but the last are input; 60 means
whole games on either board. The .011 of games that end sooner leave blank positions, not scored. Outside the hierarchy:
a finite board, of which the answers are a function. After Li et al. 2023 (2210.13382). The labels of `state`, squares
from the view of the player to move, are after Nanda et al. 2023 (2309.00941).

Whole games on 64 squares have these floors. No loss is below 2.0101 nats, the mean log number of legal moves. No guess
is the move played more often than .1706. A guess is legal at a rate of .144 among all squares and of .409 among the
empty ones. Of the 64 squares' labels, always "empty" is right for .469, the most common for each square .539, for each
square and ply .622.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._othello import SIZES, bit_table, names_of, random_games, replay, squares_of, vocab_of
from chomsky_ladder.tasks.base import PAD, Batch, Floors, Task, register
from chomsky_ladder.tasks.draw import Draw

EMPTY, MINE, THEIRS = 0, 1, 2  # values of `state`; in `boards` as black sees them, MINE is black and THEIRS white
SHORTEST, WHOLE = 2, 60  # the range of a length, in moves
GAMES = 2000  # twice: guesses are made on the first sample and scored on the second


@register
@dataclass(frozen=True, kw_only=True)
class Othello(Task):
    name, version, level = "othello", 1, "none"
    own_lengths = (WHOLE, WHOLE)
    rules = "othello"

    size: int = 8
    """Squares on a side of the board: 8 or 6."""

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"othello: size must be {' or '.join(map(str, SIZES))}, not {self.size}")

    @property
    def vocab(self) -> tuple[str, ...]:
        return vocab_of(self.size)

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(1, self.size**2 - 3))

    @property
    def squares(self) -> tuple[str, ...]:
        """Return the names of the squares in the order of `state`'s parts: row by row from a1."""
        return names_of(self.size)

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, SHORTEST), min(high, WHOLE) + 1))

    def positions(self, length: int) -> int:
        return min(length, len(self.answers)) - 1

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        plies = min(width + 1, len(self.answers))
        return self.batch_of(random_games(draw, size=self.size, plies=plies), lengths_B, width)

    def batch_of(self, games_BP: Tensor, lengths_B: Tensor, width: int) -> Batch:
        """Make a batch of the first moves of games, random ones or a file's (`tasks._othello_files.load_games`)."""
        length_B = lengths_B.clamp(max=len(self.answers)) - 1
        games_BP = pad(games_BP, (0, max(width + 1 - games_BP.shape[1], 0)), value=PAD)[:, : width + 1]
        inside_BL = torch.arange(width, device=games_BP.device) < length_B[:, None]
        tokens_BL, targets_BL = (torch.where(inside_BL, moves, PAD) for moves in (games_BP[:, :-1], games_BP[:, 1:]))
        return Batch(tokens_BL, targets_BL, targets_BL != PAD, length_B, torch.ones_like(length_B))

    def allowed(self, tokens_BL: Tensor) -> Tensor:
        """Return the legal moves after each position; none when the game is over."""
        legal_BL = torch.stack([position.legal for position in replay(tokens_BL, size=self.size)], dim=1)
        return (legal_BL[..., None] & bit_table(self.size, tokens_BL.device)) != 0

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: each square is EMPTY, MINE or THEIRS for the player to move. `boards` has black and white.

        Once the game is over, it is the view of the player who did not move last.
        """
        return (3,) * self.size**2

    def state(self, tokens_BL: Tensor) -> Tensor:
        return self.boards(tokens_BL, sees="mover")

    @property
    def state_parts(self) -> tuple[str, ...]:
        return self.squares

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        return {"mine_theirs": ("empty", "mine", "theirs"), "black_white": ("empty", "black", "white")}

    def state_as(self, view: str, tokens_BL: Tensor) -> Tensor:
        return self.boards(tokens_BL, sees="black" if view == "black_white" else "mover")

    def boards(self, tokens_BL: Tensor, *, sees: Literal["mover", "black"]) -> Tensor:
        """Return the board after each position, [B, L, S]: EMPTY, 1 for stones of the viewer, 2 for the other's.

        Any tokens are replayed. Illegal moves are ignored.
        """
        own, other = [], []
        for mine, theirs, _, black in replay(tokens_BL, size=self.size):
            own.append(mine if sees == "mover" else torch.where(black, mine, theirs))
            other.append(theirs if sees == "mover" else torch.where(black, theirs, mine))
        return _spread(torch.stack(own, 1), self.size) + 2 * _spread(torch.stack(other, 1), self.size)

    def black_moves(self, tokens_BL: Tensor) -> Tensor:
        """Return True if black is to move after each position, bool [B, L]."""
        return torch.stack([position.black for position in replay(tokens_BL, size=self.size)], dim=1)

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the rates of legal moves: of uniform guesses, of one square always, of one for each ply."""
        guess_LC, legal_LC, scored_L = _legal_shares(self)
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
        return {name: f"{value:.3f}" for name, value in _measured(self)._asdict().items()}


def _spread(bits_BL: Tensor, size: int) -> Tensor:
    """Return one bit for each square, [B, L, S]."""
    return (bits_BL[..., None] >> _square_numbers(size, bits_BL.device)) & 1


@kept
def _square_numbers(size: int, device: torch.device) -> Tensor:
    return torch.tensor(squares_of(size), device=device)


def _games(task: Othello, half: int) -> Tensor:
    """Return the input of some whole games."""
    draw = Draw(seed=half, split="floors", rows_B=torch.arange(GAMES))
    return random_games(draw, size=task.size, plies=len(task.answers))[:, :-1]


@lru_cache
def _legal_shares(task: Othello) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of games in which each answer is legal, in two samples, [L, C]; and those still played."""
    first_BLC, second_BLC = (task.allowed(_games(task, half))[..., 1:] for half in range(2))
    shares = first_BLC, second_BLC, second_BLC.any(2)
    first, second, plays = (share.double().mean(0).numpy() for share in shares)
    return first, second, plays


class Measured(NamedTuple):
    """Statistics of whole random games, counted on some."""

    lowest_loss: float  # mean log number of legal moves
    highest_hit_rate: float  # how often the move played can be guessed
    legal_of_all_squares: float  # how often a random square is a legal move
    legal_of_empty_squares: float
    always_empty: float  # share of the labels of `state` that are guessed right
    commonest_of_square: float
    commonest_of_square_and_ply: float


@lru_cache
def _measured(task: Othello) -> Measured:
    first_BLS, second_BLS = (task.state(_games(task, half)) for half in range(2))
    empty_BLS = second_BLS == EMPTY
    num_BL = task.allowed(_games(task, 1)).sum(2)
    scored_BL = num_BL > 0
    num_N, empty_N = num_BL[scored_BL].double(), empty_BLS.sum(2)[scored_BL]
    counts_LSC = torch.stack([(first_BLS == label).sum(0) for label in (EMPTY, MINE, THEIRS)], dim=2)
    return Measured(
        lowest_loss=float(num_N.log().mean()),
        highest_hit_rate=float((1 / num_N).mean()),
        legal_of_all_squares=float(num_N.mean() / len(task.answers)),
        legal_of_empty_squares=float((num_N / empty_N).mean()),
        always_empty=float(empty_BLS.double().mean()),
        commonest_of_square=float((second_BLS == counts_LSC.sum(0).argmax(1)).double().mean()),
        commonest_of_square_and_ply=float((second_BLS == counts_LSC.argmax(2)).double().mean()),
    )
