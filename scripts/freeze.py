"""Freeze a suite: tasks with their versions and every setting, lengths and protocol, under a name that never changes.

    python scripts/freeze.py NAME          writes harness/config/suites/NAME.json, and never over an existing one

From then on the suite is the protocol of that name (`ladder run parity lstm --protocol ladder-v1`). It spells out every
setting, so that no later default affects it. It holds the hash of each task's first test strings, which a test makes
again. A task of another version is refused under it. A changed suite gets another name.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.parts import plain, replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.train.suite import FOLDER, strings_hash
from chomsky_ladder.tasks.base import Task

TASKS = (
    *("parity", "even_pairs", "cycle_nav", "mod_arithmetic", "mod_arithmetic_brackets", "solve_equation"),
    *("bucket_sort", "missing_duplicate", "odds_first", "repetition", "reverse_string", "stack_manipulation"),
    *("set", "majority", "majority_count", "duplicate_string", "binary_addition", "binary_multiplication"),
    *("compute_sqrt", "word_problem", "flip_flop", "dyck", "counter_language", "mqar", "selective_copying"),
)


# name, skill, task, settings; from the lowest to the highest
RUNGS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("remember", "the last write", "flip_flop", {}),
    ("compare ends", "first = last", "even_pairs", {}),
    ("count mod 2", "parity", "parity", {}),
    ("count mod 3", "a cycle of three", "cycle_nav", {}),
    ("compose S3", "a solvable group", "word_problem", {"group": "S3", "inputs": "all"}),
    ("compose A5", "a group that is not solvable", "word_problem", {}),
    ("count", "which of two is more", "majority", {}),
    ("nest", "which bracket closes", "dyck", {}),
    ("reverse", "a stack, read out", "reverse_string", {}),
    ("copy", "a queue", "repetition", {}),
    ("sort", "counters, read out", "bucket_sort", {}),
    ("recall", "a dictionary", "mqar", {}),
)
CLIMB_TASKS: dict[str, dict[str, Any]] = {
    "cycle_nav": {"cycle": 3},
    "word_problem": {"group": "A5", "inputs": "generators"},
    "majority": {"num_symbols": 2},
    "dyck": {"depth": 64},
    "reverse_string": {"num_symbols": 2},
    "repetition": {"num_symbols": 2},
}


def languages() -> dict[str, Any]:
    """Return 25 languages with the lengths and the budget of xlstm_20k."""
    base = PROTOCOLS["xlstm_20k"]
    train = plain(replaced(Train(), {"lr": base.rates[0], **base.train}, where="train"))
    score = {name: value for name, value in plain(Eval()).items() if not name.startswith("file")}
    tasks = {name: find_task(name)() for name in TASKS}
    return {
        "source": "25 languages from regular to context-sensitive; lengths, selection and scores as in xlstm_20k",
        "rates": base.rates,
        "seeds": base.seeds,
        **_frozen(tasks, train, score),
        "model": base.model,
        "tasks": {name: plain(task) for name, task in tasks.items()},
        "strings": {name: _hash(task, score) for name, task in tasks.items()},
    }


def climb() -> dict[str, Any]:
    """Return twelve rungs at a budget for two CPU cores.

    The log under results/climb gives the reasons for these numbers.
    """
    base = PROTOCOLS["xlstm_cpu"]
    changes = {"steps": 2000, "batch": 32, "curriculum": [10, 20, 40, 40], "lr": RATES[0], "stop_after": 3}
    train = plain(replaced(Train(), {**base.train, **changes}, where="train"))
    counts = {"test": 1024, "validation": 128, "every": 200, "extrapolate": [512], "extrapolation": 64}
    score = {name: value for name, value in plain(replaced(Eval(), counts, where="eval")).items() if "file" not in name}
    tasks = {}
    for name in dict.fromkeys(rung[2] for rung in RUNGS):
        task = find_task(name)(**CLIMB_TASKS.get(name, {}))
        tasks[name] = replace(task, supervision="dense") if "supervision" in plain(task) else task
    rungs = [
        {
            "name": name,
            "asks": asks,
            "task": task,
            "settings": settings,
            "strings": _hash(replaced(tasks[task], settings, where="task"), score),
        }
        for name, asks, task, settings in RUNGS
    ]
    return {
        "source": "twelve tasks from a memory of one bit to copying: every prefix's answer trained on, a curriculum of "
        "lengths to 40, 2,000 steps of 32 strings, one size, a stop when validation stays perfect",
        "rates": RATES,
        "seeds": 3,
        **_frozen(tasks, train, score),
        "params": 100_000,
        "model": {name: value for name, value in base.model.items() if name != "d_model"},
        "models": {"mamba2": {"head_dim": 16}},  # at 64 it has 71,000 parameters or 143,000
        "tasks": {name: plain(task) for name, task in tasks.items()},
        "rungs": rungs,
    }


def fifteen() -> dict[str, Any]:
    """Return the xLSTM paper's fifteen tasks at a budget for two CPU cores. The pilot is under results/fifteen."""
    base = PROTOCOLS["xlstm_cpu"]
    train = plain(replaced(Train(), {**base.train, "steps": 8000, "lr": 1e-2, "stop_after": 3}, where="train"))
    counts = {"test": 4096, "validation": 512, "every": 500, "extrapolate": [512, 1024], "extrapolation": 256}
    score = {name: value for name, value in plain(replaced(Eval(), counts, where="eval")).items() if "file" not in name}
    tasks = {name: _dense(find_task(name)()) for name in FIFTEEN}
    return {
        "source": "the fifteen tasks of Beck et al. 2024 (2405.04517) in their definitions, at 8,000 steps of 32 "
        "strings (paper: 100,000 of 256) and width 64; every prefix's answer is trained on where a task has one, since "
        "with the last answer alone this budget teaches an LSTM no modular arithmetic. One seed chooses among three "
        "rates, three fresh seeds are reported. xLSTM as in its authors' package, with a convolution and zeros in the "
        "sLSTM",
        "rates": (1e-2, 3e-3, 1e-3),
        "seeds": 1,
        **_frozen(tasks, train, score),
        "model": {"d_model": 64, "num_blocks": 2, "num_heads": 4},
        "models": {"xlstm": PROTOCOLS["xlstm_code"].models["xlstm"]},
        "tasks": {name: plain(task) for name, task in tasks.items()},
        "strings": {name: _hash(task, score) for name, task in tasks.items()},
    }


