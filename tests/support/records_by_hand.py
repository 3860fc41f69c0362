"""Records, and folders of runs with their results and failures, made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.protocols import columns_of, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record

SCORES = (
    "s_rand",
    "best_constant",
    "content_free",
    "test",
    "test_scaled",
    "test_exact",
    "test_hits",
    "test_loss",
    "validation",
    "in_distribution",
    "train_seconds",
    "score_seconds",
)
OF_SOME_SUITES = (
    *("bits", "examples", "text", "language", "metrics", "climb", "hypotheses", "held_pairs"),
    *("literature", "regular", "scratchpad", "short_conv", "sources"),
)
"""Kinds of tables that only some suites have; the others are of any suite."""
FLOORS = {"s_rand": 0.5, "best_constant": 0.55, "content_free": 0.6}


def record(*, status: str = "done", **changes: Any) -> dict[str, Any]:
    """One row; of a run that is not done, without scores."""
    row: dict[str, Any] = {
        "protocol": "xlstm",
        "task": "parity",
        "level": "regular",
        "model": "lstm",
        "lr": 1e-3,
        "seed": 0,
        "status": status,
        "steps": 100,
        "tokens_per_step": 5504.0,
        "parameters": 1234,
        **FLOORS,
        "test": 0.9,
        "test_scaled": 0.8,
        "test_exact": 0.7,
        "test_hits": 0.85,
        "test_loss": 0.25,
        "validation": 0.9,
        "in_distribution": 0.9,
        "train_seconds": 3.0,
        "score_seconds": 1.0,
    }
    row |= changes
    if status != "done":
        row |= dict.fromkeys(SCORES)
    named = (row["protocol"], row["task"], row["model"], row["lr"], row["seed"])
    return Record(**{"run_id": "-".join(map(str, named)), **row}).model_dump()


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(Record.model_fields))


def result_of(run: Run, **changes: Any) -> dict[str, Any]:
    """A result as the loop writes it."""
    score = {
        "accuracy": 0.875,
        "scaled": 0.75,
        "exact": 0.5,
        "hits": 0.8,
        "loss": 0.25,
        "bins": {"40..64": 0.9, "65..96": 0.7},
        "content_free_bins": {"40..64": 0.5, "65..96": 0.51},
        "counts": {},
    }
    return {
        **columns_of(run),
        "status": "done",
        "steps": 20_000,
        "tokens_per_step": 5504.0,
        "parameters": 4321,
        "state_bytes": 512,
        "numerics": {"device": "a processor", "torch": "2.11.0"},
        "fingerprint": "abcdef012345",
        "mixed_numerics": False,
        "provenance": {"commit": "c0ffee", "dirty": True},
        "stopped_early": True,
        "floors": FLOORS,
        "test": score,
        "validation": {**score, "accuracy": 0.8125},
        "in_distribution": {**score, "accuracy": 1.0},
        "extrapolation": {"512": {**score, "accuracy": 0.1}, "1024": {**score, "accuracy": 1 / 3}},
        "backends": ["torch.lstm", "torch.sdpa"],
        "seconds": {"train": 12.5, "score": 0.1},
        **changes,
    }


def failure_of(run: Run, error: str = "RuntimeError: once") -> dict[str, Any]:
    """A failure as the loop writes it."""
    return {**columns_of(run), "error": error, "traceback": "", "provenance": {"commit": "c0ffee", "dirty": True}}


def folder_of(results: Path, run: Run) -> RunFolder:
    folder = RunFolder(results, run.run_id)
    folder.open(run)
    return folder


def runs() -> list[Run]:
    run = preset_run("parity", "lstm", seed=4)
    return [
        run,
        replace(run, seed=5),
        replace(run, seed=6),
        replace(run, seed=7, model=replace(run.model, d_model=16), eval=replace(run.eval, test=9)),
    ]


def filled(results: Path) -> Path:
    """A folder with a run that is done, one that diverged, one that failed and one under way."""
    done, diverged, failed, under_way = runs()
    folder_of(results, done).finish(result_of(done))
    whole = result_of(diverged, status="diverged", steps=7, loss="nan")
    scoreless = {k: v for k, v in whole.items() if k not in ("test", "validation", "in_distribution", "extrapolation")}
    folder_of(results, diverged).finish(scoreless)
    folder_of(results, failed).fail(failure_of(failed, 'RuntimeError: a "quote", a comma\nand a line'))
    folder_of(results, under_way).log(step=1, loss=0.5)
    return results
