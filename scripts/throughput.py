"""The throughput tables of this machine: every model, with other packages beside ours, under results/throughput/.

    python scripts/throughput.py [--no-peers] [any option of `ladder throughput`]

The same as `ladder throughput` (harness/throughput/bench.py says what is measured, harness/throughput/measure.py how),
and the rows of throughput_peers.py. On a CPU at the default sizes: one process of one thread. A first run is compared
with a second by `--against FIRST/report.json`.
"""

import sys

from throughput_peers import peer_rows

from chomsky_ladder.harness.cli.options import take_flag
from chomsky_ladder.harness.cli.throughput import throughput


def main(words: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    alone = take_flag(words, "--no-peers")
    try:
        return throughput(words, peers=None if alone else peer_rows)
    except ValueError as mistake:
        print(f"throughput: {mistake}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
