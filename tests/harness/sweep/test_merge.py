"""`ladder merge`: what is taken, what is there already, and what two machines disagree about."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.record import Record, collect, recorded
from chomsky_ladder.harness.store.status import survey
from chomsky_ladder.harness.sweep.merge import Merged, merge
from support.folders_to_merge import OTHER, RUN, THIRD, content, finished, row_of
from support.folders_to_merge import here as here
from support.folders_to_merge import there as there
from support.records_by_hand import failure_of, folder_of, frame, result_of

Capture = pytest.CaptureFixture[str]


def test_a_finished_run_is_taken_whole(there: Path, here: Path) -> None:
    before = content(there)
    merged = merge([there], here)
    assert merged == Merged(taken=[RUN.run_id])
    assert content(there) == before
    taken = content(here / "runs" / RUN.run_id)
    assert taken == {k: v for k, v in content(there / "runs" / RUN.run_id).items() if k != "lock"}
    assert sorted(path.name for path in (here / "runs").iterdir()) == [RUN.run_id]
    assert list(recorded(here / "records.csv")) == [RUN.run_id]
    after = (here / "records.csv").read_bytes()
    collect(here)
    assert (here / "records.csv").read_bytes() == after


def test_a_line_of_a_plugins_second_version_is_taken_and_counted_with_its_task(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(OTHER.task), "version", 2)
    run = replace(OTHER, seed=5)  # made anew, so that its id is of the second version
    line = Record.model_validate({k: v for k, v in row_of(run).items() if v is not None} | columns_of(run))
    assert line.task == f"{run.task.name} v2" and (line.task_name, line.settings) == (run.task.name, line.settings)
    (tmp_path / "lines").mkdir()
    frame(line.model_dump()).to_csv(tmp_path / "lines" / "records.csv", index=False)
    assert merge([tmp_path / "lines"], here) == Merged(lines=[run.run_id])
    folder_of(here, replace(run, seed=6))
    finished(here, run)
    assert {(each.task, each.model) for each in survey(here)} == {(run.task.name, run.model.name)}


def test_a_second_merge_changes_nothing(there: Path, here: Path) -> None:
    finished(here, OTHER)
    merge([there], here)
    before = content(here)
    assert merge([there], here) == Merged(same=[RUN.run_id])
    assert merge([there, there], here) == Merged(same=[RUN.run_id, RUN.run_id])
    assert content(here) == before


def test_clocks_and_hardware_are_no_difference(there: Path, here: Path) -> None:
    changes = {
        "seconds": {"train": 99.0, "score": 9.0},
        "numerics": {"device": "another", "torch": "2.12.0"},
        "fingerprint": "000000000000",
        "mixed_numerics": True,
        "provenance": {"commit": "another", "dirty": False},
        "backends": ["triton_lstm"],
    }
    finished(here, RUN, **changes)
    before = content(here)
    assert merge([there], here) == Merged(same=[RUN.run_id])
    assert content(here) == before


def test_other_numbers_are_reported_and_kept_as_they_are_here(there: Path, here: Path, capsys: Capture) -> None:
    score = result_of(RUN)["test"]
    changes = {"test": {**score, "accuracy": 0.5, "counts": {"correct": [1]}}, "fingerprint": "fedcba"}
    finished(here, RUN, **changes)
    finished(there, OTHER)
    before = content(here)
    merged = merge([there], here, dry_run=True)
    assert content(here) == before
    (conflict,) = merged.conflicts
    assert conflict.fields == {"test.accuracy": (0.5, 0.875)}
    assert (conflict.run_id, conflict.here["fingerprint"]) == (RUN.run_id, "fedcba")
    assert (conflict.there["fingerprint"], conflict.there["commit"]) == ("abcdef012345", "c0ffee")
    for _ in range(2):
        assert cli.main(["merge", str(there), "--results", str(here)]) == 1
        said = capsys.readouterr().out
        assert f"{RUN.run_id} has other numbers in {there}; kept as it is here" in said
        assert [line.split() for line in said.splitlines() if "test.accuracy" in line] == [
            ["test.accuracy", "0.5", "0.875"]
        ]
        assert "fedcba" in said and "abcdef012345" in said
    after = content(here)
    assert {k: v for k, v in after.items() if RUN.run_id in k} == {k: v for k, v in before.items() if RUN.run_id in k}
    assert (here / "runs" / OTHER.run_id / "result.json").exists(), "the others are taken"


def test_counts_that_differ_are_other_numbers(there: Path, here: Path) -> None:
    """Behind equal accuracies."""
    score = result_of(RUN)["test"]
    for results, correct in ((here, [3, 1]), (there, [1, 3])):
        shutil.rmtree(results, ignore_errors=True)
        finished(results, RUN, test={**score, "counts": {"correct": correct}})
    (conflict,) = merge([there], here).conflicts
    assert conflict.fields == {"test.counts.correct": ([3, 1], [1, 3])}


def test_done_here_and_diverged_there_differ(there: Path, here: Path) -> None:
    finished(here, RUN, status="diverged", loss="nan", grad_norm="nan", steps=7)
    (conflict,) = merge([there], here).conflicts
    assert conflict.fields["status"] == ("diverged", "done") and conflict.fields["steps"] == (7, 20_000)


def test_runs_without_a_result_stay_there(there: Path, here: Path) -> None:
    folder_of(there, OTHER).log(step=1, loss=0.5)
    folder_of(there, THIRD).fail(failure_of(THIRD))
    merged = merge([there], here)
    assert merged == Merged(taken=[RUN.run_id], unfinished=sorted([OTHER.run_id, THIRD.run_id]))


def test_a_line_of_a_failure_here_gives_way(there: Path, here: Path) -> None:
    here.mkdir()
    frame(row_of(RUN, status="failed"), row_of(OTHER, status="failed")).to_csv(here / "records.csv", index=False)
    frame(row_of(OTHER)).to_csv(there / "records.csv", index=False)
    merged = merge([there], here)
    assert (merged.taken, merged.lines) == ([RUN.run_id], [OTHER.run_id])
    assert {found.status for found in recorded(here / "records.csv").values()} == {"done"}


def test_records_alone(tmp_path: Path, here: Path) -> None:
    there = tmp_path / "records"
    there.mkdir()
    frame(row_of(RUN), row_of(OTHER), row_of(THIRD, status="failed")).to_csv(there / "records.csv", index=False)
    finished(here, replace(RUN, seed=30))
    assert merge([there], here, dry_run=True).lines == [RUN.run_id, OTHER.run_id]
    assert not (here / "records.csv").exists()
    assert merge([there], here) == Merged(lines=[RUN.run_id, OTHER.run_id])
    found = recorded(here / "records.csv")
    assert sorted(found) == sorted([RUN.run_id, OTHER.run_id, replace(RUN, seed=30).run_id])
    assert found[RUN.run_id].model_dump() == row_of(RUN)
    before = content(here)
    assert merge([there], here) == Merged(same=[RUN.run_id, OTHER.run_id])
    frame(row_of(RUN, test=0.5, test_scaled=0.0, commit="another", train_seconds=9.0)).to_csv(
        there / "records.csv", index=False
    )
    (conflict,) = merge([there], here).conflicts
    assert conflict.fields == {"test": (0.9, 0.5), "test_scaled": (0.8, 0.0)} and conflict.there["commit"] == "another"
    assert content(here) == before


def test_a_line_here_and_a_folder_there(there: Path, here: Path) -> None:
    """The folder is taken if its numbers are those of the line."""
    collect(there)
    here.mkdir()
    shutil.copy(there / "records.csv", here)
    before = (here / "records.csv").read_bytes()
    assert merge([there], here) == Merged(taken=[RUN.run_id])
    assert (here / "records.csv").read_bytes() == before
    shutil.rmtree(here)
    here.mkdir()
    frame(row_of(RUN)).to_csv(here / "records.csv", index=False)
    merged = merge([there], here)
    assert merged.taken == [] and merged.conflicts[0].fields["test"] == (0.9, 0.875)


def test_a_stale_line_does_not_hide_the_folder_beside_it(there: Path, here: Path) -> None:
    frame(row_of(RUN, test=0.1)).to_csv(there / "records.csv", index=False)
    assert merge([there], here) == Merged(taken=[RUN.run_id])
    assert recorded(here / "records.csv")[RUN.run_id].test == 0.875


def test_several_folders_at_once(tmp_path: Path, there: Path, here: Path, capsys: Capture) -> None:
    third = tmp_path / "third"
    finished(third, RUN)
    finished(third, OTHER)
    for dry_run in (True, False):
        merged = merge([there, third], here, dry_run=dry_run)
        assert merged == Merged(taken=[RUN.run_id, OTHER.run_id], same=[RUN.run_id])
    assert cli.main(["merge", str(there), str(third), "--results", str(here)]) == 0
    assert capsys.readouterr().out.startswith("took 0 runs and 0 lines of records.csv\n3 were here with the same")


def test_two_folders_that_disagree(tmp_path: Path, there: Path, here: Path) -> None:
    third = tmp_path / "third"
    finished(third, RUN, steps=5)
    for dry_run in (True, False):
        merged = merge([there, third], here, dry_run=dry_run)
        assert merged.taken == [RUN.run_id] and merged.conflicts[0].folder == third


def test_what_a_killed_merge_left_is_no_obstacle(there: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copy2", killed)
    with pytest.raises(KeyboardInterrupt):
        merge([there], here)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="no finished runs"):
        collect(here)
    assert merge([there], here) == Merged(taken=[RUN.run_id])
    assert [path.name for path in (here / "runs").iterdir()] == [RUN.run_id]


def test_a_file_that_is_gone_is_stood_for_by_its_hash(there: Path, here: Path, tmp_path: Path) -> None:
    strings = tmp_path / "strings.jsonl"
    assert cli.main(["export", "parity", "--out", str(strings), "--count", "8"]) == 0
    run = replace(RUN, eval=replace(RUN.eval, file=str(strings)))
    finished(there, run)
    assert read_json(there / "runs" / run.run_id / "config.json")["eval"]["file"] == str(strings)
    strings.write_text("something else\n")
    assert set(merge([there], here).taken) == {RUN.run_id, run.run_id}
