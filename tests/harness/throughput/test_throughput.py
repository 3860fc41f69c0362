"""A report of small models is whole, every lack in it has its reason, and tables and figures show what it holds."""

import json
import re
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.tables.formats import markdown
from chomsky_ladder.harness.throughput import bench as throughput
from chomsky_ladder.harness.throughput import measure as throughput_measure
from chomsky_ladder.harness.throughput.bench import COLUMNS, Bench, Prefill, Row, matched, model_rows, report_of
from chomsky_ladder.harness.throughput.entries import digits
from chomsky_ladder.harness.throughput.grid import Grid, Point, Way
from chomsky_ladder.harness.throughput.join import joined
from chomsky_ladder.harness.throughput.measure import Meter
from chomsky_ladder.harness.throughput.reports import compared, finish, read_report
from chomsky_ladder.harness.throughput.table import Found, sheets, write
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.plain import plain_model
from chomsky_ladder.models.transformer import TransformerConfig

CPU = torch.device("cpu")
GRID = Grid(
    parameters=3000,
    state_bytes=512,
    state_context=8,
    tokens=32,
    lengths=(8, 16),
    growing=(8, 16, 32),
    prefill=(8, 16, 32),
    contexts=(1, 64),
    batches=(2,),
    at=16,
    repeats=2,
)
NAMES = ("encoder", "lstm", "transformer")


@pytest.fixture(scope="module", autouse=True)
def _small_ceilings() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(throughput_measure._COPIED, "cpu", 1 << 20)
        patch.setitem(throughput_measure._PRODUCT, "cpu", 64)
        yield


@pytest.fixture(scope="module")
def report() -> Row:
    """Measure models whose conformance tests/test_conformance.py checks."""
    kept: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throughput.conformance, "check", lambda model: [])
        made = report_of(NAMES, GRID, CPU, tell=lambda line: None, keep=lambda report: kept.append(len(report["rows"])))
    assert len(kept) == 3 and kept == sorted(kept)
    return json.loads(json.dumps(made))


def rows_of(report: Row, **place: Any) -> list[Row]:
    return [row for row in report["rows"] if all(row.get(key) == value for key, value in place.items())]


@pytest.mark.full
def test_every_point_is_measured_or_says_why_not(report: Row) -> None:
    for row in report["rows"]:
        assert set(row) <= set(COLUMNS)
        if row.get("not_run"):
            assert row["model"] == "encoder" and "no step form" in row["not_run"]
            continue
        assert 0 < row["ms_p20"] <= row["ms"] <= row["ms_p80"] and row["wall_ms"] > 0 and row["repeats"] == 2
        made = row["batch"] * (1 if row["what"] == "decode" else row["length"])
        assert row["tokens_per_s"] == pytest.approx(made / row["ms"] * 1e3)
        assert row["gflop_per_s"] == pytest.approx(row["flops_per_token"] * row["tokens_per_s"] / 1e9)
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / row["ms"] / 1e6)
        if row["what"] == "train":
            parts = sum(row[f"{part}_ms"] for part in ("forward", "backward", "update"))
            assert 0.5 * row["ms"] < parts < 1.5 * row["ms"]
            assert row["peak_bytes"] > 12 * row["parameters"]  # weights and two moments
        if row["what"] == "decode":
            assert row["bytes"] == 4 * row["parameters"] + 2 * row["state_bytes"] * row["batch"]
        else:
            assert row["peak_bytes"] > 4 * row["parameters"]
    for model in ("lstm", "transformer"):
        trained = rows_of(report, model=model, what="train", match="parameters")
        assert {(row["batch"], row["length"]) for row in trained} == {(4, 8), (2, 16), (1, 8), (1, 16), (1, 32)}
        assert {row["way"] for row in rows_of(report, model=model)} == {"auto", "reference"}
        assert {row["precision"] for row in rows_of(report, model=model)} == {"fp32", "bf16"}
    assert [row["not_run"] for row in rows_of(report, model="encoder", match="state")] == [
        "encoder has no step form, so no state"
    ]
    assert rows_of(report, model="lstm", what="train", way="auto")[0]["backends"] == "torch.lstm"
    assert rows_of(report, model="lstm", what="train", way="reference")[0]["backends"] == ""


