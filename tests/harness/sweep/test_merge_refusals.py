"""Refusals of `ladder merge`: damaged or foreign runs, runs that would overwrite one, and a user's mistakes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import recorded
from chomsky_ladder.harness.sweep.merge import Merged, merge
from support.folders_to_merge import OTHER, RUN, content, finished, row_of
from support.folders_to_merge import here as here
from support.folders_to_merge import there as there
from support.records_by_hand import failure_of, folder_of, frame

Capture = pytest.CaptureFixture[str]


def refused(merged: Merged, run: Run = RUN) -> str:
    assert (list(merged.refused), merged.taken, merged.lines) == ([run.run_id], [], [])
    return merged.refused[run.run_id]


def altered(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """A file changed; a result as those from before there were digests."""
    tree = json.loads((folder / name).read_text())
    tree.pop("sha256", None)
    change(tree)
    (folder / name).write_text(json.dumps(tree))


def replaced_in(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


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


COUNTS = {
    "lengths": [40],
    **{name: [8] for name in ("strings", "scored")},
    **{name: [6] for name in ("exact", "correct", "hits")},
    "nats": [2.0],
}
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another setting": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["train"].update(lr=0.5)),
        "its result is not that of its config: lr is 0.",
    ),
    "another seed": (
        lambda folder: altered(folder, "config.json", lambda tree: tree.update(seed=9)),
        "its result is not that of its config: seed",
    ),
    "another version": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["task"].update(version=99)),
        "its result is not that of its config: task.version is 1",
    ),
    "an unknown task": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["task"].update(name="plugged")),
        "its result is not that of its config: task is 'parity'",
    ),
    "a config that is none": (
        lambda folder: (folder / "config.json").write_text("[]"),
        "config.json is damaged: it holds no object",
    ),
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
    "a setting that the result does not know": (
        lambda folder: altered(folder, "config.json", lambda tree: tree["train"].update(clip=0.5)),
        "its config is that of parity-lstm-s4-",
    ),
    "another level in the result": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(level="context_sensitive")),
        "its result is not that of its config: level is 'context_sensitive'",
    ),
    "another model in the result": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(model_name="transformer")),
        "its result is not that of its config: model is 'transformer'",
    ),
    "a step too few": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(steps=39, stopped_early=False)),
        "its result is not that of its config: it has 39 steps of 20000",
    ),
    "an accuracy of nine": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["test"].update(accuracy=9.0)),
        "column.test: Input should be less than or equal to 1, not 9.0",
    ),
    "an accuracy that is none": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["test"].update(scaled=float("nan"))),
        "column.test_scaled: Input should be",
    ),
    "a scaled accuracy that is another's": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["test"].update(scaled=1.0)),
        "test_scaled is 1.0, and test 0.875 makes 0.75",
    ),
    "an accuracy that its counts do not make": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["validation"].update(counts=COUNTS)),
        "validation: accuracy is 0.8125, and its counts make 0.75",
    ),
    "counts that are none": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["validation"].update(counts={"correct": [1]})),
        "validation: its counts are no score's",
    ),
    "a truth for an accuracy": (
        lambda folder: altered(folder, "result.json", lambda tree: tree["test"].update(accuracy=True)),
        "test should be a number or a text, not True",
    ),
    "more parameters than a machine has": (
        lambda folder: altered(folder, "result.json", lambda tree: tree.update(parameters=10**30)),
        "column.parameters: Input should be",
    ),
    "one digit of a sealed result": (
        lambda folder: replaced_in(folder / "result.json", '"accuracy": 0.875', '"accuracy": 0.975'),
        "result.json or metrics.jsonl is not as the run wrote it",
    ),
    "metrics that have gone": (
        lambda folder: (folder / "metrics.jsonl").unlink(),
        "result.json or metrics.jsonl is not as the run wrote it",
    ),
    "another's metrics": (
        lambda folder: (folder / "metrics.jsonl").write_text('{"step":1,"loss":0.4}\n'),
        "result.json or metrics.jsonl is not as the run wrote it",
    ),
    "a checkpoint that is a list": (
        lambda folder: checkpoint.write(next(folder.glob("*.ckpt")), [1, 2]),  # type: ignore[arg-type]
        "does not hold a run's state",
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


@pytest.mark.parametrize("model", ["theirs", "theirs.py:Mine"])
def test_code_that_only_a_folder_names_is_never_run(
    model: str, there: Path, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(there)
    (there / "theirs.py").write_text("open('executed', 'w')\n")
    folder, plugins = there / "runs" / RUN.run_id, [str(there / "theirs.py")]
    altered(folder, "config.json", lambda tree: (tree.update(plugins=plugins), tree["model"].update(name=model)))
    altered(folder, "result.json", lambda tree: tree.update(model_name=model))
    commands = [[name, RUN.run_id, "--results", str(there)] for name in ("errors", "probe", "reproduce")]
    commands += [["adapt", RUN.run_id, "even_pairs", "--exec.results", str(there)]]
    commands += [[name, "--results", str(there)] for name in ("status", "table")]
    for words in (["merge", str(there), "--dry-run"], ["merge", str(there)], *commands):
        cli.main([*words, *(["--results", str(here)] if words[0] == "merge" else [])])
        assert not (there / "executed").exists(), words
    with pytest.raises(ValueError, match="theirs"):
        Run.from_plain(json.loads((folder / "config.json").read_text()))
    assert f"if you trust it: --plugin {there}/theirs.py" in capsys.readouterr().err


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
    cure = f"remove {folder.path}" if state == "only a lock" else f"`ladder clean {RUN.run_id}` makes room"
    assert f"it is here without a result; once nothing trains it, {cure}" in said
    assert after == before


@pytest.mark.parametrize("name", [RUN.run_id.replace("parity", "../parity"), "parity-lstm-s4", f"{RUN.run_id}/..", "x"])
def test_a_line_whose_id_does_not_fit_it_is_refused(name: str, tmp_path: Path, here: Path) -> None:
    there = tmp_path / "records"
    there.mkdir()
    row = {**row_of(RUN), "run_id": name, "task": "../parity" if name.startswith("..") else "parity"}
    frame(row).to_csv(there / "records.csv", index=False)
    merged = merge([there], here)
    assert list(merged.refused) == [name] and merged.lines == []
    assert not (here / "records.csv").exists()


def test_a_line_whose_scaled_accuracy_is_anothers_is_refused(tmp_path: Path, here: Path) -> None:
    (tmp_path / "there").mkdir()
    frame(row_of(RUN, test=0.5, test_scaled=1.0)).to_csv(tmp_path / "there" / "records.csv", index=False)
    assert "test_scaled is 1.0, and test 0.5 makes 0.0" in refused(merge([tmp_path / "there"], here))


def test_damaged_records_are_a_mistake(there: Path, here: Path, capsys: Capture) -> None:
    (there / "records.csv").write_text("run_id,colour\na,b\n")
    assert cli.main(["merge", str(there), "--results", str(here)]) == 2
    assert "is no table of records" in capsys.readouterr().err
    assert not here.exists()


def test_a_run_that_appears_here_meanwhile_wins(there: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copy2

    def raced(source: Path, target: Path) -> None:
        folder_of(here, RUN)
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", raced)
    where = there / "runs" / RUN.run_id
    assert (
        refused(merge([there], here)) == f"{where}: it was begun here during the merge: merge again once it has ended"
    )
    assert [path.name for path in (here / "runs" / RUN.run_id).iterdir()] == ["config.json"]


def test_one_merge_at_a_time(there: Path, here: Path) -> None:
    staging = here / "runs" / ".merging"
    with RunFolder(here, ".merging").locked(), pytest.raises(ValueError, match="another process merges"):
        merge([there], here)
    assert [path.name for path in staging.iterdir()] == ["lock"]


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
