"""Drift: the distance of a stream from where the model keeps each state of the task, by position.

    at home: the mean stream of each state, over the training lengths
    drift at positions p..q: the mean distance of a stream from its own state's home, in units of the mean distance of
    two homes, along the directions in which homes differ

While drift is small, the head can tell states apart. A stream in the home of a wrong state is at 1, one in the centre
of k homes at sqrt((k - 1) / 2k): .58 for three, .70 for sixty. In an affine recurrence nothing pulls a stream back
home, so errors add up; a nonlinear one can pull it back. The idea is that of Chung et al. 2026 (2605.07755), the
measure ours. A distance is the root of a mean square.
"""

import torch
from torch import Tensor

FEWEST = 2  # streams that make a home


class Drift:
    """Drift by position of strings that are read a piece at a time. The first positions make the homes."""

    def __init__(self, labels_BLS: Tensor, *, first: int) -> None:
        self.first = first
        self._state_BL = labels_BLS.flatten(0, 1).unique(dim=0, return_inverse=True)[1].view(labels_BLS.shape[:2])
        self._homes: _Homes | None = None
        self._waiting: list[Tensor] = []  # pieces read before there are homes
        self._squares: list[Tensor] = []

    def read(self, stream_BCD: Tensor) -> None:
        self._waiting.append(stream_BCD.double())
        if self._homes is None and sum(piece.shape[1] for piece in self._waiting) >= self.first:
            first_BFD = torch.cat(self._waiting, 1)[:, : self.first]
            self._homes = _Homes(first_BFD, self._state_BL[:, : self.first])
        if self._homes is not None:
            for piece_BCD in self._waiting:
                read = sum(piece.shape[1] for piece in self._squares)
                state_BC = self._state_BL[:, read : read + piece_BCD.shape[1]]
                self._squares.append(self._homes.squares(piece_BCD, state_BC))
            self._waiting.clear()

    def between(self, low: int, high: int) -> float | None:
        """Return the drift at positions low..high, counted from 1.

        None if no stream there is finite and of a state with a home, or if fewer than two homes lie apart.
        """
        mean = torch.cat(self._squares, 1)[:, low - 1 : high].nanmean().sqrt()
        return float(mean) if mean.isfinite() else None


class _Homes:
    """The mean stream of each state, and the directions in which the means differ."""

    def __init__(self, stream_BFD: Tensor, state_BF: Tensor) -> None:
        finite_BF = stream_BFD.isfinite().all(-1)
        x_ND, state_N = stream_BFD[finite_BF], state_BF[finite_BF]
        count_C = state_N.bincount(minlength=int(state_BF.max()) + 1)
        self.known_C = count_C >= FEWEST
        sum_CD = x_ND.new_zeros(len(count_C), x_ND.shape[1]).index_add(0, state_N, x_ND)
        self.home_CD = sum_CD / count_C.clamp(min=1)[:, None]
        known_KD = self.home_CD[self.known_C]
        apart_KD = known_KD - known_KD.mean(0) if len(known_KD) > 1 else known_KD[:0]
        _, size_R, self.turn_RD = torch.linalg.svd(apart_KD, full_matrices=False)
        self.turn_RD = self.turn_RD[size_R > size_R[:1] * 1e-6]
        self.apart = 2 * apart_KD.square().sum() / (len(apart_KD) - 1)  # the mean over pairs of two different homes

    def squares(self, stream_BCD: Tensor, state_BC: Tensor) -> Tensor:
        """Return the square of each stream's drift, float32 [B, C]; NaN where it has none."""
        known_BC = state_BC < len(self.known_C)
        state_BC = state_BC.clamp(max=len(self.known_C) - 1)
        known_BC &= self.known_C[state_BC] & stream_BCD.isfinite().all(-1)
        away_BCR = (stream_BCD - self.home_CD[state_BC]) @ self.turn_RD.T
        return (away_BCR.square().sum(-1) / self.apart).where(known_BC, torch.nan).float()
