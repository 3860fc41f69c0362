"""Find a model with a given number of parameters: first by its width, then by the feed-forward's width if it has one.

    sized(TransformerConfig(), vocab=12, target=100_000)  ->  d_model=80, d_inner=.. with 100,0.. parameters

The count is of active parameters: those one token uses (all, except in a mixture of experts), with embedding and head.
Comparisons at equal size mean this count. The run's identity holds the widths found, not the number asked for.
"""

import re
from dataclasses import fields, replace
from functools import lru_cache

import torch

from chomsky_ladder.models.backbone import count_parameters
from chomsky_ladder.models.base import ModelConfig

WIDEST = 1 << 16
SMALL = 4 * 256**2  # blocks times width squared: some millions of parameters


def parse_count(text: str) -> int:
    """Parse a count such as 100k, 1.5M or 120000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text.strip())
    number = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()] if match else 0
    if not 1 <= number <= 1e12:
        raise ValueError(f"--model.params takes a number of parameters such as 100k or 1.5M, not {text!r}")
    return round(number)


def sized(config: ModelConfig, *, vocab: int, target: int) -> ModelConfig:
    """Return the config with the widths that bring it nearest to `target` active parameters.

    A short convolution in front of the layers is not counted, so that a model is as wide with it as without.
    """
    if config.short_conv:
        placed = {name: getattr(config, name) for name in ("short_conv", "conv_places")}
        bare = replace(config, short_conv=0, conv_places="AC")
        return replace(sized(bare, vocab=vocab, target=target), **placed)
    below, above = _widths(config, vocab, target)
    wide = [replace(config, d_model=width) for width in (below, above) if width]
    if not wide:
        total_parameters(config, vocab)  # the user's module may say itself why it cannot be made
        raise ValueError(f"{config.name}: no width up to {WIDEST} fits its other settings")
    if below and any(field.name == "d_inner" for field in fields(config)):
        wide += [inner for each in wide for inner in _inner(each, vocab, target)]
    return min(wide, key=lambda each: (abs(active_parameters(each, vocab) - target), -each.d_model))


def active_parameters(config: ModelConfig, vocab: int) -> int:
    """Count the parameters that one token uses."""
    return total_parameters(config, vocab) - config.idle_parameters


@lru_cache(maxsize=4096)
def total_parameters(config: ModelConfig, vocab: int) -> int:
    """Count the parameters of a model; large models are made without storage, if possible.

    Small models are made normally: without storage torch imports its compiler, which takes a second and 140 MB in every
    process of a sweep.
    """
    with torch.random.fork_rng(devices=[]):
        if _is_small(config):
            return count_parameters(config.build(vocab))
        try:
            with torch.device("meta"):
                return count_parameters(config.build(vocab))
        except (ValueError, RuntimeError):  # a user's module that reads tensor values when it is made
            return count_parameters(config.build(vocab))


def _is_small(config: ModelConfig) -> bool:
    return config.num_blocks * getattr(config, "d_model", 0) ** 2 <= SMALL


def report(config: ModelConfig, *, vocab: int, target: int) -> str:
    """Return one line with the widths found and the parameters they give."""
    active, total = active_parameters(config, vocab), total_parameters(config, vocab)
    inner = f", d_inner {width}" if (width := getattr(config, "d_inner", 0)) else ""
    of = f" active of {total:,}" if total != active else ""
    gap = 100 * (active / target - 1)
    return f"{config.name}: d_model {config.d_model}{inner}: {active:,}{of} parameters, {gap:+.1f} % of {target:,}"


def _widths(config: ModelConfig, vocab: int, target: int) -> tuple[int, int]:
    """Return the widest admissible width with at most `target` parameters, and the next admissible one; 0 for none."""
    widths = [width for width in range(1, WIDEST) if width <= 4096 or width % 64 == 0]
    low, high, below, above = 0, len(widths), 0, 0
    while low < high:
        middle = (low + high) // 2 if above else min(2 * low, high - 1)  # double the width until it is too wide
        width = next((w for w in widths[middle:high] if _admits(config, w, vocab)), 0)
        if not width:
            high = middle
        elif active_parameters(replace(config, d_model=width), vocab) <= target:
            below, low = width, widths.index(width) + 1
        else:
            above, high = width, middle
    return below, above


def _admits(config: ModelConfig, width: int, vocab: int) -> bool:
    """Return True if a model of that width can be made: neither the config nor a user's module refuses it."""
    try:
        total_parameters(replace(config, d_model=width), vocab)
    except ValueError:
        return False
    return True


def _inner(config: ModelConfig, vocab: int, target: int) -> list[ModelConfig]:
    """Return the two inner widths around the target. The number of parameters is an affine function of this width."""
    one, two = (active_parameters(replace(config, d_inner=inner), vocab) for inner in (8, 16))
    if one == two:
        return []
    exact = 8 + (target - one) * 8 / (two - one)
    return [replace(config, d_inner=inner) for inner in {int(exact), int(exact) + 1} if inner >= 1]
