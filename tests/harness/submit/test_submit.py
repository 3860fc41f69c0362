"""A stranger's climb in a folder: it verifies, and each way of tampering with it is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_model, load_plugin
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.finished import sealed
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, keep
from chomsky_ladder.harness.submit.bundle import write_products
from chomsky_ladder.harness.submit.checks import checks
from chomsky_ladder.harness.submit.manifest import Manifest, hashes
from chomsky_ladder.harness.submit.retrain import bound, drawn
from chomsky_ladder.harness.sweep.sweep import carry_out
from chomsky_ladder.harness.train.outcome import summary
from chomsky_ladder.harness.train.score import Score
from chomsky_ladder.models.base import MODELS

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

import verify_submissions  # the path above has it

CODE = '''
"""The mean of everything so far."""
from dataclasses import replace

import torch
from torch import nn

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.models.plain import plain_model


class Mean(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])


plain_model("their_mean", Mean)
whole = PROTOCOLS["climb-v1"]
few = {"test": 64, "validation": 16, "every": 10, "extrapolation": 8, "lengths": [3, 20], "bins": [3, 10, 20]}
PROTOCOLS["their-climb"] = replace(
    whole,
    rates=(1e-2,),
    seeds=2,
    params=3000,
    train=whole.train | {"steps": 20, "batch": 8, "curriculum": [5, 10]},
    eval=whole.eval | few | {"extrapolate": [24]},
    rungs=(whole.rungs[1], whole.rungs[4]),
)
'''
WORDS = ["their_mean", "--protocol", "their-climb"]


def forget() -> None:
    MODELS[:] = [cls for cls in MODELS if cls.name != "their_mean"]
    PROTOCOLS.pop("their-climb", None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A submission as its author left it; its code is forgotten here."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "their_mean.py").write_text(CODE)
    load_plugin(str(folder / "their_mean.py"))
    runs = climb_runs(climber(find_model("their_mean"), protocol="their-climb"), protocol="their-climb")
    assert carry_out(runs, Exec(results=folder / "r"), quiet=True).complete
    out = folder / "submission"
    words = ["--results", str(folder / "r"), "--name", "Mean", "--cite", "them 2026", "--out", str(out)]
    assert main(["submit", *WORDS, *words]) == 0
    forget()
    yield out
    forget()


@pytest.fixture
def theirs(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, with its own code loaded, as --plugin would."""
    folder = tmp_path / "submission"
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("__pycache__"))
    load_plugin(str(folder / "source" / "their_mean.py"))
    yield folder
    forget()


