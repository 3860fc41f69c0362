"""Records collected from folders of runs: what becomes one, what replaces one, and what outlives its run."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, collect, stored
from support.records_by_hand import FLOORS, SCORES, failure_of, filled, folder_of, result_of, runs


def test_a_finished_run_becomes_a_record(tmp_path: Path) -> None:
    run = runs()[3]
    folder = folder_of(tmp_path, run)
    assert Record.of(folder) is None
    for step, accuracy in ((100, 0.9), (200, 0.95), (300, 0.94), (400, 0.989)):
        folder.log(step=step, validation=accuracy)
    folder.finish(result_of(run))
    found = Record.of(folder)
    assert found is not None
    assert found.model_dump() == {
        "run_id": run.run_id,
        "protocol": "xlstm_20k (eval.test=9)",
        "task": "parity",
        "level": "regular",
        "model": "lstm (d_model=16)",
        "protocol_name": "xlstm_20k",
        "task_name": "parity",
        "model_name": "lstm",
        "settings": '{"eval.test":9,"model.d_model":16}',
        "traits": "tracks_state",
        "transition": "lstm",
        "demand": "parity",
        "lr": 1e-2,
        "seed": 7,
        "status": "done",
        "steps": 20_000,
        "stopped_early": True,
        "tokens_per_step": 5504.0,
        "steps_to_95": 200,
        "steps_to_99": None,
        "parameters": 4321,
        "state_bytes": 512,
        **FLOORS,
        "test": 0.875,
        "test_scaled": 0.75,
        "test_exact": 0.5,
        "test_hits": 0.8,
        "test_loss": 0.25,
        "test_bins": '{"40..64":0.9,"65..96":0.7}',
        "content_free_bins": '{"40..64":0.5,"65..96":0.51}',
        "extrapolation": '{"512":0.1,"1024":0.3333333333333333}',
        "metrics": "{}",
        "validation": 0.8125,
        "in_distribution": 1.0,
        "train_seconds": 12.5,
        "score_seconds": 0.1,
        "device": "a processor",
        "fingerprint": "abcdef012345",
        "mixed_numerics": False,
        "backends": "torch.lstm torch.sdpa",
        "torch": "2.11.0",
        "commit": "c0ffee",
        "dirty": True,
        "error": "",
        "sources": "",
    }


def test_a_diverged_and_a_failed_run_are_records_without_scores(tmp_path: Path) -> None:
    found = collect(filled(tmp_path)).set_index("run_id")
    done, diverged, failed, under_way = (run.run_id for run in runs())
    assert set(found.index) == {done, diverged, failed} and under_way not in found.index
    assert found["status"].to_dict() == {done: "done", diverged: "diverged", failed: "failed"}
    assert found["steps"].to_dict() == {done: 20_000, diverged: 7, failed: 0}
    assert found.loc[[diverged, failed], list(SCORES)].isna().all(axis=None)
    assert found.loc[failed, "error"] == 'RuntimeError: a "quote", a comma\nand a line'


def test_a_result_outweighs_an_old_failure(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    folder.fail(failure_of(run))
    folder.finish(result_of(run))
    assert collect(tmp_path)["status"].tolist() == ["done"]


@pytest.mark.parametrize("change", ["version", "protocol", "task"])
def test_a_record_needs_no_code_of_its_run(change: str, tmp_path: Path) -> None:
    """A result of an older version, an unknown protocol or a missing plugin names what it is of."""
    run = runs()[0]
    folder_of(tmp_path, run).finish(result_of(run))
    tree, said = run.plain(), result_of(run, run_id="parity-of-old")
    if change == "protocol":
        tree["protocol"] = said["protocol_name"] = "of_old"
    elif change == "version":
        tree["task"]["version"] = 9
        said["settings"] = {**said["settings"], "task.version": 9}
    else:
        tree["task"]["name"] = said["task_name"] = "of old"
    old = RunFolder(tmp_path, "parity-of-old")
    old.path.mkdir()
    (old.path / "config.json").write_text(json.dumps(tree))
    old.finish(said)
    found = collect(tmp_path).set_index("run_id")
    assert set(found.index) == {run.run_id, "parity-of-old"}
    shown = {"version": ["xlstm_20k", "parity v9"], "protocol": ["of_old", "parity"], "task": ["xlstm_20k", "of old"]}
    assert found.loc["parity-of-old", ["protocol", "task"]].tolist() == shown[change]


def test_a_result_in_another_runs_folder_is_refused(tmp_path: Path) -> None:
    run, other = runs()[:2]
    folder = folder_of(tmp_path, run)
    folder.finish(result_of(other))
    with pytest.raises(ValueError, match=f"{run.run_id} holds the result of another run, {other.run_id}"):
        Record.of(folder)


def test_a_failure_whose_message_is_no_text_is_a_record(tmp_path: Path) -> None:
    (run, *_) = runs()
    folder_of(tmp_path, run).fail(failure_of(run, "OSError: no file \udce9t\udce9"))
    assert collect(tmp_path).loc[0, "error"] == "OSError: no file ?t?"


def test_a_failure_is_gone_once_a_retry_opens_the_folder(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    assert folder.failure() is None
    folder.fail(failure_of(run))
    assert folder.failure() == failure_of(run)
    found = Record.of(folder)
    assert found is not None
    assert (found.status, found.error, found.commit, found.dirty) == ("failed", "RuntimeError: once", "c0ffee", True)
    folder.open(run)
    assert folder.failure() is None and Record.of(folder) is None


def test_collecting_twice_changes_no_byte(tmp_path: Path) -> None:
    first = collect(filled(tmp_path))
    before = (tmp_path / "records.csv").read_bytes()
    again = collect(tmp_path)
    assert (tmp_path / "records.csv").read_bytes() == before
    pd.testing.assert_frame_equal(first, again)
    assert first["run_id"].tolist() == sorted(first["run_id"])


def test_records_outlive_their_runs(tmp_path: Path) -> None:
    """Lines that another machine collected and committed keep their bytes, and new ones join them."""
    collect(filled(tmp_path / "there"))
    before = (tmp_path / "there" / "records.csv").read_bytes()
    here = tmp_path / "here"
    here.mkdir()
    (here / "records.csv").write_bytes(before)
    assert len(collect(here)) == 3
    assert (here / "records.csv").read_bytes() == before
    run = replace(runs()[0], seed=10)  # between the others by its name
    folder_of(here, run).finish(result_of(run))
    merged = collect(here)
    assert merged["run_id"].tolist() == sorted([run.run_id, *(done.run_id for done in runs()[:3])])
    pd.testing.assert_frame_equal(stored(here / "records.csv"), merged)
    pd.testing.assert_frame_equal(collect(here), merged)


def test_a_run_here_replaces_its_record(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    folder.fail(failure_of(run))
    assert collect(tmp_path)["status"].tolist() == ["failed"]
    folder.finish(result_of(run))
    assert collect(tmp_path)["status"].tolist() == ["done"]
