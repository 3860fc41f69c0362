"""Bytes flipped, cut, doubled and put elsewhere in any file of a results folder: whatever is read of it is exact,
refused by a line that names the file, or without its own row, named; never silently other, and never a traceback.

`LADDER_FUZZ` says how many examples there are; some forty by default, `full` takes thousands.
"""

import csv
import io
import os
import random
import shutil
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store import finished as finding
from chomsky_ladder.harness.store.curves import collect as collect_curves
from chomsky_ladder.harness.store.folder import plan_file
from chomsky_ladder.harness.sweep.sweep import _expectation, left_of
from chomsky_ladder.harness.train.loop import execute
from support.engine_jobs import cell, settings_at
from support.records_by_hand import failure_of, folder_of

RUN, OTHER, THIRD = (cell(seed=seed) for seed in range(3))

FILES = (
    f"runs/{RUN.run_id}/config.json",
    f"runs/{RUN.run_id}/result.json",
    f"runs/{RUN.run_id}/metrics.jsonl",
    f"runs/{RUN.run_id}/step_00000040.ckpt",
    f"runs/{RUN.run_id}/lock",
    f"runs/{THIRD.run_id}/failure.json",
    f"runs/{THIRD.run_id}/config.json",
    "records.csv",
    "records.csv.sha256",
    "curves.csv",
    "plan.json",
)
COMMANDS = (
    ["status", "--all"],
    ["table"],
    ["page"],
    ["merge", "ELSEWHERE", "--dry-run"],
    ["merge", "HERE", "--dry-run", "--results", "ELSEWHERE"],
    ["errors", RUN.run_id],
    ["diff", RUN.run_id, OTHER.run_id],
    ["clean", "--checkpoints", "--yes"],
    ["clean", "--failed"],
    ["plan of a sweep"],
)
KINDS = ("flip", "cut", "empty", "double", "swap", "noise", "remove", "digit")


class Said:
    """The output and exit code of a command."""

    def __init__(self, words: list[str], results: Path, elsewhere: Path) -> None:
        places = {"HERE": str(results), "ELSEWHERE": str(elsewhere)}
        words = [places.get(word, word) for word in words]
        out, err = io.StringIO(), io.StringIO()
        finding._held.clear()
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")  # as for a user: a damaged checkpoint is named and passed by
            if words[0] == "plan of a sweep":
                todo = left_of([RUN, OTHER], results)
                self.code = 0
                print(sorted(run.run_id for run in todo), _expectation(todo, results, 1, "again") if todo else "")
            else:
                self.code = cli.main(words if "--results" in words else [*words, "--results", str(results)])
        self.out, self.err = out.getvalue(), err.getvalue() + "".join(f"{each.message}\n" for each in told)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that are done, one that broke, and all files that commands write beside them."""
    results = tmp_path_factory.mktemp("whole") / "results"
    for run in (RUN, OTHER):
        execute(run, settings_at(results), quiet=True)
    folder_of(results, THIRD).fail(failure_of(THIRD))
    plan_file(results).write_text(f'{{\n"{RUN.run_id}": 12.5,\n"{OTHER.run_id}": 3.25\n}}\n')
    (results / "runs" / RUN.run_id / "lock").write_text("process 4711 on another-host 0badb007\n")
    for command in (["table"], ["page"]):
        assert Said(command, results, results).code == 0
    collect_curves(results)
    return results


@pytest.fixture(scope="module")
def undamaged(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The lines of records.csv as they must be."""
    return lines_of(whole / "records.csv")


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes | None:
    """Other bytes; None: no file."""
    at, other = (draw.randrange(len(content) + 1) for _ in range(2))
    low, high = sorted((at, other))
    if kind == "flip" and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]
    if kind == "digit":
        places = [place for place, sign in enumerate(content) if chr(sign).isdigit()]
        if places:
            at = draw.choice(places)
            return content[:at] + str((content[at] - 47) % 10).encode() + content[at + 1 :]
    if kind == "swap":
        middle = (low + high) // 2
        return content[:low] + content[middle:high] + content[low:middle] + content[high:]
    if kind == "noise":
        return content[:low] + draw.randbytes(draw.randrange(1, 9)) + content[high:]
    others = {"cut": content[:at], "double": content[:high] + content[low:], "remove": None}
    return others.get(kind, b"")


EXAMPLES = int(os.environ.get("LADDER_FUZZ", "0"))


def held(
    whole: Path, undamaged: list[dict[str, str]], file: str, kind: str, seed: int, room: Path, *, looks: int
) -> None:
    """Damage one file of a copy, and have the table and so many more commands look at it."""
    results = room / "results"
    shutil.rmtree(room, ignore_errors=True)
    shutil.copytree(whole, results)
    content = (results / file).read_bytes()
    new = damaged(content, kind, random.Random(seed))
    (results / file).unlink() if new is None else (results / file).write_bytes(new)
    for command in [*random.Random(seed + 1).sample(COMMANDS, looks), ["table"]]:
        said = Said(command, results, whole)
        where = f"{command} of {file}, {kind} {seed}"
        assert said.code in (0, 1, 2), (where, said.err)
        if said.code == 2 and command[0] != "errors" and command != ["clean", "--failed"]:
            assert names(said.err, file), (where, said.err)
        assert said.err.count("\n") <= 4, (where, said.err)
        if command == ["table"] and said.code == 0:
            exact_or_named(undamaged, results, file, said, where)


def names(text: str, file: str) -> bool:
    """Return True if a line names the file, or the run, that it is about."""
    return file in text or Path(file).name in text or (file.startswith("runs/") and Path(file).parts[1] in text)


def exact_or_named(undamaged: list[dict[str, str]], results: Path, file: str, said: Said, where: str) -> None:
    found = {row["run_id"]: row for row in lines_of(results / "records.csv")}
    for row in undamaged:
        if found.get(row["run_id"]) != row:
            assert names(said.err, file) and row["run_id"] in said.err, (where, said.err, found.get(row["run_id"]), row)
    assert set(found) <= {row["run_id"] for row in undamaged}, where


@given(file=st.sampled_from(FILES), kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=EXAMPLES or 40)
@pytest.mark.full
def test_no_damage_is_taken_for_what_was_written(
    file: str,
    kind: str,
    seed: int,
    whole: Path,
    undamaged: list[dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    held(whole, undamaged, file, kind, seed, tmp_path_factory.getbasetemp() / "damaged", looks=1)


@pytest.mark.full
@given(file=st.sampled_from(FILES), kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=2000)
def test_no_damage_of_thousands_is(
    file: str,
    kind: str,
    seed: int,
    whole: Path,
    undamaged: list[dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    held(whole, undamaged, file, kind, seed, tmp_path_factory.getbasetemp() / "damaged", looks=2)