def verified(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["verify", str(folder), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_it_is_verified_and_a_cell_is_trained_again(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, tree = verified(theirs, capsys, "--retrain", "1", "--draw", "7", "--out", str(theirs.parent / "found.json"))
    assert code == 0 and tree["passed"] and tree["draw"] == 7
    names = [check["name"] for check in tree["checks"]]
    assert names == [
        *("files", "protocol", "runs", "numbers", "records", "table and card", "code"),
        *("retrained", "hidden strings"),
    ]
    assert "same bits" in tree["checks"][-2]["said"]
    assert json.loads((theirs.parent / "found.json").read_text()) == tree


def test_a_frozen_protocol_that_its_code_changed_is_refused(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = replace(Manifest.read(theirs), protocol="climb-v1")
    found = {check.name: check for check in checks(theirs, manifest)}
    assert found["protocol"].said == "climb-v1 is as it was frozen"
    monkeypatch.setitem(PROTOCOLS, "climb-v1", replace(PROTOCOLS["climb-v1"], seeds=1))
    *_, last = checks(theirs, manifest)
    assert (last.name, last.passed) == ("protocol", False) and "the code that was loaded has changed it" in last.said


def test_its_records_are_a_results_folder(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--kind", "climb", "--results", str(theirs), "--format", "csv"]) == 0
    assert capsys.readouterr().out.strip() == (theirs / "climb.csv").read_text().strip()


def test_its_code_runs_only_if_it_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(made)]) == 2
    said = capsys.readouterr().err
    assert f"ladder verify {made} --plugin {made / 'source' / 'their_mean.py'}" in said


def run_of(folder: Path) -> Path:
    return min((folder / "runs").iterdir())


def rehash(folder: Path) -> None:
    replace(Manifest.read(folder), files=hashes(folder)).write(folder)


def change_result(folder: Path, change: Callable[[dict[str, Any]], None], *, seal: bool = True) -> None:
    path = run_of(folder) / "result.json"
    tree = json.loads(path.read_text())
    change(tree)
    path.write_bytes(sealed(tree, run_of(folder) / "metrics.jsonl") if seal else json.dumps(tree, indent=1).encode())


def remake(folder: Path) -> None:
    """Make records, table, card and manifest of the results, as an author who forges would."""
    for name in ("records.csv", "records.csv.sha256"):
        (folder / name).unlink()
    found = {path.name: Record.of(RunFolder(folder, path.name)) for path in (folder / "runs").iterdir()}
    keep(folder, {name: record for name, record in found.items() if record})
    manifest = Manifest.read(folder)
    write_products(folder, manifest.model, manifest.protocol)
    rehash(folder)


def edit_a_number(folder: Path) -> None:
    change_result(folder, lambda tree: tree["test"].update(accuracy=1.0), seal=False)


def edit_and_hash(folder: Path) -> None:
    change_result(folder, lambda tree: tree["test"].update(accuracy=1.0), seal=False)
    rehash(folder)


def edit_and_seal(folder: Path) -> None:
    change_result(folder, lambda tree: tree["test"].update(accuracy=1.0, scaled=1.0))
    rehash(folder)


def drop_a_seed(folder: Path) -> None:
    shutil.rmtree(run_of(folder))
    remake(folder)


def take_another_rate(folder: Path) -> None:
    path = run_of(folder) / "config.json"
    path.write_text(path.read_text().replace('"lr": 0.01', '"lr": 0.02'))
    rehash(folder)


def edit_a_line(folder: Path) -> None:
    text = (folder / "records.csv").read_text().replace(",done,20,", ",done,21,", 1)
    (folder / "records.csv").write_text(text)
    rehash(folder)


def edit_the_card(folder: Path) -> None:
    (folder / "card.md").write_text((folder / "card.md").read_text().replace("their_mean", "their_best"))
    rehash(folder)


def edit_the_code(folder: Path) -> None:
    path = folder / "source" / "their_mean.py"
    path.write_text(path.read_text().replace("cumsum(1)", "cumsum(1).tanh()"))
    rehash(folder)
    forget()
    load_plugin(str(path))


def add_a_file(folder: Path) -> None:
    (folder / "more.txt").write_text("")


def link_a_file(folder: Path) -> None:
    (folder / "source" / "link").symlink_to("/etc/hostname")


@pytest.mark.each_time(10)
@pytest.mark.parametrize(
    ("tamper", "failed", "says"),
    [
        (edit_a_number, "files", "result.json has another hash than the manifest says"),
        (edit_and_hash, "numbers", "their digest does not fit"),
        (edit_and_seal, "numbers", "test: accuracy is 1.0, and its counts make"),
        (drop_a_seed, "runs", "of the protocol is missing"),
        (take_another_rate, "numbers", "lr is 0.01 there and 0.02 here"),
        (edit_a_line, "records", "records.csv"),
        (edit_the_card, "table and card", "card.md is not what the records make"),
        (edit_the_code, "code", "was made with model their_mean of their_mean.py"),
        (add_a_file, "files", "more.txt is not listed"),
        (link_a_file, "files", "is a link"),
    ],
)
def test_tampering_is_refused(
    tamper: Callable[[Path], None], failed: str, says: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(theirs)
    code, tree = verified(theirs, capsys, "--retrain", "0")
    assert code == 1 and not tree["passed"]
    assert tree["checks"][-1]["name"] == failed and not tree["checks"][-1]["passed"]
    assert says in tree["checks"][-1]["said"]


def test_counts_that_are_forged_throughout_are_found_by_training_again(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.from_plain(json.loads((run_of(theirs) / "config.json").read_text()))

    def forge(tree: dict[str, Any]) -> None:
        counts = tree["test"]["counts"]
        counts |= dict.fromkeys(("correct", "hits"), counts["scored"]) | {"exact": counts["strings"]}
        tree["test"] = summary(run, Score.from_plain(counts))

    change_result(theirs, forge)
    remake(theirs)
    code, tree = verified(theirs, capsys, "--retrain", "0")
    assert code == 0  # all that can be told without training fits
    draw = next(seed for seed in range(1, 99) if run.run_id in _drawn(theirs, seed))
    code, tree = verified(theirs, capsys, "--retrain", "1", "--draw", str(draw))
    assert code == 1
    assert [check["name"] for check in tree["checks"] if not check["passed"]] == [
        "retrained",
        "hidden strings",
    ]


def _drawn(folder: Path, seed: int) -> list[str]:
    return [one.record.run_id for one in drawn(folder, Manifest.read(folder), 1, seed)]


def test_two_samples_may_differ_by_chance() -> None:
    assert bound(1.0, 1024) == 0.01 and 0.09 < bound(0.5, 1024) < 0.1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["submit", "lstm", "--name", "x", "--cite", "y"], "72 of 72 runs are not finished in"),
        (["submit", "lstm", "--name", " ", "--cite", "y"], "--name is a line of text"),
        (["submit"], "which model?"),
        (["verify"], "needs the FOLDER"),
        (["verify", "nowhere"], "there is no folder nowhere"),
        (["verify", "."], "is no submission: it has no submission.json"),
        (["verify", ".", "--retrain", "-1"], "--retrain is how many cells"),
        (["verify", ".", "--draw", "0"], "--draw is a number from 1 on"),
    ],
)
def test_refusals(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_manifest_of_another_schema_is_refused(made: Path, tmp_path: Path) -> None:
    for change, says in (({"schema": 9}, "has schema 9; this version reads 1"), ({"cite": 3}, "'cite' is missing")):
        tree = json.loads((made / "submission.json").read_text()) | change
        (tmp_path / "submission.json").write_text(json.dumps(tree))
        with pytest.raises(ValueError, match=says):
            Manifest.read(tmp_path)


def test_the_public_ci_verifies_what_a_change_brings(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    monkeypatch.setattr(verify_submissions, "ROOT", tmp_path)
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "before")
    place = tmp_path / "results" / "submissions" / "mean"
    shutil.copytree(made, place)
    git("add", ".")
    git("commit", "-q", "-m", "after")
    assert verify_submissions.changed("HEAD") == []
    assert verify_submissions.changed("HEAD~1") == [place]
    words = verify_submissions.command(place)
    assert words[2:] == ["chomsky_ladder", "verify", str(place), "--plugin", str(place / "source" / "their_mean.py")]
