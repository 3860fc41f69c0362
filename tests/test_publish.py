"""What is committed under results/ is what the records make, byte for byte."""

import importlib.util
import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import pytest

from chomsky_ladder.harness.store.curves import collect as collect_curves
from chomsky_ladder.harness.store.record import recorded
from support.folders_to_merge import OTHER, RUN, finished

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("publish", ROOT / "scripts" / "publish.py")
publish = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(publish)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish.again(ROOT / "results", tmp_path_factory.mktemp("fresh"))


def test_every_table_comes_from_the_records_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(ROOT / "results" / "records.csv", tmp_path)
    paths, _ = publish.tables.write_all(tmp_path, against="xlstm")
    assert (
        len(paths) > 20 and (ROOT / "results" / "records.csv").read_bytes() == (tmp_path / "records.csv").read_bytes()
    )
    for path in paths:
        assert path.read_bytes() == (ROOT / "results" / "tables" / path.name).read_bytes(), "run scripts/publish.py"


@pytest.mark.full
def test_regenerating_changes_no_byte(fresh: Path) -> None:
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
        assert len(started) == len(publish.STUDIES) and all(words[3] == budget for words in started)
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


def test_the_page_is_small_enough_to_send() -> None:
    assert (ROOT / "results" / "page.html").stat().st_size < 1_500_000


@pytest.mark.full
def test_a_changed_cell_and_a_stray_figure_are_found(fresh: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(fresh, tmp_path / "copy"))
    assert publish.differences(copy, fresh) == []
    table = copy / "tables" / "accuracy.tex"
    table.write_bytes(table.read_bytes().replace(b"1.00", b"0.99", 1))
    (copy / "figures" / "of_nothing.csv").write_text("a\n1\n")
    (copy / "page.html").unlink()
    assert publish.differences(copy, fresh) == ["page.html", "tables/accuracy.tex", "figures/of_nothing.csv"]


@pytest.mark.full
def test_pictures_of_another_matplotlib_are_not_compared(fresh: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(fresh, tmp_path / "copy"))
    picture = next(copy.glob("figures/*/heat_map.svg"))
    picture.write_text("drawn otherwise")
    assert publish.differences(copy, fresh) == [str(picture.relative_to(copy))]
    (copy / "figures" / "made_with.json").write_text(json.dumps({"matplotlib": "0.1"}))
    assert publish.differences(copy, fresh) == []
    data = picture.with_suffix(".csv")  # numbers are compared under any version
    data.write_text(data.read_text() + "\n")
    assert publish.differences(copy, fresh) == [str(data.relative_to(copy))]


@pytest.mark.parametrize(
    "words", [["--check", "--budget", "cpu"], ["--budget", "huge"], ["--results", "no/such/folder"]]
)
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        publish.main(words)
    assert ended.value.code == 2 and "publish.py: error: " in capsys.readouterr().err
