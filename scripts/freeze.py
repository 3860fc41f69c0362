"""Freeze a suite: tasks with their versions and every setting, lengths and protocol, under a name nothing can move.

    python scripts/freeze.py NAME          writes harness/config/suites/NAME.json, and never over one that is there

The suite is the protocol of that name from then on (`ladder run parity lstm --protocol ladder-v1`). It spells out every
setting, so that no later default reaches it; it holds the hash of each task's first test strings, which a test makes
again; and a task of another version is refused under it. What is to change becomes another suite.
"""

import json
import sys
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.parts import plain, replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.train.suite import FOLDER, strings_hash

TASKS = (
    *("parity", "even_pairs", "cycle_nav", "mod_arithmetic", "mod_arithmetic_brackets", "solve_equation"),
    *("bucket_sort", "missing_duplicate", "odds_first", "repetition", "reverse_string", "stack_manipulation"),
    *("set", "majority", "majority_count", "duplicate_string", "binary_addition", "binary_multiplication"),
    *("compute_sqrt", "word_problem", "flip_flop", "dyck", "counter_language", "mqar", "selective_copying"),
)


def suite() -> dict[str, Any]:
    base = PROTOCOLS["xlstm_20k"]
    train = plain(replaced(Train(), {"lr": base.rates[0], **base.train}, where="train"))
    score = {name: value for name, value in plain(Eval()).items() if not name.startswith("file")}
    tasks = {name: find_task(name)() for name in TASKS}
    return {
        "source": "25 languages from regular to context-sensitive; lengths, selection and scores as in xlstm_20k",
        "rates": base.rates,
        "seeds": base.seeds,
        "table": TASKS,
        "versions": {name: task.version for name, task in tasks.items()},
        "train": train,
        "eval": score,
        "model": base.model,
        "tasks": {name: plain(task) for name, task in tasks.items()},
        "strings": {
            name: strings_hash(task, lengths=tuple(score["lengths"]), seed=score["seed"])
            for name, task in tasks.items()
        },
    }


def main(words: list[str]) -> int:
    if len(words) != 1 or not words[0].replace("-", "_").isidentifier():
        print("freeze.py: a name for the suite, such as ladder-v1, is what it needs", file=sys.stderr)
        return 2
    path = Path(str(FOLDER)) / f"{words[0]}.json"
    if path.exists():
        print(f"freeze.py: {path.name} is frozen: take another name", file=sys.stderr)
        return 2
    path.write_text(json.dumps(suite(), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
