"""The page as text: what it holds, what it escapes, what may run in it, how large it is, that it is the same twice."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.page import page as page_command
from chomsky_ladder.harness.config.rows import ROWS
from chomsky_ladder.harness.config.theory import verdict
from chomsky_ladder.harness.figures.style import CLASS_COLOURS, CLASS_TINTS
from chomsky_ladder.harness.page.html import ASSETS, SCRIPTS, page
from chomsky_ladder.harness.page.site import write
from chomsky_ladder.harness.stats.looks import looks
from support.pages import HOSTILE, Page, cells, climb, column, rows, run_ids
from support.records_by_hand import frame, record

ROOT = Path(__file__).parents[3]
TASKS = {"parity": "regular", "majority": "counter", "dyck": "context_free", "bucket_sort": "context_sensitive"}
LISTING = {
    "tasks": [{"name": "parity", "level": "regular", "about": "odd?", "doc": "<b>", "example": "a b  ->  b"}],
    "models": [{"name": "lstm", "family": "recurrent", "year": 1997, "paper": "P", "about": "a", "transition": "lstm"}],
    "floor_lengths": [40, 256],
}


def small() -> pd.DataFrame:
    """Return records of parity (lstm at two learning rates, mamba with a diverged run) and a failed bucket_sort."""
    return frame(
        *(record(lr=1e-2, seed=seed, test_scaled=0.5 + seed / 10, validation=0.95) for seed in (0, 1)),
        record(lr=1e-3, validation=0.8, test_scaled=0.99),
        record(model="mamba", test_scaled=-0.004),
        record(model="mamba", seed=1, status="diverged"),
        record(model="mamba", task="bucket_sort", level="context_sensitive", status="failed", error="no <memory>"),
    )


def lstm_runs(rate: float) -> list[str]:
    return [f"xlstm-parity-lstm-{rate}-{seed}" for seed in (0, 1)]


def test_without_a_script_the_tables_say_what_the_records_say() -> None:
    found = Page(page(small()))
    heads, *rows = found.tables[0]
    assert heads == ["Model", "parity", "bucket_sort"]
    assert rows == [
        ["LSTM", "0.55 [0.50, 0.60] 0/2", "–"],
        ["Mamba", "0.00 0/2, 1 diverged", "none of 1 finished"],
        ["floor: best constant", "0.10", "–"],
        ["floor: content free", "0.20", "–"],
    ]
    assert [each.get("scope") for each in found.of("th")] == ["col"] * 3 + ["row"] * 4


def test_a_cell_has_its_numbers_and_its_runs() -> None:
    data = Page(page(small())).data
    lstm, mamba, unfinished = cells(data)
    assert (lstm["lr"], lstm["median"], lstm["range"], lstm["solved"]) == (0.01, 0.55, [0.5, 0.6], [0, 2])
    assert lstm["chance"] == 0.5 and lstm["trained"] == [3, 40] and lstm["floors"] == [0.1, 0.2]
    assert mamba["lost"] == [1, 0] and unfinished["median"] is None and unfinished["lost"] == [0, 1]
    names = run_ids(data)
    assert [names[i] for i in lstm["rows"]] == ["xlstm-parity-lstm-0.001-0", *lstm_runs(0.01)]
    assert column(data, "status") == ["failed", *["done"] * 4, "diverged"] and data["count"] == 6
    assert data["protocols"][0]["cells"] == [[0, None], [1, 2]]


def test_hashes_of_commits_are_short() -> None:
    commit = "81470ddd7c08833118ab0bc9be0beda791b0c70a"
    data = Page(page(frame(record(commit=commit), record(seed=1, commit="")))).data
    assert sorted(map(str, column(data, "commit"))) == ["", "81470ddd7c"]
    assert data["protocols"][0]["facts"]["Commits"] == "unknown (1); 81470ddd7c (1)"


def test_what_the_ids_of_runs_share_stands_once() -> None:
    odd = ["parity-lstm-s13-s3-0a", "parity-lstm-s3-0b-1", "parity-lstm-s4-0c", "-", ""]
    ids = [f"parity-lstm-s{seed}-{seed:05d}abcde" for seed in range(3, 23)] + odd
    data = Page(page(frame(*(record(run_id=run_id, seed=3 + i) for i, run_id in enumerate(ids))))).data
    assert run_ids(data) == sorted(ids)
    assert data["runs"]["run_id"]["of"][-2:] == ["parity-lstm-s3-0b-1", "parity-lstm-s4-0c"]


def test_protocols_stand_apart_and_raw_accuracy_is_called_raw() -> None:
    records = frame(record(), record(protocol="slice (train.steps=9)", test_scaled=None, test=0.25))
    found = Page(page(records))
    assert [table[1] for table in found.tables] == [["LSTM", "0.25 0/1"], ["LSTM", "0.80 0/1"]]
    assert [table[0][1] for table in found.tables] == ["parity (raw)", "parity"]
    assert [cell["raw"] for cell in cells(found.data)] == [True, False]
    solved = [own["solved"] for own in found.data["protocols"]]
    assert solved == ["raw accuracy of 0.9 or more", "scaled accuracy of 0.9 or more"]


def test_the_ladder_has_every_rung_with_what_theory_says() -> None:
    data = Page(page(frame(*climb()))).data
    (ladder,) = data["ladders"]
    first, second = ladder["rows"]
    assert (first["model"], first["held"], first["run"]) == ("lstm", 11, 11) and len(ladder["rungs"]) == 12
    steps = {rung["name"]: step for rung, step in zip(ladder["rungs"], second["steps"], strict=True)}
    parity = steps["count mod 2"]
    assert (parity["held"], parity["n"], parity["meeting"]) == (1, 2, "cannot, not held")
    assert (parity["between"], parity["close"], ladder["strings"]) == ([1, 1], False, 142)
    assert (parity["theory"], ladder["whys"][parity["why"]]) == verdict("diagonal", "parity")
    assert cells(data)[parity["cell"]]["command"].startswith("ladder run parity mamba --protocol climb-v1")
    assert steps["recall"]["cell"] is None and ladder["where"] == "225..256"
    assert ladder["to_come"] == len(ROWS) - 2


def test_a_papers_values_stand_beside_ours_where_they_may() -> None:
    rows = [record(protocol=name, model=model) for name in ("xlstm_cpu", "mamba3") for model in ("lstm", "transformer")]
    by_label = {own["label"]: own for own in Page(page(frame(*rows))).data["protocols"]}
    papers = {paper["name"]: paper for paper in by_label["xlstm_cpu"]["papers"]}
    value, _, more, mark = papers["xlstm"]["values"]["0 0"]
    assert value == 1.0 and more == pytest.approx(-0.2) and mark in ("agrees", "differs", "undecided", "floor")
    assert "xlstm" not in {paper["name"] for paper in by_label["mamba3"]["papers"]}


def test_a_papers_value_stands_only_beside_tasks_that_are_trained_alike() -> None:
    rows = [record(protocol="fifteen-v1", task=task, model="lstm") for task in ("parity", "bucket_sort")]
    (own,) = (each for each in Page(page(frame(*rows))).data["protocols"] if each["label"] == "fifteen-v1")
    (values,) = (paper["values"] for paper in own["papers"] if paper["name"] == "xlstm")
    assert list(values) == [f"0 {own['tasks'].index('bucket_sort')}"]


def test_hostile_text_is_text() -> None:
    rows = [record(model=name, task=name, level=name, device=name, error=name) for name in HOSTILE]
    rows += [record(protocol=f"quick ({name})", model="lstm") for name in HOSTILE]
    plain = [record(model=f"m{i}", task=f"t{i}", level=f"l{i}", device=f"d{i}") for i in range(len(HOSTILE))]
    plain += [record(protocol=f"quick (c{i})", model="lstm") for i in range(len(HOSTILE))]
    found, like = Page(page(frame(*rows))), Page(page(frame(*plain)))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in like.elements]
    assert [sorted(each) for _, each in found.elements] == [sorted(each) for _, each in like.elements]
    names = {row[0] for table in found.tables for row in table}
    assert {name for name in HOSTILE if "(" not in name} <= names
    assert "<" not in found.scripts[0] and set(HOSTILE) == set(found.data["protocols"][-1]["models"])


def test_nothing_is_fetched_and_only_our_script_and_style_count() -> None:
    text = page(small(), listing=LISTING)
    found = Page(text)
    policy = next(each["content"] for each in found.of("meta") if each.get("http-equiv"))
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in _ours(found)]
    style, script = hashes
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )
    loading = [value for _, each in found.elements for key, value in each.items() if key in ("src", "href", "action")]
    assert loading and all(value and value.startswith("#") for value in loading)
    ours = "".join(_ours(found))
    assert not re.findall(r"@import|url\((?!#)|innerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", ours)
    assert not [key for _, each in found.elements for key in each if key.startswith("on") or key == "style"]
    assert not re.findall(r"\{\{\w+\}\}", text)


def _ours(found: Page) -> tuple[str, str]:
    return found.styles[0], found.scripts[1]


def test_it_says_what_it_is_to_who_links_it() -> None:
    found = Page(page(small()))
    said = {each.get("name") or each.get("property"): each.get("content") for each in found.of("meta")}
    for name in ("description", "og:title", "og:description", "og:type", "og:site_name", "viewport"):
        assert said[name], name
    assert next(found.of("html"))["lang"] == "en"


def test_the_script_is_its_files_in_the_stated_order() -> None:
    script = Page(page(small())).scripts[1]
    assert {path.stem for path in ASSETS.glob("*.js")} == set(SCRIPTS) and len(set(SCRIPTS)) == len(SCRIPTS)
    places = [script.index((ASSETS / f"{name}.js").read_text()) for name in SCRIPTS]
    assert places == sorted(places) and script.startswith('"use strict";')


def test_colours_are_the_figures() -> None:
    css = (ASSETS / "page.css").read_text()
    for level, colour in CLASS_COLOURS.items():
        assert f".{level} {{ --class: {colour}; --tint: light-dark({CLASS_TINTS[level]}, " in css
    models = Page(page(small(), listing=LISTING)).data["names"]["models"]
    assert {name: tuple(entry["look"]) for name, entry in models.items()} == {
        name: tuple(look) for name, look in looks(models).items()
    }


def test_tasks_and_models_are_what_the_listing_says() -> None:
    data = Page(page(small(), listing=LISTING)).data
    assert data["listed"]["tasks"]["parity"]["doc"] == "<b>" and data["listed"]["models"]["lstm"]["year"] == 1997
    assert data["theory"]["verdicts"]["lstm"]["parity"] == list(verdict("lstm", "parity"))
    assert Page(page(small())).data["listed"] == {"tasks": {}, "models": {}, "lengths": []}


def test_curves_are_those_of_the_chosen_rate_and_are_thinned() -> None:
    records = small()
    few = [(run, step, 1 / step, step / 9000 if step > 1 else None) for run in records["run_id"] for step in (1, 9)]
    long = [("xlstm-parity-lstm-0.01-1", step, 2.0, 0.5) for step in range(10, 5000)]
    points = pd.DataFrame([*few, *long], columns=["run_id", "step", "loss", "validation"])
    data = Page(page(records, curves=points)).data
    found, runs = data["curves"], sorted(records["run_id"])
    assert run_ids(data) == runs
    of = {runs[own["run"]]: own for own in rows(found["runs"])}
    assert set(of) == {*lstm_runs(0.01), *(name for name in records["run_id"] if "mamba" in name)}
    own = of["xlstm-parity-lstm-0.01-0"]
    assert (found["steps"][own["validation_at"]], own["validation"]) == ([9], [0.001])
    assert (found["steps"][own["loss_at"]], own["loss"]) == ([1, 9], [1, 0.111])
    longest = of["xlstm-parity-lstm-0.01-1"]
    steps, losses = found["steps"][longest["loss_at"]], longest["loss"]
    assert len(steps) == len(losses) == found["most"] == 200
    assert (steps[0], steps[-1]) == (1, 4999) and steps == sorted(set(steps))


@pytest.mark.full
def test_the_command_writes_the_same_bytes_in_any_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = (ROOT / "results" / "records.csv").read_bytes()
    (tmp_path / "records.csv").write_bytes(records)
    assert page_command(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'page.html'}: 1.")  # MB, of 4,400 runs
    first = (tmp_path / "page.html").read_bytes()
    assert Page(first.decode()).data["digest"] == hashlib.sha256(records).hexdigest()
    shuffled = pd.read_csv(tmp_path / "records.csv", dtype=str, keep_default_na=False).sample(frac=1, random_state=3)
    shuffled.to_csv(tmp_path / "records.csv", index=False)
    script = (
        "import sys; from chomsky_ladder.harness.cli.page import page; code = page(sys.argv[1:]);"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules; sys.exit(code)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    words = ["--results", str(tmp_path), "--out", str(tmp_path / "again.html")]
    subprocess.run([sys.executable, "-W", "error", "-c", script, *words], check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "again.html").read_bytes() == first


def thousand() -> pd.DataFrame:
    """1008 runs: 14 models on 4 tasks, 3 rates, 6 seeds, every bin and further length."""
    bins = json.dumps({f"{low}..{low + 31}": 0.123456789012345678 + low / 1000 for low in range(40, 256, 31)})
    further = '{"512":0.6123456789012345,"1024":0.5123456789012345}'
    return frame(
        *(
            record(
                protocol="xlstm_20k",
                task=task,
                level=level,
                model=f"model_{model} (d_model=64, num_blocks=3)",
                lr=rate,
                seed=seed,
                test_scaled=0.3 + model / 20 + seed / 1000,
                validation=0.5 + rate,
                test_bins=bins,
                content_free_bins=bins,
                extrapolation=further,
                device="NVIDIA H200",
                commit="81470ddd7c08833118ab0bc9be0beda791b0c70a",
                fingerprint="2d21c1441f49",
                backends="torch.lstm torch.sdpa",
                torch="2.13.0+cu130",
            )
            for task, level in TASKS.items()
            for model in range(14)
            for rate in (1e-2, 1e-3, 1e-4)
            for seed in range(6)
        )
    )


@pytest.mark.full
def test_a_thousand_runs_fit(tmp_path: Path) -> None:
    records = thousand()
    records.to_csv(tmp_path / "records.csv", index=False)
    rows = [
        (run, step, 1.2345678 / step, step / 20_001) for run in records["run_id"] for step in range(100, 20_001, 100)
    ]
    points = pd.DataFrame(rows, columns=["run_id", "step", "loss", "validation"])
    points.to_csv(tmp_path / "curves.csv", index=False)
    start = time.process_time()
    size = write(tmp_path, tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size < 1_500_000
    assert time.process_time() - start < 10


def test_runs_that_only_choose_a_rate_have_no_cell_on_the_page() -> None:
    tuned = record(protocol="climb-v2", task="word_problem", model="xlstm")
    whole = page(frame(tuned, *[record(seed=seed) for seed in range(2)]))
    assert [one["label"] for one in Page(whole).data["protocols"]] == ["xlstm"]
    assert Page(page(frame(tuned))).data["protocols"] == []
