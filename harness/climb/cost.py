"""What a climber costs here beyond its records: tokens a second as it answers one at a time."""

import torch

from chomsky_ladder.harness.throughput.bench import Bench
from chomsky_ladder.harness.throughput.grid import Grid, Point, Way
from chomsky_ladder.harness.throughput.measure import Meter
from chomsky_ladder.harness.train.machine import pinned
from chomsky_ladder.models.base import ModelConfig

CONTEXT = 256


def decoded_per_s(model: ModelConfig, device: torch.device, *, threads: int) -> float | None:
    """Tokens a second in decoding a single string behind a context; None: the model has no step form."""
    if not model.stepwise:
        return None
    with pinned(threads):
        bench = Bench(model, "parameters", Grid(), Meter(device, repeats=5, threads=threads))
        return bench.row(Point(Way(), "decode", 1, CONTEXT)).get("tokens_per_s")
