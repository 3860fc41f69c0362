"""The random stream: every value is a pure function of (seed, split, row, call, column).

There is no generator state. A value is a 64-bit hash of its address. So sample `row` of a split is the same in any
batch, in any order, on any device and on any number of workers, and nothing has to be saved to resume:

    >>> a = Draw(seed=0, split="train", rows_B=torch.arange(0, 8)).integers(10, (5,))
    >>> b = Draw(seed=0, split="train", rows_B=torch.arange(6, 8)).integers(10, (5,))
    >>> bool((a[6:] == b).all())
    True

`call` counts the draws a task makes. So a task must make them in the same order for every batch, and the content of one
draw must never decide how many follow. The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood 2014)
with the constants of Stafford's variant 13, applied once for each level of the address. Only integer operations lie
between an address and a token, so CPU and GPU agree in every bit. `seed` and `rows_B` may be tensors, so a step that
draws its own data can be captured in a CUDA graph. `NumpyDraw` is the same stream in numpy.
"""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

Array = Any  # a tensor, or the ndarray of the numpy twin

_GAMMA = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as int64: 2**64 over the golden ratio
_MUL_1 = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_MUL_2 = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
_NAME_KEYS: dict[str, int] = {}
_COLUMNS: dict[tuple[int, torch.device], Tensor] = {}  # no lru_cache: torch.compile looks through one
ROUNDS = 80
"""Rounds of `shuffled`. With ideal bits, a few of 2**20 places are then nearly uniform (within 2**-15)."""
_LOW_24, _LOW_32, _LOW_33, _LOW_34, _LOW_37 = ((1 << bits) - 1 for bits in (24, 32, 33, 34, 37))


def _mix(x: Array) -> Array:
    """Map 64-bit integers one to one. An arithmetic shift with a mask replaces the logical shift that int64 lacks."""
    x = (x ^ ((x >> 30) & _LOW_34)) * _MUL_1
    x = (x ^ ((x >> 27) & _LOW_37)) * _MUL_2
    return x ^ ((x >> 31) & _LOW_33)


def _signed(x: int) -> int:
    """Return `x` modulo 2**64 as a signed 64-bit integer, as tensors hold it."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


def _mix_int(x: int) -> int:
    """Return `_mix` of a Python integer, so that a constant part of an address never becomes a device tensor."""
    x = _signed((x ^ ((x >> 30) & _LOW_34)) * _MUL_1)
    x = _signed((x ^ ((x >> 27) & _LOW_37)) * _MUL_2)
    return x ^ ((x >> 31) & _LOW_33)


def _absorb(key: Array, value: Array) -> Array:
    """Return the key one level further down the address, one to one in `value` for each `key`."""
    if isinstance(key, int) and isinstance(value, int):
        return _mix_int(_signed(key ^ _signed((value + 1) * _GAMMA)))
    if isinstance(value, int):
        return _mix(key ^ _signed((value + 1) * _GAMMA))
    return _mix(((value + 1) * _GAMMA) ^ key)


def _name_key(name: str) -> int:
    if name not in _NAME_KEYS:  # looked up where it is known, since torch.compile does not trace a hash
        _NAME_KEYS[name] = _signed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    return _NAME_KEYS[name]


def _stays(x: Tensor) -> bool:
    """Return True if a tensor has values now and stays valid: not in a trace, and not in a CUDA graph's own memory."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.is_meta:
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