def _dense(task: Task) -> Task:
    """Return the task with every prefix's answer trained on, or as it is where prefixes have none."""
    try:
        return replace(task, supervision="dense") if "supervision" in plain(task) else task
    except ValueError:
        return task


def second_climb() -> dict[str, Any]:
    """Return the climb at a budget that its pilot chose. results/LOG.md has the pilot and the reasons."""
    first = climb()
    changes = {"steps": 10_000, "batch": 64, "lr": 3e-3, "stop_after": 0}
    train = plain(replaced(Train(), {**first["train"], **changes}, where="train"))
    counts = {"test": 7168, "validation": 512, "validate": "training", "every": 250, "extrapolation": 256}
    score = {**first["eval"], **counts}
    tasks = {
        name: replaced(find_task(name)(), task | SECOND_TASKS.get(name, {}), where="task")
        for name, task in first["tasks"].items()
    }
    rungs = [
        rung | {"strings": _hash(replaced(tasks[rung["task"]], rung["settings"], where="task"), score)}
        for rung in first["rungs"]
    ]
    return {
        "source": "the twelve rungs of climb-v1 with ten times the training (10,000 steps of 64 strings), no early "
        "stop, five learning rates that one seed chooses among at training lengths, five fresh seeds that are "
        "reported, and the models in their authors' forms; the last write comes after long silences, brackets nest "
        "deep, queries stand far behind their pairs, and a sorted string counts if all of it is right",
        "rates": (3e-2, 1e-2, 3e-3, 1e-3, 3e-4),
        "seeds": 1,
        "report": 5,
        "ties": "sooner",
        **_frozen(tasks, train, score),
        "params": 100_000,
        "model": first["model"],
        "models": SECOND_FORMS,
        "tasks": {name: plain(task) for name, task in tasks.items()},
        "cases": [{"tasks": ["bucket_sort"], "eval": {"score": "strings"}}],
        "rungs": rungs,
    }


