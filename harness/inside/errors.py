"""The errors of a trained model: accuracy by answer slot, confusions between answers, and strings it gets wrong."""

from collections import Counter
from typing import Any

import torch

from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import restored
from chomsky_ladder.harness.train.evaluate import Answers, Evaluator

STRINGS = 10


def report(folder: RunFolder) -> dict[str, Any]:
    """Answer the test strings of a run again with its newest weights, and report the errors."""
    run, model, step = restored(folder)
    evaluator = Evaluator(run, model, device=torch.device("cpu"), backend="auto")
    slots: Counter[int] = Counter()
    right: Counter[int] = Counter()
    confusion: Counter[tuple[int, int]] = Counter()
    strings = []
    for said in evaluator.test_answers():
        scored_BL = said.batch.scored_BL
        slot_BL = scored_BL.cumsum(1) - 1
        slots.update(slot_BL[scored_BL].tolist())
        right.update(slot_BL[said.right_BL].tolist())
        confusion.update(zip(said.batch.targets_BL[scored_BL].tolist(), said.said_BL[scored_BL].tolist(), strict=True))
        wrong = (scored_BL & ~said.right_BL).any(1).nonzero()[:, 0].tolist()
        strings += [_string(evaluator.task.vocab, said, row) for row in wrong]
        strings = sorted(strings, key=lambda string: (string["length"], string["row"]))[:STRINGS]
    vocab = evaluator.task.vocab
    return {
        "run_id": run.run_id,
        "step": step,
        "accuracy_by_slot": {slot: right[slot] / count for slot, count in sorted(slots.items())},
        "confusion": [
            {"answer": vocab[answer], "said": vocab[said], "count": count}
            for (answer, said), count in confusion.most_common()
            if answer != said
        ],
        "strings": strings,
    }


def _string(vocab: tuple[str, ...], said: Answers, row: int) -> dict[str, Any]:
    positions, scored_L = int(said.batch.length_B[row]), said.batch.scored_BL[row]
    return {
        "row": int(said.rows_B[row]),
        "length": int(said.lengths_B[row]),
        "input": " ".join(vocab[token] for token in said.batch.tokens_BL[row, :positions].tolist()),
        "answer": " ".join(vocab[token] for token in said.batch.targets_BL[row][scored_L].tolist()),
        "said": " ".join(vocab[token] for token in said.said_BL[row][scored_L].tolist()),
    }


def text(tree: dict[str, Any]) -> str:
    by_slot = tree["accuracy_by_slot"]
    lines = [f"{tree['run_id']} at step {tree['step']}, on its test strings", "accuracy by answer slot"]
    lines += [f"  {slot:4}  {value:.4f}" for slot, value in list(by_slot.items())[:STRINGS]]
    if len(by_slot) > STRINGS:
        lines.append(f"   ..  {len(by_slot) - STRINGS} more, down to {min(by_slot.values()):.4f}")
    if not tree["strings"]:
        return "\n".join([*lines, "no errors"])
    lines.append("most frequent confusions")
    lines += [f"  {c['answer']} taken for {c['said']}: {c['count']}" for c in tree["confusion"][:STRINGS]]
    lines.append("strings it gets wrong, the shortest first")
    for s in tree["strings"]:
        lines.append(f"  {s['input']}\n    answer {s['answer']}\n    said   {s['said']}")
    return "\n".join(lines)
