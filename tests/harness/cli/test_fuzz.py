"""Odd values in the words of a command, in a config.json and in a line of records.csv: taken as they stand, or refused
in one line before any work; never a traceback, a hang or a record that no command can read.

`LADDER_FUZZ` says how many examples there are. The default run takes a few, `scripts/test --all` hundreds.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
import time
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from chomsky_ladder.harness.cli import run as run_command
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.records_file import digest_file
from support.records_by_hand import frame, record

EXAMPLES = int(os.environ.get("LADDER_FUZZ", "0"))
SECONDS = 20.0  # what a refusal may take on a busy machine; a hang takes for ever
PARTS = {"train": Train, "eval": Eval, "exec": Exec}
FLAGS = [f"--{part}.{each.name.replace('_', '-')}" for part, cls in PARTS.items() for each in fields(cls)]
FLAGS = [flag for flag in FLAGS if flag not in ("--exec.results", "--exec.wandb")]
FLAGS += ["--seed", "--model.d-model", "--model.num-blocks", "--model.dropout", "--model.params", "--protocol"]
NUMBERS = [
    "0",
    "-1",
    "1",
    "2",
    "7",
    "16",
    "40",
    ".5",
    "1e-400",
    "1e400",
    "nan",
    "-inf",
    "999999999999999999999999",
    "2147483648",
    "0x10",
    "1_000",
    "٣",
]
TEXTS = ["", " ", "None", "true", "[]", "{}", "a\nb", "\x1b[31m", "é" * 300, "../..", "=1+1", '"', "\ud800", "%s", "-"]
ODD_WORDS = st.sampled_from([*NUMBERS, *TEXTS]) | st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**64, 10**30, "9" * 30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
RUN = preset_run("parity", "lstm", protocol="quick")


def said_by(words: list[str], *, wanted: tuple[int, ...] = (0, 2)) -> tuple[int, str, str]:
    """Run a command and hold it to what every command owes: an exit code, and a refusal in one line, in time."""
    out, err, start = io.StringIO(), io.StringIO(), time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    assert time.monotonic() - start < SECONDS, words
    event(f"exit code {code}")
    assert code in wanted, (words, code, err.getvalue())
    if code == 2:
        lines = err.getvalue().strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("ladder: ") and len(lines[0]) < 1000, (words, lines)
    return code, out.getvalue(), err.getvalue()


@settings(max_examples=EXAMPLES or settings().max_examples * 3)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(FLAGS), st.lists(ODD_WORDS, min_size=1, max_size=1)), min_size=1, max_size=2
    )
)
def test_odd_settings_are_taken_or_refused_in_a_line(
    changes: list[tuple[str, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    results = tmp_path_factory.getbasetemp() / "odd settings"
    words = [word for flag, values in changes for word in (flag, *values)]
    command = ["run", "parity", "lstm", "--protocol", "quick", "--exec.results", str(results), "--json", "--quiet"]
    with patch.object(run_command, "execute", return_value={"status": "done"}) as training:
        code, *_ = said_by([*command, *words])
    assert not list(results.glob("runs/*")), "something was written"
    if code == 0:
        run = training.call_args.args[0]
        tree = json.loads(json.dumps(run.plain(), allow_nan=False))
        assert Run.from_plain(tree).run_id == run.run_id, "what is accepted can be read again"


def changed(tree: Any, path: list[int], value: Any) -> Any:
    """A copy of a tree with one value, or one key's value, in another's place."""
    if not path or not isinstance(tree, dict | list) or not tree:
        return value
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = keys[path[0] % len(keys)]
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[key] = changed(tree[key], path[1:], value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return copy


@settings(max_examples=EXAMPLES or settings().max_examples * 10)
@given(path=st.lists(st.integers(0, 40), min_size=0, max_size=3), value=ODD_VALUES)
def test_an_odd_config_is_a_run_or_refused_in_a_line(path: list[int], value: Any) -> None:
    tree = changed(RUN.plain(), path, value)
    try:
        run = Run.from_plain(tree)
    except ValueError as error:
        refusal = str(error)
        event("refused")
    else:
        assert Run.from_plain(json.loads(json.dumps(run.plain(), allow_nan=False))).run_id == run.run_id
        return
    assert 0 < len(refusal) < 1000 and "\n" not in refusal, refusal


@settings(max_examples=EXAMPLES or settings().max_examples * 2)
@given(
    column=st.integers(0, 200),
    text=ODD_WORDS,
    sealed=st.booleans(),
    command=st.sampled_from(["table", "merge"]),
)
def test_an_odd_line_of_records_is_read_or_refused_in_a_line(
    column: int, text: str, sealed: bool, command: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("odd records")
    text_of_rows = frame(record(), record(model="mamba"), record(seed=1)).to_csv(index=False)
    rows = list(csv.DictReader(io.StringIO(text_of_rows)))
    rows[1][list(rows[0])[column % len(rows[0])]] = text
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = buffer.getvalue().encode("utf-8", "surrogatepass")
    path = folder / "records.csv"
    path.write_bytes(content)
    if sealed:
        digest_file(path).write_text(f"# 3 records\n{hashlib.sha256(content).hexdigest()}  records.csv\n")
    words = {"merge": [str(folder), "--dry-run", "--results", str(folder / "mine")]}
    said_by([command, *words.get(command, ["--results", str(folder)])], wanted=(0, 1, 2))
