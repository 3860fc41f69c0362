"""Replicas under vmap, for functions with a hand-written backward pass: vmap's axis is folded into an existing one.

fold_replicas([x], [2], R)                     x [A, B, R]  ->  [R * A, B]
fold_replicas([x], [2], R, places=[1])         x [A, B, R]  ->  [A, R * B]
"""

from collections.abc import Sequence

from torch import Tensor


def fold_replicas(
    tensors: Sequence[Tensor], in_dims: Sequence[int | None], size: int, *, places: Sequence[int] | None = None
) -> list[Tensor]:
    """Fold `size` replicas into each tensor's axis at `places` (by default the first).

    A tensor with None is repeated.
    """
    folded = []
    for x, dim, place in zip(tensors, in_dims, places or [0] * len(tensors), strict=True):
        x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        folded.append(x.movedim(0, place).flatten(place, place + 1))
    return folded


def unfold_replicas(
    tensors: Sequence[Tensor], size: int, *, places: Sequence[int] | None = None
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Return the replicas as separate axes again, and the positions of these axes."""
    places = tuple(places or [0] * len(tensors))
    return tuple(x.unflatten(place, (size, -1)) for x, place in zip(tensors, places, strict=True)), places