@pytest.mark.full
def test_states_are_weighed_by_looking(report: Row) -> None:
    """A cache of two blocks, keys and values, 4 bytes a number, and a position of 8 a block."""
    width = rows_of(report, model="transformer", match="parameters")[0]["d_model"]
    for row in rows_of(report, model="transformer", match="parameters", what="decode"):
        assert row["state_bytes"] == 2 * (2 * 4 * width * row["length"] + 8)
    (state,) = {row["state_bytes"] for row in rows_of(report, model="lstm", match="parameters")}
    assert state == 2 * 2 * 4 * rows_of(report, model="lstm")[0]["d_model"]
    assert {row["state_bytes"] for row in rows_of(report, model="lstm", match="state")} == {512}


@dataclass(frozen=True, kw_only=True)
class Growing(ModelConfig):
    """Takes memory by the square of the length squared, and breaks in a way of its own at 9."""

    name, family, year, paper = "test_growing", "test", 2026, "none"
    stepwise = False

    def block(self, layer: int) -> Block:
        return Outer()


class Outer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        length = x_BLD.shape[1]
        assert length != 9, "nine is not to be had"
        torch.zeros(length, length, 4000)
        return x_BLD * self.weight


def bench_of(config: ModelConfig, **grid: Any) -> Bench:
    return Bench(config, "parameters", replace(GRID, **grid), Meter(CPU, repeats=2))


def test_what_runs_out_of_memory_says_oom_and_the_rest_goes_on() -> None:
    bench = bench_of(Growing(d_model=4, num_blocks=1), memory=100_000_000)
    found = [bench.row(Point(Way(), "prefill", 1, length)) for length in (8, 400, 9, 16)]
    assert [row.get("not_run", "") for row in found] == ["", "OOM", "nine is not to be had", ""]
    assert found[3]["peak_bytes"] > 16 * 16 * 4000 * 4 and found[3]["ms"] > 0


def test_what_takes_too_long_or_is_too_long_is_not_timed() -> None:
    slow = bench_of(LSTMConfig(d_model=8), slowest=1e-9).row(Point(Way(), "train", 1, 8))
    assert slow["not_run"].startswith("over 1e-09 s: 0.0 s") and "ms" not in slow and slow["first_s"] > 0
    short = bench_of(TransformerConfig(d_model=8, num_heads=2, positions="learnt", max_length=16))
    assert short.row(Point(Way(), "prefill", 1, 17))["not_run"] == "takes no more than 16 positions"
    assert "not_run" not in short.row(Point(Way(), "prefill", 1, 16))
    assert short.work.grown == 2 * 2 * 8


@dataclass(frozen=True, kw_only=True)
class Leaky(LSTMConfig):
    """An LSTM that sees one token into the future."""

    name = "test_leaky"

    def block(self, layer: int) -> Block:
        return Ahead(super().block(layer))


class Ahead(Block):
    def __init__(self, inner: Block) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.inner(torch.cat([x_BLD[:, 1:], x_BLD[:, :1]], 1), ctx)


def test_a_model_that_fails_conformance_is_refused() -> None:
    (row,) = model_rows(Leaky, GRID, Meter(CPU, repeats=2))
    assert row["model"] == "test_leaky" and row["not_run"].startswith("refused: ")


