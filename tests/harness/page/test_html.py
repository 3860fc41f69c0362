"""The page as text: what it says, what it escapes, that it is the same twice, and the command of every cell."""

import base64
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.cli.page import page as page_command
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.figures.style import CLASS_COLOURS, CLASS_NAMES, CLASS_TINTS
from chomsky_ladder.harness.page.html import page, write
from chomsky_ladder.harness.store.labels import Identity, reproduce
from support.records_by_hand import frame, record

ROOT = Path(__file__).parents[3]
HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"'&lt;b{{data}}", "<!--<script>")
TASKS = {"parity": "regular", "majority": "counter", "dyck": "context_free", "bucket_sort": "context_sensitive"}


class Page(HTMLParser):
    """The tables of a page as rows of text, its elements with their attributes, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._where: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._where.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._where and self._where.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self._where[-1:]:
            self.scripts[-1] += data
        elif {"td", "th"} & set(self._where):
            self.tables[-1][-1][-1] += data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def small() -> pd.DataFrame:
    """Of parity, lstm at two rates, mamba with a run that diverged; of bucket_sort only mamba, not finished."""
    return frame(
        *(record(lr=1e-2, seed=seed, test_scaled=0.5 + seed / 10, validation=0.95) for seed in (0, 1)),
        record(lr=1e-3, validation=0.8, test_scaled=0.99),
        record(model="mamba", test_scaled=-0.004),
        record(model="mamba", seed=1, status="diverged"),
        record(model="mamba", task="bucket_sort", level="context_sensitive", status="failed", error="no <memory>"),
    )


def test_a_table_says_what_the_records_say() -> None:
    found = Page(page(small()))
    bands, tasks, *rows = found.tables[0]
    assert bands == ["Model", "regular", "context-sensitive"] and tasks == ["parity", "bucket_sort"]
    assert rows == [
        ["LSTM", "0.55 [0.50, 0.60] 0/2", "–not measured"],
        ["Mamba", "0.00 0/2, 1 diverged", "none of 1 finished"],
        ["floor: best constant", "0.10", "–not measured"],
        ["floor: content free", "0.20", "–not measured"],
    ]
    scopes = [attributes.get("scope") for attributes in found.of("th")]
    assert scopes == ["col", "colgroup", "colgroup", "col", "col", *["row"] * 4]
    lstm, mamba, unfinished = found.data["cells"]
    assert (lstm["lr"], lstm["median"], lstm["solved"], lstm["chance"]) == (0.01, pytest.approx(0.55), [0, 2], 0.5)
    assert lstm["trained"] == [3, 40]
    assert len(lstm["rows"]) == 3 and len(mamba["rows"]) == 2 and unfinished["median"] is None
    stored = pd.read_csv(io.StringIO(found.data["csv"]))
    assert list(stored["run_id"].iloc[lstm["rows"]]) == ["xlstm-parity-lstm-0.001-0", *lstm_runs(0.01)]


def lstm_runs(rate: float) -> list[str]:
    return [f"xlstm-parity-lstm-{rate}-{seed}" for seed in (0, 1)]


def test_protocols_have_tables_of_their_own_and_raw_accuracy_is_called_raw() -> None:
    records = frame(record(), record(protocol="slice (train.steps=9)", test_scaled=None, test=0.25))
    found = Page(page(records))
    assert [table[2] for table in found.tables] == [["LSTM", "0.25 0/1"], ["LSTM", "0.80 0/1"]]
    assert [table[1] for table in found.tables] == [["parityraw"], ["parity"]]
    assert found.data["cells"][0]["chance"] == 0.0
    assert [own["label"] for own in found.data["protocols"]] == ["slice (train.steps=9)", "xlstm"]


def test_hostile_text_is_text() -> None:
    rows = [record(model=name, task=name, level=name, device=name, error=name) for name in HOSTILE]
    rows += [record(protocol=f"quick ({name})", model="lstm") for name in HOSTILE]
    plain = [record(model=f"m{i}", task=f"t{i}", level=f"l{i}", device=f"d{i}") for i in range(4)]
    plain += [record(protocol=f"quick (c{i})", model="lstm") for i in range(4)]
    found, like = Page(page(frame(*rows))), Page(page(frame(*plain)))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in like.elements]
    assert [sorted(each) for _, each in found.elements] == [sorted(each) for _, each in like.elements]
    names = {row[0] for table in found.tables for row in table}
    assert {name for name in HOSTILE if "(" not in name} <= names
    assert "<" not in found.scripts[0] and set(HOSTILE) == set(found.data["protocols"][-1]["models"])


def test_nothing_is_fetched_and_only_our_script_runs() -> None:
    text = page(small())
    found = Page(text)
    policy = next(each["content"] for each in found.of("meta") if each.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(found.scripts[1].encode()).digest()).decode()
    assert policy is not None and policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}'" in policy
    loading = [value for _, each in found.elements for key, value in each.items() if key in ("src", "href", "action")]
    assert all(value and value.startswith(("#", "data:")) for value in loading)
    assert "@import" not in text and "url(" not in text and "innerHTML" not in text
    assert not [key for _, each in found.elements for key in each if key.startswith("on")]
    assert not re.findall(r"\{\{\w+\}\}", text)


def test_colours_are_the_figures() -> None:
    css = (ROOT / "harness" / "page" / "assets" / "page.css").read_text()
    for level, colour in CLASS_COLOURS.items():
        assert f".{level} {{ --class: {colour}; --tint: light-dark({CLASS_TINTS[level]}, " in css
    records = frame(*(record(task=level, level=level) for level in CLASS_NAMES))
    assert Page(page(records)).tables[0][0] == ["Model", *CLASS_NAMES.values()]


def test_curves_are_those_of_the_chosen_rate_and_are_thinned() -> None:
    records = small()
    rows = [(run, step, 1 / step, step / 9000 if step > 1 else None) for run in records["run_id"] for step in (1, 9)]
    long = [("xlstm-parity-lstm-0.01-1", step, 2.0, 0.5) for step in range(10, 5000)]
    curves = pd.DataFrame([*rows, *long], columns=["run_id", "step", "loss", "validation"])
    data = Page(page(records, curves=curves)).data
    chosen = {*lstm_runs(0.01), *(name for name in records["run_id"] if "mamba" in name)}
    assert set(data["curves"]) == chosen
    assert data["curves"]["xlstm-parity-lstm-0.01-0"] == {"validation": [[9], [0.001]], "loss": [[1, 9], [1, 0.1111]]}
    steps, losses = data["curves"]["xlstm-parity-lstm-0.01-1"]["loss"]
    assert len(steps) == len(losses) == data["points"] == 200
    assert (steps[0], steps[-1]) == (1, 4999) and steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ("parity lstm --protocol quick --train.lr 0.01 --seed 3", False),
        ("bucket_sort xlstm --protocol xlstm_20k --train.lr 1e-05 --seed 0 --model.ratio 0:1 --model.d-model 64", True),
        (
            "parity hybrid --protocol xlstm --train.lr 0.5 --model.pattern lstm,gru,mamba --model.num-blocks 3",
            True,
        ),
        (
            "parity lstm --protocol slice --train.lr 0.002 --seed 0 --task.supervision final --eval.bins 40 100 256",
            True,
        ),
        (
            "mod_arithmetic mamba --protocol mamba3 --train.lr 0.01 --seed 0 --train.curriculum --train.betas 0.5 0.9",
            True,
        ),
        ("regular lstm --protocol quick --train.lr 0.01 --seed 0 --task.pattern (ab|ba)*a?", True),
    ],
)
def test_the_command_makes_the_very_run(words: str, *, is_told: bool) -> None:
    run = parse_run(words.split())[0]
    command, notes = reproduce(identity_of(run), lr=run.train.lr)
    start, name, *rest = shlex.split(f"{command} --seed {run.seed}")
    assert (start, name) == ("ladder", "run") and parse_run(rest)[0].run_id == run.run_id
    told = [note for note in notes if "is version 2: another version of the code may have another" not in note]
    assert len(told) == is_told and all("the options say so" in note for note in told)


def of_labels(protocol: str, task: str, model: str) -> tuple[str, list[str]]:
    """Of a record from before there were names and settings."""
    return reproduce(Identity.of({"protocol": protocol, "task": task, "model": model}), lr=0.1)


def test_a_command_says_what_it_cannot() -> None:
    assert "version 2" in of_labels("quick", "parity v2", "lstm")[1][0]
    command, notes = of_labels("quick (eval.file=abc)", "parity", "lstm (d_model=8)")
    assert command == "ladder run parity lstm --protocol quick --train.lr 0.1 --model.d-model 8"
    assert notes == ["These labels deviate from the protocol in what is no plain option, so add it: eval.file=abc"]
    for name in HOSTILE:  # a name stays one word, whatever is in it
        command, notes = of_labels("quick", "parity", name)
        assert name.startswith(shlex.split(command)[3])


def test_figures_are_embedded_and_what_is_too_large_is_said(tmp_path: Path) -> None:
    label = "quick (train.steps=9)"
    own = tmp_path / folder_name(label)
    own.mkdir()
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    (own / "heat_map.svg").write_bytes(svg)
    (own / "heat_map.png").write_bytes(bytes(500_000))
    (own / "lengths.svg").write_bytes(bytes(500_000))
    (own / "lengths.png").write_bytes(b"smaller")
    (own / "cost.png").write_bytes(bytes(4_000_000))
    text = page(frame(record(protocol=label), record()), figures=tmp_path)
    pictures = list(Page(text).of("img"))
    assert [each["src"] for each in pictures] == [
        f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        f"data:image/png;base64,{base64.b64encode(b'smaller').decode()}",
    ]
    assert all(each["alt"] and each["alt"].endswith(label) for each in pictures)
    assert f"too large for this page; it is in figures/{folder_name(label)}/" in text and len(text) < 200_000


@pytest.mark.full
def test_the_command_writes_the_same_bytes_in_any_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = (ROOT / "results" / "records.csv").read_bytes()
    (tmp_path / "records.csv").write_bytes(records)
    assert page_command(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'page.html'}: 0.")
    first = (tmp_path / "page.html").read_bytes()
    data = Page(first.decode()).data
    assert data["csv"].encode() == records == (tmp_path / "records.csv").read_bytes()
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


def test_a_mistake_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder of results"):
        page_command(["--results", str(tmp_path / "none")])
    with pytest.raises(ValueError, match="no finished runs"):
        page_command(["--results", str(tmp_path)])
    with pytest.raises(ValueError, match="--out names a file in a folder that is there"):
        page_command(["--results", str(tmp_path), "--out", str(tmp_path / "no" / "page.html")])


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
    curves = pd.DataFrame(rows, columns=["run_id", "step", "loss", "validation"])
    curves.to_csv(tmp_path / "curves.csv", index=False)
    own = tmp_path / "figures" / "xlstm_20k"
    own.mkdir(parents=True)
    for name in ("heat_map", "ladder", "lengths", "cost", "validation", "loss"):
        (own / f"{name}.svg").write_bytes(bytes(350_000))
    start = time.process_time()
    size = write(tmp_path, tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size < 5_000_000
    assert time.process_time() - start < 10
