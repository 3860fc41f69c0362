"""Make the throughput tables of this machine: every model and other packages, under throughput/ of the results.

    python scripts/benchmark.py throughput [--no-peers] [any option of `ladder throughput`]

This is `ladder throughput` (harness/throughput/bench.py says what is measured, harness/throughput/measure.py how), and
the rows of throughput_peers.py. On a CPU at the default sizes it is one process of one thread. `--against
FIRST/report.json` compares with a first run. Maintainers make the published tables with `--out results/throughput/cpu
--results published`; this script may write there.
"""

import sys

from throughput_peers import peer_rows

from chomsky_ladder.harness.cli.options import take_flag
from chomsky_ladder.harness.cli.throughput import throughput
from chomsky_ladder.harness.store.places import publishing


def main(words: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    alone = take_flag(words, "--no-peers")
    try:
        with publishing():
            return throughput(words, peers=None if alone else peer_rows)
    except ValueError as mistake:
        print(f"throughput: {mistake}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
