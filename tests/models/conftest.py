"""Every test of a model starts from the same seed."""

from support.layers import seeded as seeded
