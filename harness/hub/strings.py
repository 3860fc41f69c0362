"""The test strings of the frozen suites as columns, a row a string.

length 5   tokens "a b b b"   read_at [3]   answer "b"     a string, where it is asked, and the right answers
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.train.export import blank_answers, rows

MODEL = "lstm"  # strings are the same for every model


def tasks_of(suite: str) -> dict[str, Run]:
    """Return a run for each set of test strings of a suite, by the name of its rung or task."""
    protocol = PROTOCOLS[suite]
    if not protocol.rungs:
        return {task: preset_run(task, MODEL, protocol=suite) for task in protocol.tasks}
    found = {}
    for rung in protocol.rungs:
        run = preset_run(rung.task, MODEL, protocol=suite)
        found[rung.name.replace(" ", "_")] = replace(run, task=replaced(run.task, rung.settings, where="task"))
    return found


def strings(run: Run, *, count: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the test strings of a run, or the first `count` of them, in words of the vocabulary."""
    task = blank_answers(without_training_targets(run.task))
    legal = task.legal_lengths(*run.eval.lengths)
    for line in rows(task, legal, count=count or run.eval.test, seed=run.eval.seed, split="test"):
        row = json.loads(line)
        yield {
            "length": row["length"],
            "tokens": " ".join(task.vocab[token] for token in row["tokens"]),
            "read_at": row["read_at"],
            "answer": " ".join(task.vocab[token] for token in row["answer"]),
        }
