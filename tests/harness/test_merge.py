"""`ladder merge`: what is taken, what is refused and why, and what two machines disagree about."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from records_by_hand import failure_of, folder_of, frame, record, result_of, runs

from harness import checkpoint, cli
from harness.collect import recorded
from harness.config import Run
from harness.files import read_json
from harness.merge import Merged, merge
from harness.records import RunFolder
from harness.tables import collect

Capture = pytest.CaptureFixture[str]

RUN, OTHER, THIRD = runs()[:3]


def finished(results: Path, run: Run, **changes: Any) -> Path:
    """A run as the loop leaves it when it is done."""
    folder = folder_of(results, run)
    folder.log(step=1, loss=0.5)
    folder.log_time(event="trained", seconds=1.0)
    content = {"run_id": run.run_id, "weights": torch.arange(5.0)}
    checkpoint.write(checkpoint.path_of(folder.path, 20_000), content)
    (folder.path / "lock").touch()
    folder.finish(result_of(run, **changes))
    return folder.path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def row_of(run: Run, **changes: Any) -> dict[str, Any]:
    """A line of records.csv that fits a run's id."""
    place = {"protocol": "xlstm_20k", "lr": run.train.lr, "seed": run.seed}
    return record(**place, run_id=run.run_id, **changes)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    finished(tmp_path / "there", RUN)
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def refused(merged: Merged, run: Run = RUN) -> str:
    assert (list(merged.refused), merged.taken, merged.lines) == ([run.run_id], [], [])
    return merged.refused[run.run_id]


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


