"""The cost of a model that its records lack: tokens per second when it answers token by token."""

import torch

from chomsky_ladder.harness.throughput.bench import Bench
from chomsky_ladder.harness.throughput.grid import Grid, Point, Way
from chomsky_ladder.harness.throughput.measure import Meter
from chomsky_ladder.harness.train.machine import pinned
from chomsky_ladder.models.base import ModelConfig

CONTEXT = 256


def decoded_per_s(model: ModelConfig, device: torch.device, *, threads: int) -> float | None:
    """Return the tokens per second in decoding a single string after a context; None without a step form."""
    if not model.stepwise:
        return None
    with pinned(threads):
        bench = Bench(model, "parameters", Grid(), Meter(device, repeats=5, threads=threads))
        return bench.row(Point(Way(), "decode", 1, CONTEXT)).get("tokens_per_s")
