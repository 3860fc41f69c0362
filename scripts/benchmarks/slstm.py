"""Compare the speed of our sLSTM with that of its authors' package, on one CPU thread: process time, interleaved.

    python scripts/benchmark.py slstm [--batch 256] [--width 64] [--repeats 5] [--lengths 40 256] [--json]

Both are stacks of two sLSTM blocks of 4 heads with their gated feed-forward and a last LayerNorm, without convolution.
They start from random recurrent matrices. A pass is forward, and backward to the input and all weights. The package
(`pip install xlstm==2.0.6`) runs its backend for CPUs, "vanilla". The two alternate, and the results are medians.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, make_norm
from chomsky_ladder.models.xlstm import XLSTMConfig

NUM_BLOCKS, NUM_HEADS = 2, 4


class Ours(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        config = XLSTMConfig(d_model=width, num_blocks=NUM_BLOCKS, num_heads=NUM_HEADS, ratio="0:1")
        self.blocks = nn.ModuleList(config.blocks())
        self.norm = make_norm(config.final_norm, width)

    def forward(self, x_BLD: Tensor) -> Tensor:
        for block in self.blocks:
            x_BLD = block(x_BLD, Context())
        return self.norm(x_BLD)


def theirs(width: int) -> nn.Module:
    """Return the package's stack. Raise ImportError without it."""
    from xlstm import FeedForwardConfig, sLSTMBlockConfig, sLSTMLayerConfig, xLSTMBlockStack, xLSTMBlockStackConfig

    slstm = sLSTMLayerConfig(
        backend="vanilla",
        num_heads=NUM_HEADS,
        conv1d_kernel_size=0,
        recurrent_weight_init="standard",
        dtype="float32",
    )
    feed_forward = FeedForwardConfig(proj_factor=4 / 3, act_fn="gelu")
    config = xLSTMBlockStackConfig(
        slstm_block=sLSTMBlockConfig(slstm=slstm, feedforward=feed_forward),
        num_blocks=NUM_BLOCKS,
        embedding_dim=width,
        slstm_at="all",
    )
    return xLSTMBlockStack(config)


def milliseconds(model: nn.Module, x_BLD: Tensor, direction_BLD: Tensor) -> float:
    """Return the milliseconds of one forward and backward pass, in process time."""
    model.zero_grad()
    x_BLD = x_BLD.detach().requires_grad_()
    start = time.process_time()
    model(x_BLD).backward(direction_BLD)
    return 1000 * (time.process_time() - start)


def measured(models: dict[str, nn.Module], *, batch: int, length: int, width: int, repeats: int) -> dict[str, float]:
    x_BLD, direction_BLD = torch.randn(2, batch, length, width)
    times = {name: [] for name in models}
    for repeat in range(repeats + 1):
        for name, model in models.items():
            spent = milliseconds(model, x_BLD, direction_BLD)
            if repeat > 0:  # the first warms up
                times[name].append(spent)
    found = {f"{name}_ms": round(statistics.median(spent), 1) for name, spent in times.items()}
    if "package" in times:
        found["ratio"] = round(found["package_ms"] / found["ours_ms"], 1)
    return found


def main(words: Sequence[str] | None = None) -> int:
    about, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="benchmark.py slstm", description=about, epilog=usage, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[40, 256])
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {"ours": Ours(options.width)}
    try:
        models["package"] = theirs(options.width)
    except ImportError as error:
        missing = f"no comparison: {error} (pip install xlstm==2.0.6)"
    else:
        missing = ""
    sizes = {"batch": options.batch, "width": options.width, "repeats": options.repeats}
    result: dict[str, Any] = {**sizes, "missing": missing, "lengths": {}}
    for length in options.lengths:
        found = measured(models, batch=options.batch, length=length, width=options.width, repeats=options.repeats)
        result["lengths"][str(length)] = found
        if not options.json:
            print(f"length {length}: " + ", ".join(f"{name} {value:g}" for name, value in found.items()), flush=True)
    if options.json:
        print(json.dumps(result))
    elif missing:
        print(missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
