"""Every test of a model starts from the same seed."""

from layers import seeded as seeded
