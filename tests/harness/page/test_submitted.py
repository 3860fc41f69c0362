"""Submissions that a results folder has received: the page shows whose they are, and no finding counts them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.page.html import page
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.submit.manifest import FILE, Manifest
from chomsky_ladder.harness.submit.received import REPRODUCED, SELF_REPORTED, digest_of, received
from support.browser import Browser
from support.pages import Page, climb
from support.records_by_hand import frame

OURS = frame(*climb(models=("lstm", "mamba", *(f"mine_{i}" for i in range(6))), whole=True))
CHECKS = [{"name": "files", "passed": True}, {"name": "retrained", "passed": True}]


def submit(results: Path, folder: str, name: str, *, model: str = "gru") -> Path:
    """Put a submission of hand-made records into a results folder."""
    place = results / "submissions" / folder
    place.mkdir(parents=True)
    records = frame(*climb(models=(model,), whole=True))
    records.assign(run_id=records["run_id"] + folder).to_csv(place / "records.csv", index=False)
    Manifest(name, model, "climb-v1", "them 2026", [], {}, {}).write(place)
    return place


def verify(folder: Path, **other: object) -> None:
    outcome = {"passed": True, "manifest": digest_of(folder), "checks": CHECKS, **other}
    folder.with_name(f"{folder.name}.verified.json").write_text(json.dumps(outcome))


def words(results: Path) -> dict[str, str]:
    return {one.label: one.word for one in received(results, OURS)}


def test_only_a_verified_folder_that_nobody_has_changed_is_reproduced(tmp_path: Path) -> None:
    folder = submit(tmp_path, "mine", "Mine")
    assert words(tmp_path) == {"Mine": SELF_REPORTED}
    verify(folder)
    assert words(tmp_path) == {"Mine": REPRODUCED}
    for other in ({"passed": False}, {"checks": CHECKS[:1]}, {"manifest": "0" * 64}):
        verify(folder, **other)
        assert words(tmp_path) == {"Mine": SELF_REPORTED}
    verify(folder)
    (folder / FILE).write_text((folder / FILE).read_text() + "\n")
    assert words(tmp_path) == {"Mine": SELF_REPORTED}


def test_names_are_told_apart_and_runs_that_were_taken_are_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(tmp_path, "one", "lstm")
    submit(tmp_path, "two", "Mine")
    submit(tmp_path, "three", "Mine")
    broken = submit(tmp_path, "broken", "Broken")
    (broken / FILE).write_text("{")
    assert list(words(tmp_path)) == ["lstm (one)", "Mine", "Mine (two)"]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"ladder: {broken} is left out: ")
    taken = stored(tmp_path / "submissions" / "one" / "records.csv")
    assert [one.label for one in received(tmp_path, taken)] == ["Mine", "Mine (two)"]


def test_the_page_marks_them_and_its_findings_are_ours(tmp_path: Path, browser: Browser) -> None:
    verify(submit(tmp_path, "one", "Theirs <b>"))
    submit(tmp_path, "two", "Other")
    found = list(received(tmp_path, OURS))
    text = page(pd.concat([OURS, *(one.records for one in found)]), submitted=found)
    alone, data = Page(page(OURS)).data, Page(text).data
    assert data["stories"] == alone["stories"] != []
    assert [row["model"] for row in data["ladders"][0]["rows"]] != [row["model"] for row in alone["ladders"][0]["rows"]]
    (tmp_path / "page.html").write_text(text)
    browser.sized(1280)
    browser.go(tmp_path / "page.html", "#ladder")
    found = "[...document.querySelectorAll('.ladder .submitted')]"
    marks = browser.js(f"return {found}.map((mark) => [mark.closest('tr').dataset.model, mark.textContent])")
    assert sorted(marks) == [["Other", SELF_REPORTED], ["Theirs <b>", REPRODUCED]]
