"""Frozen sets: what `ladder export` writes, and a run that is scored on it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config import frozen
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.frozen import open_frozen
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.registry import all_tasks
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.export import export
from chomsky_ladder.harness.train.loop import RunFailed, execute
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.bucket_sort import BucketSort
from chomsky_ladder.tasks.cycle_nav import CycleNav
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from support.cases import some

LENGTHS = (5, 24)


def exported(path: Path, task: object = None, **changes: object) -> Path:
    settings = {"lengths": LENGTHS, "count": 300, "seed": 0, "split": "test", **changes}
    export(task or Parity(), path, **settings)
    return path


def run_on(file: Path | str, task: object = None, **settings: object) -> Run:
    return Run(
        task=task or Parity(),
        model=LSTMConfig(d_model=8, num_blocks=1),
        train=Train(steps=3, batch=8, lengths=(5, 12)),
        eval=Eval(file=str(file), bins=(5, 24), extrapolate=(), validation=16, **settings),
    )


def evaluator(run: Run) -> Evaluator:
    return Evaluator(run, build_model(run, torch.device("cpu")), device=torch.device("cpu"), backend="reference")


@pytest.mark.parametrize("task", [Parity(query="token"), BucketSort(), ReverseString(decode="teacher")])
def test_the_test_strings_frozen_score_as_the_test_does(tmp_path: Path, task: object) -> None:
    run = run_on(exported(tmp_path / "set.jsonl", task), task)
    live = replace(run, eval=Eval(lengths=LENGTHS, test=300, bins=(5, 24), extrapolate=(), validation=16))
    assert evaluator(run).test() == evaluator(live).test()
    assert (run.eval.lengths, run.eval.test) == (LENGTHS, 300)


@pytest.mark.parametrize("split", ["train", "validation", "validation/train"])
def test_strings_that_a_run_learns_or_chooses_from_are_no_test(split: str, tmp_path: Path) -> None:
    file = exported(tmp_path / "set.jsonl", split=split)
    with pytest.raises(ValueError, match=rf"has strings of the split '{split}', which runs learn or choose from: a te"):
        run_on(file)


def test_a_file_never_shows_the_answers(tmp_path: Path) -> None:
    blank, fed = (exported(tmp_path / d, ReverseString(decode=d)) for d in ("parallel", "teacher"))
    assert blank.read_bytes() == fed.read_bytes()
    for line in blank.read_text().splitlines()[1:]:
        string = json.loads(line)
        assert not any(string["tokens"][string["read_at"][0] + 1 :])


def test_a_file_has_the_same_bytes_again_and_other_bytes_for_another_seed(tmp_path: Path) -> None:
    one, again = exported(tmp_path / "a"), exported(tmp_path / "b")
    assert one.read_bytes() == again.read_bytes()
    assert open_frozen(str(exported(tmp_path / "c", seed=1))).sha256 != open_frozen(str(one)).sha256


def test_the_name_of_a_run_has_the_strings_not_their_place(tmp_path: Path) -> None:
    one, moved = exported(tmp_path / "a"), exported(tmp_path / "elsewhere" / "b")
    other = exported(tmp_path / "c", seed=1)
    assert run_on(one).run_id == run_on(moved).run_id != run_on(other).run_id
    assert f"eval.file={open_frozen(str(one)).sha256[:12]}" in identity_of(run_on(one)).protocol


def test_a_run_is_scored_on_the_file_and_read_back_without_it(tmp_path: Path) -> None:
    file = exported(tmp_path / "set.jsonl", CycleNav())
    run = run_on(file, CycleNav())
    result = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    assert sum(result["test"]["counts"]["strings"]) == 300
    moved = run_on(file.rename(tmp_path / "moved.jsonl"), CycleNav())
    assert execute(moved, Exec(results=tmp_path, device="cpu"), quiet=True) == result
    stored = json.loads((tmp_path / "runs" / run.run_id / "config.json").read_text())
    assert Run.from_plain(stored).run_id == run.run_id  # the file is not where the record says


def test_another_set_under_the_same_name_is_never_scored(tmp_path: Path) -> None:
    """It was exported again while the run was trained: no score under the hash of the old set."""
    file = exported(tmp_path / "set.jsonl")
    own, run = file.read_bytes(), run_on(file)
    exported(file, lengths=(5, 12), count=100, seed=9)
    with pytest.raises(ValueError, match=r"set.jsonl has other strings now than eval.file_sha256=\w{12} says"):
        evaluator(run).test()
    with pytest.raises(RunFailed, match="has other strings now"):
        execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    assert not (tmp_path / "runs" / run.run_id / "result.json").exists()
    file.write_bytes(own)
    result = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    assert sum(result["test"]["counts"]["strings"]) == 300


def test_a_shifted_set_has_its_own_floors(tmp_path: Path) -> None:
    """The strings may come from other settings than the training's, as long as a token means the same."""
    shifted = CycleNav(query="token")
    run = run_on(exported(tmp_path / "set.jsonl", shifted), CycleNav())
    assert evaluator(run).test_task == shifted
    assert sum(evaluator(run).test().strings) == 300


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = exported(tmp_path / "set.jsonl")
    with pytest.raises(ValueError, match="another name of the task: parity, not cycle_nav"):
        run_on(file, CycleNav())
    with pytest.raises(ValueError, match="another vocab"):
        run_on(exported(tmp_path / "sort", BucketSort(num_symbols=4)), BucketSort())
    with pytest.raises(ValueError, match="there is no file"):
        run_on(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="other strings now"):
        run_on(file, file_sha256="0" * 64)
    with pytest.raises(ValueError, match="which is not given"):
        Eval(file_sha256="0" * 64)


