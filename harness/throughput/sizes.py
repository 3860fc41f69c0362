"""Find the ways to run each model, and models of matched size.

Models are compared twice: with nearly the same number of parameters (harness/config/sizing.py), and with nearly the
same bytes of state per sequence, where the state of attention is its cache at a stated context.
"""

from bisect import bisect_left
from dataclasses import replace

import torch

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.sizing import sized
from chomsky_ladder.harness.throughput.grid import Grid, Match, Way
from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.kernels.choose import available

WIDEST = 2048


def ways_of(name: str, grid: Grid, device: torch.device) -> list[Way]:
    """Return the ways to run a model here. The first is what a user gets."""
    cuda = device.type == "cuda"
    own = [kernel for kernel in available() if name in kernel.serves and not kernel.missing()]
    kernels = [kernel.name for kernel in own if cuda and kernel.device == "cuda"]
    found = []
    for precision in grid.precisions:
        for backend in ("auto", "reference", *kernels):
            # A compiler would take hours for the plain loops of references.
            for compiled in (False, True) if grid.compiled and backend == "auto" else (False,):
                found += [Way(precision, backend, compiled, graph) for graph in ((False, True) if cuda else (False,))]
    if not cuda:  # the reference is only for comparison, and one is enough
        found = [way for way in found if way.backend == "auto" or way.precision == grid.precisions[0]]
    return found


def matched(config: ModelConfig, match: Match, grid: Grid) -> ModelConfig:
    """Return the config at the width that makes it comparable."""
    if match == "parameters":
        return sized(config, vocab=grid.vocab, target=grid.parameters)
    return state_sized(config, vocab=grid.vocab, target=grid.state_bytes, context=grid.state_context)


def state_sized(config: ModelConfig, *, vocab: int, target: int, context: int) -> ModelConfig:
    """Return the config whose state is nearest to `target` bytes per sequence; of two equally near, the wider."""
    require(config.stepwise, f"{config.name} has no step form, so no state")
    widths = [width for width in range(1, WIDEST + 1) if _admitted(config, width)]

    def weighed(width: int) -> int:
        return weigh(replace(config, d_model=width), vocab=vocab, context=context)

    above = bisect_left(widths, target, key=weighed)
    near = [widths[i] for i in (above - 1, above) if 0 <= i < len(widths)]
    require(bool(near), f"{config.name}: no width up to {WIDEST} fits its other settings")
    found = _admitted(config, min(near, key=lambda width: (abs(weighed(width) - target), -width)))
    assert found is not None
    return found


def _admitted(config: ModelConfig, width: int) -> ModelConfig | None:
    try:
        return replace(config, d_model=width)
    except ValueError:
        return None


def weigh(config: ModelConfig, *, vocab: int, context: int) -> int:
    """Return the bytes of state per sequence in fp32, computed without storage where possible."""
    try:
        return _weighed(config, vocab, context, torch.device("meta"))
    except RuntimeError:  # from an operation without a meta form
        return _weighed(config, vocab, context, torch.device("cpu"))


def _weighed(config: ModelConfig, vocab: int, context: int, device: torch.device) -> int:
    with torch.random.fork_rng(devices=[]), device, torch.no_grad():
        model = config.build(vocab)
        return state_bytes(model.init_state(1, max_length=context, device=device, dtype=torch.float32))
