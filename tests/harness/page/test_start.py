"""The script's first file, run by Node on a page's own data, has the runs, cells and curves that were written."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.page.cells import BINS, CURVES, RUN_COLUMNS
from chomsky_ladder.harness.page.html import ASSETS, page
from support.pages import Page, cells, curves, rows, run_ids, runs

NODE = shutil.which("node")
_DOCUMENT = "const document = { getElementById: () => ({ textContent: require('fs').readFileSync(0, 'utf8') }) };"
_SAID = """
const named = (bins) => bins.map((bin) => [bin.name, bin.value]);
const drawn = (run) => ["validation", "loss"].map((kind) => pointsOf(run, kind));
const shown = (run) => [run.run_id, run.test_scaled, [...binNames].map((name) => named(run[name])), ...drawn(run)];
const ofCells = cells.map((cell) => [cell.command, cell.median]);
console.log(JSON.stringify({ names: Object.keys(runs[0]), runs: runs.map(shown), cells: ofCells }));
"""


@pytest.mark.skipif(NODE is None, reason="needs Node")
@pytest.mark.parametrize(
    ("address", "ladders", "view"),
    [("", 0, "matrix"), ("", 1, "ladder"), ("#ladder", 0, "ladder"), ("#cost", 0, "cost"), ("#nonsense", 1, "ladder")],
)
def test_a_page_without_a_climb_opens_at_its_matrix(address: str, ladders: int, view: str) -> None:
    here = f"const location = {{ hash: '{address}' }}; const data = {{ ladders: Array({ladders}) }};"
    views = "const views = { ladder: 1, matrix: 1, cost: 1 };"
    script = [here, views, (ASSETS / "state.js").read_text("utf-8"), "readAddress(); console.log(state.view);"]
    said = subprocess.run([str(NODE), "-e", "\n".join(script)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == view


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_the_script_has_what_was_written(tmp_path: Path) -> None:
    records = runs()
    points = curves(records)
    points.loc[0, "loss"] = 3.2e-07
    data = Page(page(records, curves=points)).data
    script = tmp_path / "start.js"
    script.write_text("\n".join([_DOCUMENT, (ASSETS / "start.js").read_text("utf-8"), _SAID]), encoding="utf-8")
    asked = subprocess.run([str(NODE), str(script)], input=json.dumps(data), capture_output=True, text=True, check=True)
    said = json.loads(asked.stdout)
    assert said["cells"] == [[cell["command"], cell["median"]] for cell in cells(data)]
    drawn = {own["run"]: own for own in rows(data["curves"]["runs"])}
    assert drawn and 3.2e-07 in [value for own in drawn.values() for value in own["loss"]]
    assert sorted(said["names"]) == sorted([*RUN_COLUMNS, *BINS, "run_id", "digest", "number"])
    names = data["runs"].pop("lengths")
    for place, (run_id, run) in enumerate(zip(run_ids(data), rows(data["runs"]), strict=True)):
        bins = [_pairs(names[run[f"{name}_at"]], run[name]) for name in BINS]
        lines = [None, None]
        if own := drawn.get(place):
            lines = [_pairs(data["curves"]["steps"][own[f"{name}_at"]], own[name]) for name in CURVES]
        assert said["runs"][place] == [run_id, run["test_scaled"], bins, *lines]


def _pairs(names: list[Any], values: list[Any]) -> list[list[Any]]:
    return [list(pair) for pair in zip(names, values, strict=False)]
