"""Runs that differ only in the size of their training set: the points of a sample-efficiency curve."""

from collections.abc import Mapping
from typing import Any

from chomsky_ladder.harness.store.labels import Identity

SETTING = "train.examples"

ENDLESS = 0
"""The size of an endless training set, sorted last."""


def size_of(row: Mapping[str, Any]) -> int:
    """Return how many strings a record, or a cell, was trained on."""
    return Identity.of(row).settings.get(SETTING, ENDLESS)


def whole(row: Mapping[str, Any]) -> str:
    """Return the protocol's label without the size of the training set."""
    return Identity.of(row).protocol_parts(SETTING).whole


def in_order(sizes: set[int]) -> list[int]:
    """Return the sizes in ascending order, the endless one last."""
    return sorted(sizes, key=lambda size: (size == ENDLESS, size))
