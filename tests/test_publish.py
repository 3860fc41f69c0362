"""The committed tables are what the records make, byte for byte; pictures are few and small; the site is whole."""

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import pytest
from PIL import Image, ImageColor

from chomsky_ladder.harness.climb import reference
from chomsky_ladder.harness.figures.kinds.climb import CORNERS, GAP, HELD, ODD
from chomsky_ladder.harness.store.curves import collect as collect_curves
from chomsky_ladder.harness.store.record import collect, recorded
from support.folders_to_merge import OTHER, RUN, content, finished

ROOT = Path(__file__).parents[1]
PICTURES = {".png", ".svg", ".jpg", ".gif", ".pdf"}
sys.path.insert(0, str(ROOT / "scripts"))  # as when the script is run
_spec = importlib.util.spec_from_file_location("publish", ROOT / "scripts" / "publish.py")
publish = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(publish)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish.again(ROOT / "results", tmp_path_factory.mktemp("fresh"))


def test_the_records_and_some_tables_come_out_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(ROOT / "results" / "records.csv", tmp_path)
    records = collect(tmp_path)
    assert (ROOT / "results" / "records.csv").read_bytes() == (tmp_path / "records.csv").read_bytes()
    for kind in ("climb", "hard", "scratchpad", "sources"):
        made = publish.tables.table(records, kind)
        for form in publish.COMMITTED:
            committed = ROOT / "results" / "tables" / f"{kind}.{publish.tables.ENDINGS[form]}"
            assert publish.tables.text(made, form).encode() == committed.read_bytes(), "run scripts/publish.py"


def test_the_rows_that_travel_with_the_package_are_those_of_the_records() -> None:
    assert reference.is_of(ROOT / "results" / "records.csv"), "run scripts/publish.py"
    assert reference.FILE.stat().st_size < 150_000


@pytest.mark.full
def test_regenerating_changes_no_byte(fresh: Path) -> None:
    assert len(list((fresh / "tables").iterdir())) > 40
    assert publish.differences(ROOT / "results", fresh) == [], "run scripts/publish.py"


def test_a_study_of_every_budget_can_be_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[list[str]] = []

    def carried_out(words: list[str]) -> CompletedProcess[str]:
        started.append(words)
        return CompletedProcess(words, 0)

    monkeypatch.setattr(publish.subprocess, "run", carried_out)
    monkeypatch.setattr(publish, "default_results", lambda: tmp_path)
    for budget in get_args(publish.Budget):
        with pytest.raises(SystemExit):  # there is nothing to take then
            publish.main(["--budget", budget, "--results", str(tmp_path / "none")])
        assert len(started) == len(publish.STUDIES) and all(words[-3] == budget for words in started)
        started.clear()


def test_runs_of_a_row_that_is_not_whole_lie_apart_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "made", lambda results: None)
    results, first, second = (tmp_path / name for name in ("results", "first", "second"))
    results.mkdir()
    finished(first, RUN)
    for _ in range(2):
        assert publish.main(["--begun", str(first), "--results", str(results)]) == 0
    kept = results / "underway"
    assert {path.name for path in kept.iterdir()} == set(publish.KEPT) and not (results / "records.csv").exists()
    assert str(tmp_path) not in (kept / "records.csv").read_text()
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 more runs, 1 in all")
    curve = collect_curves(first)
    assert len(curve) and (kept / "curves.csv").read_bytes() == (first / "curves.csv").read_bytes()

    finished(second, OTHER)
    assert publish.main(["--take", str(kept), str(second), "--results", str(results)]) == 0
    assert list(kept.iterdir()) == [] and set(recorded(results / "records.csv")) == {RUN.run_id, OTHER.run_id}
    both = collect_curves(results)
    assert set(both["run_id"]) == {RUN.run_id, OTHER.run_id} and len(both) == len(curve) + len(collect_curves(second))
    publish.main(["--begun", str(first), "--results", str(results)])  # published by now
    assert list(kept.iterdir()) == []
    with pytest.raises(SystemExit):
        publish.main(["--begun", str(tmp_path / "none"), "--results", str(results)])


def test_a_full_disk_costs_no_line_of_what_is_underway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, underway = tmp_path / "results", tmp_path / "results" / "underway"
    words = ["--results", str(results), "--begun"]
    results.mkdir()
    finished(tmp_path / "mine", RUN)
    assert publish.main([*words, str(tmp_path / "mine")]) == 0
    before = content(underway)
    synced = os.fsync

    def full(target: str | int) -> None:
        if str(target if isinstance(target, str) else Path(f"/proc/self/fd/{target}").readlink()).startswith(
            str(underway)
        ):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish.shutil, "copy", lambda source, target: full(str(target)))
    monkeypatch.setattr(os, "fsync", lambda number: full(number) or synced(number))
    finished(tmp_path / "mine", OTHER)
    with pytest.raises(SystemExit):
        publish.main([*words, str(tmp_path / "mine")])
    assert "No space left on device" in capsys.readouterr().err
    assert content(underway) == before