@pytest.mark.parametrize("line", [0, 1, 150])
def test_a_changed_file_is_refused(tmp_path: Path, line: int) -> None:
    file = exported(tmp_path / "set.jsonl")
    lines = file.read_text().splitlines()
    lines[line] = lines[line].replace("1", "2", 1) if line else lines[0].replace('"seed":0', '"seed":1')
    file.write_text("\n".join([*lines, ""]))
    with pytest.raises(ValueError, match="not as it was exported"):
        open_frozen(str(file))


@pytest.mark.parametrize("content", ["", "{}", "[1]", "hello\nworld", "\x00\xff"])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match="not a file of strings"):
        open_frozen(str(file))


def resealed(path: Path, change: Callable[[dict[str, Any], list[dict[str, Any]]], object]) -> Path:
    """The set with something changed, and a sha256 that fits it."""
    header, *strings = map(json.loads, path.read_text("utf-8").splitlines())
    header.pop("sha256")
    change(header, strings)
    rows = list(map(frozen.line, strings))
    sealed = {**header, "sha256": frozen.digest(header, rows)}
    path.write_text("\n".join([frozen.line(sealed), *rows, ""]), "utf-8")
    return path


MALFORMED: dict[str, Callable[[dict[str, Any], list[dict[str, Any]]], object]] = {
    "no task": lambda header, rows: header.update(task={}),
    "a task of another form": lambda header, rows: header["task"].update(query=[[]]),
    "no vocab": lambda header, rows: header.pop("vocab"),
    "no lengths": lambda header, rows: header.pop("lengths"),
    "one length": lambda header, rows: header.update(lengths=[24]),
    "lengths that fall": lambda header, rows: header.update(lengths=[24, 5]),
    "lengths of text": lambda header, rows: header.update(lengths=["5", "24"]),
    "a count that lies": lambda header, rows: header.update(count=299),
    "no strings": lambda header, rows: (header.update(count=0), rows.clear()),
    "a string gone": lambda header, rows: (header.update(count=299), rows.pop(7)),
    "no seed": lambda header, rows: header.pop("seed"),
    "a seed of truth": lambda header, rows: header.update(seed=False),
    "another seed": lambda header, rows: header.update(seed=3),
    "another split": lambda header, rows: header.update(split="validation"),
    "a line that is a list": lambda header, rows: rows.__setitem__(3, []),
    "a line of more": lambda header, rows: rows[3].update(more=1),
    "no tokens": lambda header, rows: rows[3].pop("tokens"),
    "tokens empty": lambda header, rows: rows[3].update(tokens=[]),
    "token 99": lambda header, rows: rows[3]["tokens"].__setitem__(0, 99),
    "token -1": lambda header, rows: rows[3]["tokens"].__setitem__(0, -1),
    "token 1.7": lambda header, rows: rows[3]["tokens"].__setitem__(0, 1.7),
    "token true": lambda header, rows: rows[3]["tokens"].__setitem__(0, True),
    "a blank inside": lambda header, rows: rows[3]["tokens"].__setitem__(0, 0),
    "a token more": lambda header, rows: rows[3]["tokens"].append(1),
    "read at -1": lambda header, rows: rows[3].update(read_at=[-1]),
    "read at the start": lambda header, rows: rows[3].update(read_at=[0]),
    "read behind the end": lambda header, rows: rows[3].update(read_at=[999]),
    "read nowhere": lambda header, rows: rows[3].update(read_at=[], answer=[]),
    "read twice": lambda header, rows: rows[3].update(read_at=rows[3]["read_at"] * 2, answer=rows[3]["answer"] * 2),
    "answer 99": lambda header, rows: rows[3].update(answer=[99]),
    "no answer": lambda header, rows: rows[3].update(answer=[]),
    "the other answer": lambda header, rows: rows[3].update(answer=[3 - rows[3]["answer"][0]]),
    "a length that lies": lambda header, rows: rows[3].update(length=rows[3]["length"] + 1),
    "a length outside": lambda header, rows: rows[3].update(length=99),
    "a length of text": lambda header, rows: rows[3].update(length="9"),
    "two strings in each other's place": lambda header, rows: rows.insert(0, rows.pop(9)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_set_is_not_believed_for_its_own_hash(name: str, tmp_path: Path) -> None:
    """Before anything is trained, in one line that names the file."""
    file = resealed(exported(tmp_path / "set.jsonl"), MALFORMED[name])
    with pytest.raises(ValueError, match=r"set\.jsonl") as refusal:
        run_on(file)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", some(sorted(all_tasks())))
def test_what_is_exported_is_opened(name: str, tmp_path: Path) -> None:
    task = all_tasks()[name][0]()
    legal = task.legal_lengths(1, 40)
    file = exported(tmp_path / "set.jsonl", task, lengths=(legal[0], legal[-1]), count=40)
    assert len(open_frozen(str(file)).length_of_B) == 40


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "set.jsonl"
    assert main(["export", "parity", "--out", str(out), "--count", "40", "--lengths", "5", "24", "--json"]) == 0
    header = json.loads(capsys.readouterr().out)
    assert header == json.loads(out.read_text().splitlines()[0])
    assert len(out.read_text().splitlines()) == 41
    words = [
        "--protocol",
        "xlstm_20k",
        "--eval.file",
        str(out),
        "--train.steps",
        "2",
        "--train.batch",
        "4",
        "--eval.validation",
        "8",
    ]
    small = ["--model.d-model", "8", "--eval.every", "0", "--eval.extrapolate", "30", "--eval.extrapolation", "4"]
    results = ["--exec.results", str(tmp_path), "--exec.device", "cpu", "--quiet", "--json"]
    assert main(["run", "parity", "lstm", *words, *small, *results]) == 0
    assert sum(json.loads(capsys.readouterr().out)["test"]["counts"]["strings"]) == 40
    assert main(["export", "parity", "--out", str(out), "--count", "0"]) == 2
    assert main(["export", "parity", "--out", str(out), "--lengths", "1", "1"]) == 2
    assert main(["export", "parity", "--out", str(out), "--lengths", "20", "5"]) == 2
    assert main(["export", "parity", "--out", str(out), "--seed", "-1"]) == 2
    assert main(["export", "parity", "--out", str(out), "--split", ""]) == 2
    assert main(["export", "parity", "--out", "/proc/no/such"]) == 2
    assert capsys.readouterr().err.count("\n") == 6


def test_any_model_may_be_scored(tmp_path: Path) -> None:
    run = replace(run_on(exported(tmp_path / "set.jsonl")), model=TransformerConfig.tiny())
    assert sum(evaluator(run).test().scored) == 300