def text() -> dict[str, Any]:
    """Return next bytes of a text, at the size of climb-v1 and a budget for two CPU cores. The study names the text."""
    first, task = climb(), find_task("text")()
    train = {**first["train"], "steps": 1000, "batch": 16, "curriculum": [], "lr": 3e-2, "stop_after": 0}
    score = {**first["eval"], "test": 2048, "validation": 512, "every": 1000}
    return {
        "source": "the next byte of a text, 1,000 steps of 16 windows of 128 bytes, at the size and in the forms of "
        "climb-v1, whose widths are counted with 16 symbols: with 256 bytes a wider model has a larger embedding. One "
        "seed chooses among three rates on validation, and one fresh seed is reported",
        "rates": (3e-2, *first["rates"]),
        "seeds": 1,
        **_frozen({task.name: task}, train, score),
        **{name: first[name] for name in ("params", "model", "models")},
        "tasks": {task.name: plain(task)},
        "strings": {task.name: _hash(task, {**score, "lengths": task.own_lengths})},
    }


RATES = (1e-2, 3e-3)
SECOND_TASKS: dict[str, dict[str, Any]] = {
    "flip_flop": {"silence": True},
    "dyck": {"nesting": "deep"},
    "mqar": {"power": 100},
}
SECOND_FORMS: dict[str, dict[str, Any]] = {
    "mamba2": {"head_dim": 16},  # at 64 it has 71,000 parameters or 143,000
    "xlstm": PROTOCOLS["xlstm_code"].models["xlstm"],  # as in its authors' package
    "pd_ssm": {"d_state": 64, "num_maps": 4},  # a state for each of A5's 60 elements
    "slice": {"saturates_at": 1e11},  # structured-linear-cdes, models/slcde.py
    "gated_delta_product": {"num_householders": 4},  # as many reflections as S5 needs (2502.10297)
}
SUITES = {"ladder-v1": languages, "climb-v1": climb, "climb-v2": second_climb, "fifteen-v1": fifteen, "text-v1": text}
FIFTEEN = (
    *("mod_arithmetic", "stack_manipulation", "solve_equation", "bucket_sort", "cycle_nav", "mod_arithmetic_brackets"),
    *("reverse_string", "missing_duplicate", "odds_first", "set", "repetition", "majority_count", "majority"),
    *("even_pairs", "parity"),
)


def _frozen(tasks: dict[str, Task], train: dict[str, Any], score: dict[str, Any]) -> dict[str, Any]:
    versions = {name: task.version for name, task in tasks.items()}
    return {"table": list(tasks), "versions": versions, "train": train, "eval": score}


def _hash(task: Task, score: dict[str, Any]) -> str:
    return strings_hash(task, lengths=tuple(score["lengths"]), seed=score["seed"])


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in SUITES:
        print(f"freeze.py: it needs the name of a suite that it makes: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    path = Path(str(FOLDER)) / f"{words[0]}.json"
    if path.exists():
        print(f"freeze.py: {path.name} is frozen: take another name", file=sys.stderr)
        return 2
    content = json.dumps(SUITES[words[0]](), indent=1) + "\n"
    path.write_text(content, "utf-8")
    with path.with_name("frozen.sha256").open("a", encoding="utf-8") as known:  # edits are refused from now on
        known.write(f"{hashlib.sha256(content.encode()).hexdigest()}  {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