def test_pictures_are_few_and_small() -> None:
    """Pictures of a run are not versioned: the history would grow by megabytes with every run."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("this is no clone")
    pictures = [ROOT / name for name in tracked.stdout.splitlines() if Path(name).suffix in PICTURES]
    assert {path.parent for path in pictures} <= {ROOT / "docs" / "pictures"}
    assert max(path.stat().st_size for path in pictures) < 150_000
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "findings").glob("*.md")]
    texts = [ROOT / "README.md", ROOT / "results" / "README.md", *pages]
    shown = "".join(path.read_text() for path in texts)
    assert {path.name for path in pictures} == set(re.findall(r"pictures/([\w.]+)", shown))


@pytest.mark.full
def test_a_changed_cell_and_a_stray_table_are_found(fresh: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(fresh, tmp_path / "copy"))
    assert publish.differences(copy, fresh) == []
    table = copy / "tables" / "accuracy.md"
    table.write_bytes(table.read_bytes().replace(b"1.00", b"0.99", 1))
    (copy / "tables" / "climb.csv").unlink()
    (copy / "tables" / "old.tex").write_text("a table of before")
    assert publish.differences(copy, fresh) == ["tables/accuracy.md", "tables/climb.csv", "tables/old.tex"]


def test_a_check_compares_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, RUN)
    assert publish.main(["--results", str(tmp_path)]) == 0
    table = tmp_path / "tables" / "accuracy.md"
    table.write_text(table.read_text() + "changed")
    before = content(tmp_path)
    assert publish.main(["--results", str(tmp_path), "--check"]) == 1 and content(tmp_path) == before
    assert capsys.readouterr().err == "tables/accuracy.md is not what the records make: run scripts/publish.py\n"


def test_the_site_has_page_figures_tables_and_records(tmp_path: Path) -> None:
    """Use a single record, since drawing all protocols takes minutes."""
    results, folder = tmp_path / "results", tmp_path / "site"
    finished(results, RUN)
    url = "https://example.org/ladder"
    assert publish.main(["--site", str(folder), "--url", url, "--results", str(results)]) == 0
    assert f"{url}/card.png" in (folder / "index.html").read_text() and (folder / "card.png").exists()
    assert (folder / "index.html").stat().st_size > 100_000
    assert {path.suffix for path in folder.glob("figures/*/lengths.*")} == {".png", ".svg", ".csv"}
    assert {path.suffix for path in folder.glob("tables/accuracy.*")} == {".md", ".csv", ".tex", ".html"}
    assert (folder / "records.csv").read_bytes() == (results / "records.csv").read_bytes()
    assert not (results / "tables").exists() and not (results / "page.html").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--check", "--budget", "cpu"],
        ["--check", "--release"],
        ["--begun", "mine", "--site", "site"],
        ["--budget", "huge"],
        ["--results", "no/such/folder"],
    ],
)
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        publish.main(words)
    assert ended.value.code == 2 and "publish.py: error: " in capsys.readouterr().err


def test_the_picture_of_the_climb_keeps_the_colours_that_mean_something() -> None:
    shown = Image.open(ROOT / "docs" / "pictures" / "climb.png").convert("RGB").getcolors(2**24)
    assert shown is not None
    for name in (HELD, GAP, ODD, *CORNERS.values()):
        wanted = ImageColor.getrgb(name)
        nearest = min(max(abs(a - b) for a, b in zip(colour, wanted, strict=True)) for _, colour in shown)
        assert nearest <= 8, f"{name} is {nearest} off: draw it again with scripts/publish.py --release"


def test_a_table_of_single_rungs_counts_runs_under_way(tmp_path: Path) -> None:
    of_study = (
        run_id for run_id, line in recorded(ROOT / "results/underway/records.csv").items() if "short_conv" in line.model
    )
    counted = (ROOT / "results/tables/short_conv.md").read_text()
    assert any(of_study) and "GSA: short_conv=4" in counted
    for name in ("records.csv", "curves.csv"):
        shutil.copy(ROOT / "results" / name, tmp_path)
    (tmp_path / "underway").mkdir()
    shutil.copy(ROOT / "results/underway/records.csv", tmp_path / "underway")
    records = publish.with_begun(tmp_path, "short_conv")
    assert not records["model"].str.startswith("hybrid (short_conv").any(), "which is of no study"
    assert publish.tables.text(publish.tables.table(records, "short_conv"), "markdown") == counted
    assert "short_conv" not in (ROOT / "results/tables/climb.md").read_text()