class Picky(nn.Module):
    """Works at the widths at which it is checked, and at no other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, x_BLD: Tensor) -> Tensor:
        if x_BLD.shape[2] not in (8, 16, 24, 64):
            raise RuntimeError("a width nobody tried")
        return self.out(x_BLD.cumsum(1))


@pytest.mark.full
def test_a_model_that_breaks_is_a_row_and_takes_no_other_with_it(
    report: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_model("picky", Picky)
    few = replace(GRID, lengths=(16,), growing=(16,), prefill=(16,), contexts=(1,), tokens=32, batches=(2,))
    made = report_of(("picky", "encoder"), few, CPU, tell=lambda line: None)
    (fault,) = (row["not_run"] for row in rows_of(made, model="picky") if row["not_run"].startswith("failed"))
    assert fault.startswith("failed: RuntimeError: a width nobody tried (test_throughput.py:")
    assert any(row.get("ms") for row in rows_of(made, model="encoder"))
    kept = report | {"rows": [*report["rows"], *rows_of(made, model="picky")]}
    (tmp_path / "report.json").write_text(json.dumps(kept))
    words = ["--report", str(tmp_path / "report.json"), "--out", str(tmp_path / "out"), "--results", str(tmp_path)]
    assert cli.main(["throughput", *words]) == 1
    said = capsys.readouterr()
    assert "ladder: picky: failed: RuntimeError: a width nobody tried" in said.err and "lstm" in said.out


def test_compiled_training_is_a_way_of_its_own() -> None:
    ways = throughput.ways_of("lstm", replace(GRID, compiled=True), CPU)
    points = GRID.points("parameters", ways)
    assert "auto compiled" in {way.name for way in ways}
    assert {point.what for point in points if point.way.compiled} == {"train"}
    assert {way.backend for way in ways if way.compiled} == {"auto"}, "the reference's loop would take hours"


def test_a_loop_of_thousands_of_operations_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("it was compiled"))
    bench = Bench(LSTMConfig(d_model=16), "parameters", GRID, Meter(CPU, repeats=3))
    row = bench.row(Point(Way(backend="reference", compiled=True), "train", 1, 512))
    assert re.fullmatch(r"ValueError: \d+,\d{3} operations, of which no more than 2,000 are compiled", row["not_run"])


def test_a_point_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError, match=r"over 0\.05 s"), throughput_measure.within(0.05):
        time.sleep(60)
    with throughput_measure.within(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_prefill_and_decoding_are_those_of_generation() -> None:
    """The first token of a prefill, and the next of a decoding, are what the model says of the whole string."""
    for config in (LSTMConfig(d_model=8), TransformerConfig(d_model=8, num_heads=2), EncoderConfig(d_model=8)):
        bench = bench_of(config)
        weights = sum(parameter.numel() for parameter in bench.model.parameters())
        assert throughput.Training(bench, Point(Way(), "train", 3, 16)).standing == 12 * weights  # and two moments
        tokens_BL = bench.tokens(3, 16, CPU)
        with torch.no_grad():
            said_B = bench.model(tokens_BL, Context())[:, -1].argmax(-1)
        assert torch.equal(Prefill(bench, Point(Way(), "prefill", 3, 16)).step(), said_B)
        if config.stepwise:
            decoding = throughput.Decoding(bench, Point(Way(), "decode", 3, 16))
            assert torch.equal(decoding.step(), said_B) and torch.equal(decoding.step(), said_B)


def test_tables_show_the_report_in_every_format(report: Row, tmp_path: Path) -> None:
    paths = write(report, tmp_path)
    assert sorted(path.name for path in paths) == [f"throughput.{end}" for end in ("csv", "html", "md", "tex")]
    before = {path: path.read_bytes() for path in paths}
    write(report, tmp_path)
    assert before == {path: path.read_bytes() for path in paths}
    frame = pd.read_csv(tmp_path / "throughput.csv")
    assert len(frame) == len(report["rows"]) and set(COLUMNS) < set(frame)
    by_title = {sheet.title: sheet for sheet in sheets(report)}
    assert list(by_title) == ["Training", "Generation", "Scaling", "Work", "Matched state", "Ways"]
    for title, sheet in by_title.items():
        assert all(len(line.entries) == len(sheet.columns) for line in sheet.lines), title
        names = [line.name for line in sheet.lines]
        assert names == list(NAMES) if title != "Ways" else len(names) == 9
    row = rows_of(report, model="lstm", what="train", batch=2, length=16, way="auto", precision="fp32")[0]
    lstm = by_title["Training"].lines[1]
    slow, fast = (digits(32 / row[end] * 1e3) for end in ("ms_p80", "ms_p20"))
    assert lstm.entries[3].lines == (digits(row["tokens_per_s"]), f"{slow}..{fast}")
    assert lstm.entries[-2].lines[0] == digits(row["ms"])
    assert by_title["Generation"].lines[0].entries[-1].lines == ("no step form",)
    law = Found(report).law("transformer", "decode", "state_bytes")
    assert law is None or law.points >= 3


def test_figures_show_the_report(report: Row, tmp_path: Path) -> None:
    finish(report, tmp_path, tmp_path / "nowhere")
    names = ("throughput", "memory", "decode", "roofline")
    assert sorted(path.stem for path in (tmp_path / "figures").glob("*.png")) == sorted(names)
    shown = pd.read_csv(tmp_path / "figures" / "decode.csv")
    assert set(shown["model"]) == {"lstm", "transformer"} and set(shown["length"]) == {1, 64}
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert compared(report, read_report(tmp_path / "report.json")).startswith(
        f"{sum('ms' in row for row in report['rows'])} of"
    )


def test_the_command_makes_tables_anew_and_refuses_mistakes_in_one_line(
    report: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report))
    words = ["throughput", "--report", str(tmp_path / "report.json"), "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "### Training" in printed.out and "no figure accuracy" in printed.err
    mistakes = {
        ("--models", "lstn"): "did you mean lstm",
        ("--device", "tpu"): "no such device",
        ("--grid.lengths", "100"): "do not add up",
        ("--report", "nothing.json"): "no such report",
        ("--against", str(tmp_path / "out" / "throughput.csv")): "throughput.csv",
    }
    for options, said in mistakes.items():
        assert cli.main(["throughput", *options]) == 2
        printed = capsys.readouterr()
        assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_reports_of_one_grid_are_joined(report: Row) -> None:
    halves = [{**report, "rows": rows_of(report, model=name), "seconds": 1.5} for name in ("lstm", "encoder")]
    whole = joined(halves)
    assert whole["rows"] == halves[0]["rows"] + halves[1]["rows"] and whole["seconds"] == 3.0
    with pytest.raises(ValueError, match="reports of different device do not go together"):
        joined([halves[0], {**halves[1], "device": "another"}])


def test_the_table_says_how_often_it_was_measured(report: Row) -> None:
    assert "sittings" not in markdown(sheets(report))
    said = markdown(sheets(joined([report, report])))
    assert "in each of up to 2 sittings, whose median stands, below them the lowest 20th and the highest 80th" in said


def test_matched_models_have_as_many_parameters_or_bytes() -> None:
    by_size = matched(LSTMConfig(), "parameters", GRID)
    assert sum(p.numel() for p in by_size.build(GRID.vocab).parameters()) == pytest.approx(3000, rel=0.2)
    assert matched(LSTMConfig(), "state", GRID).d_model == 512 // 16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_captured_step_of_training_is_timed_and_learns_as_a_plain_one() -> None:
    device = torch.device("cuda")
    losses = {}
    for graph in (False, True):
        bench = Bench(LSTMConfig(d_model=16), "parameters", GRID, Meter(device, repeats=3))
        training = throughput.Training(bench, Point(Way(backend="reference", graph=graph), "train", 2, 16))
        calls = 8
        for _ in range(calls if not graph else calls - throughput_measure.WARM_UP):
            training.once()  # a capture's warm-up takes steps of its own
        losses[graph] = training.loss_of().item()
        row = bench.row(Point(Way(backend="reference", graph=graph), "train", 2, 16))
        assert row["ms"] > 0 and "not_run" not in row
        assert graph or row["peak_bytes"] > 0, "a replay allocates nothing"
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_captured_step_of_decoding_says_what_a_plain_one_says() -> None:
    device = torch.device("cuda")
    bench = Bench(TransformerConfig(d_model=16, num_heads=2), "parameters", GRID, Meter(device, repeats=3))
    said = {}
    for graph in (False, True):
        row = bench.row(Point(Way(graph=graph), "decode", 2, 16))
        assert row["ms"] > 0 and "not_run" not in row
        said[graph] = throughput.Decoding(bench, Point(Way(graph=graph), "decode", 2, 16)).step()
    assert torch.equal(said[True], said[False])
