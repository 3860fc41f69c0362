"""Count and choose the set bits of 64-bit integers, as int64 tensors or numpy arrays, without reading a value.

    count_of(0b10110)                3
    nth_bit(0b10110, 1)              2: the set bits are 1, 2 and 4
    chosen(0b10110, UNIFORM // 2)    2: the bit at half of the way

Eight counters lie side by side in one integer, a byte each.
"""

from typing import Any

import numpy as np

Array = Any  # an int64 tensor, or an ndarray

UNIFORM_BITS = 30
UNIFORM = 1 << UNIFORM_BITS
"""A choice takes a uniform integer below this bound. The probability of an outcome is off by less than 2**-30."""

_EACH = 0x0101010101010101  # one in each byte
_LOWER_SEVEN = 0x0001010101010101
_TOPS = -0x7F7F7F7F7F7F7F80  # the highest bit of each byte: 0x8080808080808080
_DIAGONAL = -0x7FBFDFEFF7FBFDFF  # bit i of byte i: 0x8040201008040201


def signed(word: int) -> int:
    """Return an unsigned 64-bit integer as the signed one with the same bits."""
    return word - (word >> 63 << 64)


def count_of(bits: Array) -> Array:
    """Count the set bits."""
    if isinstance(bits, np.ndarray):
        return np.bitwise_count(bits.view(np.uint64)).astype(np.int64)  # as one instruction; torch has none
    return _running_counts(bits) >> 56


def rank_of(count: Array, uniform: Array) -> Array:
    """Return one of 0..count-1, chosen by an integer uniform below UNIFORM."""
    return (count * uniform) >> UNIFORM_BITS


def chosen(bits: Array, uniform: Array) -> Array:
    """Return the number of one set bit, chosen by an integer uniform below UNIFORM; any number if none is set."""
    running = _running_counts(bits)
    return _nth(bits, running, rank_of(running >> 56, uniform))


def nth_bit(bits: Array, rank: Array) -> Array:
    """Return the number of the set bit that has so many set bits below it; any number if there is none."""
    return _nth(bits, _running_counts(bits), rank)


def _nth(bits: Array, running: Array, rank: Array) -> Array:
    byte = _passed(running, rank) * 8
    inside = ((bits >> byte) & 0xFF) * _EACH & _DIAGONAL  # bit i of the byte alone in byte i
    inside = (((inside + 0x7F7F7F7F7F7F7F7F) >> 7) & _EACH) * _EACH
    return byte + _passed(inside, rank - (((running << 8) >> byte) & 0xFF))


def _running_counts(bits: Array) -> Array:
    """Return in byte k the number of bits set in bytes 0..k."""
    pairs = bits - ((bits >> 1) & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    return ((fours + (fours >> 4)) & 0x0F0F0F0F0F0F0F0F) * _EACH


def _passed(running: Array, rank: Array) -> Array:
    """Count how many of the lower seven bytes hold at most `rank`."""
    more = (running | _TOPS) - (rank + 1) * _EACH  # the highest bit of a byte stays where the byte holds more
    return (((~more >> 7) & _LOWER_SEVEN) * _EACH) >> 56