class _Stream:
    """The shared part of the torch and numpy streams: the address, and all arithmetic on its bits."""

    _xp: Any  # torch, or numpy

    def __init__(self, *, seed: int | Array, split: str, rows_B: Array) -> None:
        assert str(rows_B.dtype).endswith("int64"), f"rows_B must be int64, not {rows_B.dtype}"
        self.split, self.rows_B = split, rows_B
        self.calls = 0
        self._key: Array = _absorb(_absorb(_GAMMA, seed), _name_key(split))

    def child(self, name: str) -> Self:
        """Return an independent stream over the same rows, for draws that must not shift the task's own (lengths)."""
        other = object.__new__(type(self))
        other.split, other.rows_B, other.calls = self.split, self.rows_B, 0
        other._key = _absorb(self._key, _name_key(name))
        return other

    def integers(self, high: int | Array, shape: Sequence[int] = ()) -> Array:
        """Draw uniform integers in [0, high), shaped [B, *shape]. `high` (below 2**31) may be a tensor that broadcasts.

        Multiply-shift of 32 bits: no value is off its share by more than high / 2**32.
        """
        return (((self._bits(shape) >> 32) & _LOW_32) * high) >> 32

    def uniform(self, shape: Sequence[int] = ()) -> Array:
        """Draw multiples of 2**-24 in [0, 1), float32, shaped [B, *shape]."""
        return self._float32((self._bits(shape) >> 40) & _LOW_24) * 2.0**-24

    def categorical(self, weights: Sequence[int], shape: Sequence[int] = ()) -> Array:
        """Draw index i with probability weights[i] / sum(weights). The weights are integers, so nothing is rounded."""
        assert len(weights) > 1 and min(weights) >= 0 and sum(weights) > 0, weights
        value = self.integers(sum(weights), shape)
        return sum((value >= bound) * 1 for bound in list(accumulate(weights))[:-1])

    def shuffled(self, place_X: Array, size_B: Array, of_X: Array) -> Array:
        """Return the image of each place under row `of_X`'s permutation of 0..size-1, without computing the others.

        Swap-or-not (Hoang, Morris and Rogaway 2012). Each round draws a random sum. The two places that add up to it,
        modulo the size, are exchanged or not, by a random bit of the larger one. So every round is a bijection for any
        size below 2**31. The bit is the highest of a multiply-add, which is 2-universal (Dietzfelbinger 1996).
        """
        size_X = size_B[of_X]
        sum_BK = self.integers(size_B[:, None], (ROUNDS,))
        keys_BK = (sum_BK, self._bits((ROUNDS,)), self._bits((ROUNDS,)))
        for sum_X, factor_X, shift_X in zip(*(key_BK[of_X].T for key_BK in keys_BK), strict=True):
            other_X = sum_X - place_X
            other_X = self._xp.where(other_X < 0, other_X + size_X, other_X)
            swaps_X = self._xp.maximum(place_X, other_X) * factor_X + shift_X < 0
            place_X = self._xp.where(swaps_X, other_X, place_X)
        return place_X

    def _columns(self, size: int, /) -> Array:
        """Return what columns 0..size-1 add to an address in `_absorb`: (column + 1) * gamma."""
        raise NotImplementedError

    def _float32(self, x: Array, /) -> Array:
        raise NotImplementedError

    def _bits(self, shape: Sequence[int]) -> Array:
        call, self.calls = self.calls, self.calls + 1
        key_B = _absorb(_absorb(self._key, call), self.rows_B)
        bits = _mix(self._columns(prod(shape))[None, :] ^ key_B[:, None])
        return bits.reshape(key_B.shape[0], *shape)


class Draw(_Stream):
    """The stream as torch tensors, on the device of `rows_B` (int64)."""

    _xp = torch

    def permutation(self, size: int) -> Tensor:
        """Draw a uniform permutation of 0..size-1 for each row, [B, size]."""
        # 63-bit keys: ties have probability size**2 / 2**64, and a stable sort breaks them by column on every device.
        return torch.argsort((self._bits((size,)) >> 1), dim=1, stable=True)

    def _columns(self, size: int) -> Tensor:
        """Return the columns, cached in the first, plain step.

        Computed in a compiled step, Inductor uses 32-bit indices.
        """
        key = (size, self.rows_B.device)
        if key in _COLUMNS:
            return _COLUMNS[key]
        columns = (torch.arange(size, device=self.rows_B.device) + 1) * _GAMMA
        if _stays(columns):
            _COLUMNS[key] = columns
        return columns

    @staticmethod
    def _float32(x: Tensor) -> Tensor:
        return x.to(torch.float32)


class NumpyDraw(_Stream):
    """The same stream, bit for bit, as numpy arrays."""

    _xp = np

    def permutation(self, size: int) -> np.ndarray:
        return np.argsort(self._bits((size,)) >> 1, axis=1, kind="stable")

    @staticmethod
    def _columns(size: int) -> np.ndarray:
        return (np.arange(size) + 1) * _GAMMA

    @staticmethod
    def _float32(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32)
