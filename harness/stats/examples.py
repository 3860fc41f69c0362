"""Runs that differ in the size of their training set alone: what stands together in the curve of sample efficiency."""

from collections.abc import Mapping
from typing import Any

from chomsky_ladder.harness.store.labels import Identity

SETTING = "train.examples"

ENDLESS = 0
"""The size of a set without an end, behind all others."""


def size_of(row: Mapping[str, Any]) -> int:
    """Return how many strings a record, or a cell, was trained on."""
    return Identity.of(row).settings.get(SETTING, ENDLESS)


def whole(row: Mapping[str, Any]) -> str:
    """The protocol's label but for that size."""
    return Identity.of(row).protocol_parts(SETTING).whole


def in_order(sizes: set[int]) -> list[int]:
    """Rising, and the endless one last."""
    return sorted(sizes, key=lambda size: (size == ENDLESS, size))