def altered(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    tree = json.loads((folder / name).read_text())
    change(tree)
    (folder / name).write_text(json.dumps(tree))


def flip(folder: Path) -> None:
    path = next(folder.glob("*.ckpt"))
    blob = bytearray(path.read_bytes())
    blob[-200] ^= 1
    path.write_bytes(blob)


class Payload:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return open, ("executed", "w")


def pickled(folder: Path) -> None:
    checkpoint.write(next(folder.glob("*.ckpt")), {"run_id": RUN.run_id, "payload": Payload()})


def linked(folder: Path) -> None:
    outside = folder.parents[2] / "secret"
    outside.write_text("secret")
    (folder / "timing.jsonl").unlink()
    (folder / "timing.jsonl").symlink_to(outside)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another setting": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["train"].update(lr=0.5)),
        "its config is that of parity-lstm-s4-",
    ),
    "another seed": (
        lambda folder: altered(folder, "config.json", lambda tree: tree.update(seed=9)),
        "its config is that of parity-lstm-s9-",
    ),
    "another version": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["task"].update(version=99)),
        "the record was made with version 99",
    ),
    "an unknown task": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["task"].update(name="plugged")),
        "unknown task 'plugged'",
    ),
    "a config that is none": (lambda folder: (folder / "config.json").write_text("[]"), "its config.json is no run's"),
    "a torn config": (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
    "a torn result": (lambda folder: (folder / "result.json").write_text('{"a"'), "result.json is damaged"),
    "an empty result": (lambda folder: (folder / "result.json").write_text("{}"), "holds no result of a run"),
    "another's result": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(run_id=OTHER.run_id)),
        "holds the result of another run",
    ),
    "another rate in the result": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(lr=0.5)),
        "its result is not that of its config",
    ),
    "a flipped bit": (flip, "does not match its digest"),
    "a torn checkpoint": (
        lambda folder: next(folder.glob("*.ckpt")).write_bytes(b"ladder-checkpoint 1 "),
        "is not a checkpoint",
    ),
    "another's checkpoint": (
        lambda folder: checkpoint.write(next(folder.glob("*.ckpt")), {"run_id": OTHER.run_id}),
        f"is of {OTHER.run_id}",
    ),
    "a payload": (pickled, "holds something other than weights"),
    "a link": (linked, "timing.jsonl is not a plain file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_does_not_verify_is_refused(
    damage: str, dry_run: bool, there: Path, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(there)
    finished(there, OTHER)
    spoil, says = DAMAGES[damage]
    spoil(there / "runs" / RUN.run_id)
    merged = merge([there], here, dry_run=dry_run)
    assert merged.taken == [OTHER.run_id], "one run's damage is no other's"
    assert set(merged.refused) == {RUN.run_id} and says in merged.refused[RUN.run_id]
    assert not (there / "executed").exists()
    if dry_run:
        assert not here.exists()
    else:
        assert [path.name for path in (here / "runs").iterdir()] == [OTHER.run_id]
        assert list(recorded(here / "records.csv")) == [OTHER.run_id]
    assert cli.main(["merge", str(there), "--results", str(here)]) == 1
    assert f"ladder: {RUN.run_id} was not taken: " in capsys.readouterr().err


def test_runs_without_a_result_stay_there(there: Path, here: Path) -> None:
    folder_of(there, OTHER).log(step=1, loss=0.5)
    folder_of(there, THIRD).fail(failure_of(THIRD))
    merged = merge([there], here)
    assert merged == Merged(taken=[RUN.run_id], unfinished=sorted([OTHER.run_id, THIRD.run_id]))


@pytest.mark.parametrize("state", ["unfinished", "failed", "running", "only a lock"])
def test_a_run_without_a_result_here_is_not_overwritten(state: str, there: Path, here: Path) -> None:
    folder = RunFolder(here, RUN.run_id)
    if state == "failed":
        folder_of(here, RUN).fail(failure_of(RUN))
    elif state != "only a lock":
        folder_of(here, RUN).log(step=1, loss=0.5)
    with folder.locked():
        before = content(here)
        said = refused(merge([there], here))
        after = content(here)
    assert "is here without a result" in said
    assert after == before


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
    frame(row_of(RUN, test=0.5, commit="another", train_seconds=9.0)).to_csv(there / "records.csv", index=False)
    (conflict,) = merge([there], here).conflicts
    assert conflict.fields == {"test": (0.9, 0.5)} and conflict.there["commit"] == "another"
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


@pytest.mark.parametrize("name", [RUN.run_id.replace("parity", "../parity"), "parity-lstm-s4", f"{RUN.run_id}/..", "x"])
def test_a_line_whose_id_does_not_fit_it_is_refused(name: str, tmp_path: Path, here: Path) -> None:
    there = tmp_path / "records"
    there.mkdir()
    row = {**row_of(RUN), "run_id": name, "task": "../parity" if name.startswith("..") else "parity"}
    frame(row).to_csv(there / "records.csv", index=False)
    merged = merge([there], here)
    assert list(merged.refused) == [name] and merged.lines == []
    assert not (here / "records.csv").exists()


def test_damaged_records_are_a_mistake(there: Path, here: Path, capsys: Capture) -> None:
    (there / "records.csv").write_text("run_id,colour\na,b\n")
    assert cli.main(["merge", str(there), "--results", str(here)]) == 2
    assert "is no table of records" in capsys.readouterr().err
    assert not here.exists()


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


def test_a_run_that_appears_here_meanwhile_wins(there: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copy2

    def raced(source: Path, target: Path) -> None:
        folder_of(here, RUN)
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", raced)
    assert "not empty" in refused(merge([there], here)).lower()
    assert [path.name for path in (here / "runs" / RUN.run_id).iterdir()] == ["config.json"]


def test_one_merge_at_a_time(there: Path, here: Path) -> None:
    staging = here / "runs" / ".merging"
    with RunFolder(here, ".merging").locked(), pytest.raises(ValueError, match="another process merges"):
        merge([there], here)
    assert [path.name for path in staging.iterdir()] == ["lock"]


def test_a_file_that_is_gone_is_stood_for_by_its_hash(there: Path, here: Path, tmp_path: Path) -> None:
    strings = tmp_path / "strings.jsonl"
    assert cli.main(["export", "parity", "--out", str(strings), "--count", "8"]) == 0
    run = replace(RUN, eval=replace(RUN.eval, file=str(strings)))
    finished(there, run)
    assert read_json(there / "runs" / run.run_id / "config.json")["eval"]["file"] == str(strings)
    strings.write_text("something else\n")
    assert set(merge([there], here).taken) == {RUN.run_id, run.run_id}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "ladder merge needs the FOLDER"),
        (["nowhere"], "nowhere has neither runs/ nor records.csv"),
        (["here"], "here is the folder that would be merged into"),
        (["there", "nowhere"], "nowhere has neither"),
    ],
)
def test_mistakes(
    words: list[str], says: str, there: Path, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(there.parent)
    (here / "runs").mkdir(parents=True)
    assert cli.main(["merge", *words, "--results", "here"]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == ""
    assert list((here / "runs").iterdir()) == []


def test_a_folder_that_cannot_be_written(there: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot write results to"):
        merge([there], tmp_path / "file")
