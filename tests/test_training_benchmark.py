"""The training benchmark at tiny sizes: its table is whole, its ratios are of what it prints, and its counts right."""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "scripts" / "benchmarks"
TINY = ["--device", "cpu", "--batch", "4", "--width", "16", "--lengths", "3", "6", "--context", "9", "--repeats", "2"]
TINY += ["--public-repeats", "1", "--run-steps", "50", "--models", "lstm", "transformer", "--packs", "2"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def public() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import public_xlstm

        patch.setitem(public_xlstm.COPIED, "cpu", 1 << 20)
        patch.setitem(public_xlstm.PRODUCT, "cpu", 64)
        yield public_xlstm


@pytest.fixture(scope="module")
def benchmark(public: ModuleType) -> ModuleType:
    import training

    return training


def reported(benchmark: ModuleType, *words: str) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert benchmark.main([*TINY, *words, "--json"]) == 0
    return json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmark") / "out"


@pytest.fixture(scope="module")
def report(benchmark: ModuleType, folder: Path) -> dict[str, Any]:
    pytest.importorskip("xlstm")
    return reported(benchmark, "--public", "1:1", "--out", str(folder))


def row_of(report: dict[str, Any], model: str, way: str) -> dict[str, Any]:
    (row,) = [row for row in report["rows"] if row["model"].startswith(model) and row["way"] == way]
    return row


def test_every_row_has_its_columns_or_a_reason(report: dict[str, Any], benchmark: ModuleType) -> None:
    ways = [(row["model"], row["way"]) for row in report["rows"]]
    here = [(model, way) for model in ("lstm", "transformer") for way in ("plain", "captured", "packed 2")]
    beside = [("xlstm[1:1] as in the package", way) for way in ("plain", "public padded", "public cropped")]
    assert ways == here + beside
    for row in report["rows"]:
        assert set(row) <= set(benchmark.COLUMNS)
        if row["way"] == "captured":
            assert row["not_run"] == "no CUDA device"
            assert not {"ms", "steps_per_s", "runs_per_hour", "calls"} & set(row)
            continue
        spared = {"not_run"} | ({"gain"} if row["way"] == "plain" else set())
        columns = benchmark.SPEED + benchmark.WORK
        if row["model"].startswith("xlstm"):
            spared |= {"times_ours", "goal", "padding_factor"} if row["way"] == "plain" else set()
            spared |= {"padding_factor"} if row["way"] == "public cropped" else set()
            columns = benchmark.PUBLIC
        assert set(columns) - spared <= set(row), row["model"]
        assert 0 < row["ms_p20"] <= row["ms"] <= row["ms_p80"]


def test_ratios_are_of_the_numbers_printed(report: dict[str, Any]) -> None:
    reached = report["ceilings"]
    for row in [row for row in report["rows"] if "ms" in row]:
        count = row.get("replicas", 1)
        assert row["steps_per_s"] == pytest.approx(1000 / row["ms"], abs=1e-3)
        assert row["runs_per_hour"] == pytest.approx(count * 3600 / (row["ms"] / 1000 * 50), abs=1e-3)
        if "gflop" in row:
            assert row["of_product_%"] == pytest.approx(
                row["gflop"] / row["ms"] * 1e5 / reached["product_gflop_per_s"], abs=0.02, rel=0.01
            )
            assert row["of_copy_%"] == pytest.approx(
                row["mb"] / row["ms"] * 100 / reached["copy_gb_per_s"], abs=0.02, rel=0.01
            )
            assert sum(row[f"{part}_%"] for part in ("draw", "forward", "backward", "update")) == pytest.approx(
                100, abs=0.05
            )
    for model in ("lstm", "transformer"):
        single, pack = row_of(report, model, "plain"), row_of(report, model, "packed 2")
        assert pack["gain"] == pytest.approx(2 * single["ms"] / pack["ms"], abs=0.006)
        assert pack["gflop"] == pytest.approx(2 * single["gflop"], abs=2e-5)
        assert pack["mb"] == pytest.approx(2 * single["mb"], abs=2e-3) and single["mb"] > 40e-6 * single["parameters"]
    ours, padded, cropped = (row_of(report, "xlstm", way) for way in ("plain", "public padded", "public cropped"))
    assert (padded["goal"], cropped["goal"]) == (30, 3)
    assert padded["times_ours"] == pytest.approx(padded["ms"] / ours["ms"], abs=0.006)
    assert cropped["times_ours"] == pytest.approx(cropped["ms"] / ours["ms"], abs=0.006)
    assert padded["padding_factor"] == pytest.approx(padded["ms"] / cropped["ms"], abs=0.006)
    # Three LayerNorms here have a bias of 16, and so has the one in front of the sLSTM's feed-forward.
    assert ours["parameters"] - padded["parameters"] == 4 * 16


def test_files_hold_the_table_and_where_it_comes_from(report: dict[str, Any], folder: Path) -> None:
    table = pd.read_csv(folder / "training.csv")
    assert table["way"].tolist() == [row["way"] for row in report["rows"]]
    assert table["ms"].fillna(0).tolist() == [row.get("ms", 0) for row in report["rows"]]
    assert set(table["commit"]) == {report["provenance"]["commit"]}
    text = (folder / "training.md").read_text()
    for row in report["rows"]:
        assert f"| {row['model']} | {row['way']} |" in text
    assert "no CUDA device" in text and report["provenance"]["commit"] in text


def test_what_cannot_run_says_why(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlstm", None)
    monkeypatch.setattr(benchmark, "ROOM", 0.0)
    report = reported(benchmark, "--models", "lstm", "--public", "0:1", "--padded")
    assert "GB for its backward pass" in row_of(report, "lstm", "packed 2")["not_run"]
    assert row_of(report, "xlstm", "public padded")["not_run"] == "left out by --padded"
    assert "pip install xlstm" in row_of(report, "xlstm", "public cropped")["not_run"]
    assert row_of(report, "xlstm", "plain")["ms"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--models", "lstn"], "lstn"), (["--models", "lstm[1:1]"], "no ratio"), (["--device", "x"], "x")],
)
def test_a_mistake_is_one_line(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert benchmark.main([*TINY, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_operators_are_those_no_other_one_called(benchmark: ModuleType) -> None:
    a = torch.ones(2, 2)

    def three_and_one() -> None:
        for _ in range(3):
            torch.add(a, a)
        torch.nn.functional.linear(a, a)  # itself a transposition and a product

    assert benchmark.operators(three_and_one) == 4


def test_products_of_an_lstm(benchmark: ModuleType, public: ModuleType) -> None:
    """Forward, and backward to what a product read: thrice each, but for the first state, which has no gradient.

    The head is asked for one position of each string.
    """
    run = public.run_of("lstm", public.Sizes(batch=4, width=16, lengths=(3, 6)))
    positions, batch, width, symbols = 5, 4, 16, 3
    a_step = 2 * batch * width * 4 * width
    layers = 2 * (3 * positions * a_step + (3 * positions - 1) * a_step)
    head = 3 * 2 * batch * width * symbols
    assert benchmark.products(run, CPU) * 1e9 == layers + head


def test_a_pack_saves_what_its_runs_save(benchmark: ModuleType, public: ModuleType) -> None:
    run = public.run_of("transformer", public.Sizes(batch=4, width=16, lengths=(3, 6)))
    one, two = (benchmark.saved_bytes([run] * count, CPU) for count in (1, 2))
    assert 1.9 < two / one < 2.1
    stream = 4 * 4 * 5 * 16  # bytes of a float tensor [B, L, D]
    assert 20 * stream < one < 200 * stream  # two blocks


def test_turns_alternate_and_the_first_is_not_counted(public: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, taken = [0.0], []
    monkeypatch.setattr(public, "now", lambda device: clock[0])

    def turn(name: str, durations: list[float]) -> None:
        taken.append(name)
        clock[0] += durations.pop(0)

    a, b = [100.0, 1.0, 3.0, 2.0], [100.0, 4.0]
    turns = {"a": lambda: turn("a", a), "b": lambda: turn("b", b)}
    times = public.interleaved(turns, {"a": 3, "b": 1}, device=CPU)
    assert taken == ["a", "b", "b", "a", "a", "a"]
    assert times["a"]["ms"] == 2.0 and times["b"] == {"ms": 4.0, "ms_p20": 4.0, "ms_p80": 4.0}


def test_public_strings_are_parity(public: ModuleType) -> None:
    strings = public.Strings(lengths=(3, 6), context=9, seed=0)
    seen = set()
    for index in range(60):
        inputs, targets = (x.tolist() for x in strings[index])
        (place,) = [position for position, target in enumerate(targets) if target != -1]
        letters = inputs[: place + 1]
        assert len(inputs) == len(targets) == 8 and set(letters) <= {1, 2} and not any(inputs[place + 1 :])
        assert targets[place] == (2 if letters.count(2) % 2 else 1)
        seen.add(place + 2)
    assert seen == {3, 4, 5, 6}


def test_cropping_cuts_the_padding_alone(public: ModuleType) -> None:
    pytest.importorskip("xlstm")
    sizes = public.Sizes(batch=16, width=16, lengths=(3, 6), context=9)
    padded, cropped = (public.PublicLoop("1:0", sizes, device=CPU, cropped=cropped) for cropped in (False, True))
    for whole, cut in zip(padded.load(), cropped.load(), strict=True):
        assert whole.shape == (16, 8) and cut.shape == (16, 5)
        assert torch.equal(whole[:, :5], cut) and (whole[:, 5:] <= 0).all()
    padded.step()
    cropped.step()
    assert padded.losses == pytest.approx(cropped.losses, rel=1e-5)
