"""Does working it out on paper help? A Transformer that writes its steps before the answer, fillers, or nothing.

`python scripts/scratchpads.py --budget smoke|cpu|gpu|full` in a clone is `ladder study scratchpads` anywhere;
harness/sweep/studies/scratchpads.py says more.
"""

import sys

from chomsky_ladder.harness.cli.study import main
from chomsky_ladder.harness.sweep.studies.scratchpads import runs, table

if __name__ == "__main__":
    sys.exit(main(__file__, runs, table))
