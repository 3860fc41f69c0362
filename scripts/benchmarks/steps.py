"""Time a training step of every model in one run, against `lstm_block`: the cost of a short string without tuning.

    python scripts/benchmark.py steps [--length 40] [--batch 32] [--width 64] [--repeats 7] [--models NAME ..]
                                      [--json] [--out FILE]      the same JSON, with its provenance, to a file

Whole steps of the harness (strings, forward, backward, clipping, AdamW) on parity, on one thread in process time. The
models take turns, so that a drift of the machine's speed slows all alike. The results are medians, with the 20th and
80th percentile of the ratio turn by turn. Everything but the width is the model's default. Machines without a parallel
form are marked. Any other model above `LIMIT` times lstm_block is too slow, and the exit code is 1.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from chomsky_ladder.harness.config.parts import plain, replaced
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.train.machine import pinned, processor, publishable_provenance
from chomsky_ladder.harness.train.pack import Pack

LOOPS = ("dnc", "ntm", "rns_rnn", "stack_rnn", "tape_rnn")  # every token reads what the last one wrote
LIMIT = 3.0
BESIDE = "lstm_block"
WARM_UP = 2


def pack_of(model: str, *, length: int, batch: int, width: int) -> Pack:
    config = find_model(model)()
    config = replaced(config, {"d_model": width} if "d_model" in plain(config) else {}, where="model")
    train = Train(steps=10**6, batch=batch, lengths=(length, length), lr=1e-3)
    run = Run(task=find_task("parity")(), model=config, train=train, eval=Eval(every=0))
    return Pack([run], device=torch.device("cpu"), backend="auto")


def milliseconds(pack: Pack, length: int) -> float:
    start = time.process_time()
    pack.advance(length)
    pack.seen()
    return 1000 * (time.process_time() - start)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmark.py steps", description=(__doc__ or "").partition("\n")[0])
    for name, value in (("length", 40), ("batch", 32), ("width", 64), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--models", nargs="+", default=[], help="default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write JSON")
    options = parser.parse_args(words)
    if options.out and not options.out.parent.is_dir():
        parser.error(f"--out names a file in a folder that is there, not {options.out}")
    size = {"length": options.length, "batch": options.batch, "width": options.width}
    names = dict.fromkeys([BESIDE, *(options.models or sorted(all_models()))])
    try:
        for name in names:
            find_model(name)
    except ValueError as mistake:
        parser.error(str(mistake))
    if min(options.length, options.batch, options.width, options.repeats) < 1:
        parser.error("--length, --batch, --width and --repeats are at least 1")
    with pinned(1):
        packs = {name: pack_of(name, **size) for name in names}
        turns = [
            [milliseconds(pack, options.length) for pack in packs.values()] for _ in range(WARM_UP + options.repeats)
        ]
    ms = np.array(turns[WARM_UP:])
    ratio = ms / ms[:, :1]
    rows = [
        {
            "model": name,
            "ms": round(float(np.median(ms[:, column])), 2),
            "ratio": round(float(np.median(ratio[:, column])), 2),
            "from": round(float(np.quantile(ratio[:, column], 0.2)), 2),
            "to": round(float(np.quantile(ratio[:, column], 0.8)), 2),
            "loop": name in LOOPS,
        }
        for column, name in enumerate(packs)
    ]
    slow = [row["model"] for row in rows if row["ratio"] > LIMIT and not row["loop"]]
    told = {"processor": processor(), **size, "repeats": options.repeats, "rows": rows, "slow": slow}
    if options.out:
        write_atomically(
            options.out, f"{json.dumps({**told, 'provenance': publishable_provenance()}, indent=1)}\n".encode()
        )
    if options.json:
        print(json.dumps({**told, "torch": torch.__version__}))
        return 1 if slow else 0
    print(f"a step on {processor()}, one thread, {size}, medians of {options.repeats}")
    for row in sorted(rows, key=lambda row: row["ratio"]):
        said = "  a loop" if row["loop"] else f"  above {LIMIT:g}" if row["model"] in slow else ""
        span = f"({row['from']:.2f} .. {row['to']:.2f})"
        print(f"{row['model']:20} {row['ms']:8.2f} ms  {row['ratio']:6.2f} x  {span}{said}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
