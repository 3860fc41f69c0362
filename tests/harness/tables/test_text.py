"""The table of perplexities from hand-made records: what stands in it, and that no paper's stand beside them."""

import math
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.tables.kinds.text import BOUNDS
from chomsky_ladder.harness.tables.write import table
from chomsky_ladder.tasks.text import ENTROPY_RATE, UNIGRAM_ENTROPY
from support.records_by_hand import frame, record

BYTES, WORDS = "text (file_sha256=0123456789abcdef)", "text (file_sha256=0123456789abcdef, words=8)"


def of(model: str, perplexities: tuple[float, ...], task: str = BYTES, **changes: Any) -> list[dict[str, Any]]:
    return [
        record(task=task, level="none", model=model, seed=seed, test_loss=math.log(value), **changes)
        for seed, value in enumerate(perplexities)
    ]


def shown(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    (sheet,) = table(frame(*rows), "text").sheets
    header = {sheet.corner: [column.name for column in sheet.columns]}
    return header | {line.name: ["|".join(entry.lines) for entry in line.entries] for line in sheet.lines}


def test_a_table_by_hand() -> None:
    rows = of("mamba", (4.0, 8.0)) + of("lstm", (2.0,), parameters=999) + of("mamba", (16.0,), WORDS)
    rows += [record(task=BYTES, level="none", model="lstm", seed=1, status="diverged"), *of("gla", (3.0,), "parity")]
    rows += [record(task=WORDS, level="none", model="transformer", status="failed")]
    assert shown(rows) == {
        "model": [BYTES, WORDS, "parameters"],
        "LSTM": ["2.00 (1, 1 diverged)|1.000 bits per byte", "-", "999"],
        "Mamba": ["6.00 ± 2.83 (2)|2.500 bits per byte", "16.00 (1)|4.000 bits a token", "1,234"],
        "Transformer": ["-", "1 failed", "-"],
    }


def test_the_chain_has_its_bounds_beside_it() -> None:
    assert list(BOUNDS.values()) == pytest.approx([math.exp(ENTROPY_RATE), math.exp(UNIGRAM_ENTROPY)], rel=1e-12)
    found = shown(of("lstm", (2.5,), "text") + of("lstm", (9.0,)))
    assert found["LSTM"][0] == "2.50 (1)|1.322 bits a letter"
    assert found["bound: entropy rate"] == ["2.38", "-", ""]
    assert found["floor: letters' frequencies"] == ["3.36", "-", ""]
    assert "bound: entropy rate" not in shown(of("lstm", (9.0,)))


def test_the_numbers_are_unrounded() -> None:
    data = table(frame(*of("mamba", (4.0, 8.0)), *of("lstm", (2.0,))), "text").data
    (lstm, mamba) = data.to_dict("records")
    assert (mamba["n"], mamba["perplexity"], mamba["std"]) == (2, pytest.approx(6.0), pytest.approx(math.sqrt(8)))
    assert mamba["nats"] == pytest.approx(2.5 * math.log(2))
    assert lstm["tokens_per_step"] == 5504.0


def test_the_rate_is_chosen_on_validation_and_never_on_perplexity() -> None:
    rows = of("lstm", (2.0,), lr=1e-2, validation=0.5) + of("lstm", (3.0,), lr=1e-3, validation=0.6)
    assert shown(rows)["LSTM"][0].startswith("3.00 (1)")


def test_there_is_none_without_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="nothing to show in a table of text: no record is of text"):
        table(frame(record(task="parity")), "text")
    with pytest.raises(ValueError, match="nothing to show in a table of text: no run has finished"):
        table(frame(record(task="text", status="failed")), "text")
    with pytest.raises(ValueError, match="no published values for a table of text"):
        table(frame(*of("lstm", (2.0,))), "text", against="xlstm")
    frame(*of("lstm", (2.0,)), record(task="parity")).to_csv(tmp_path / "records.csv", index=False)
    assert main(["table", "--kind", "text", "--results", str(tmp_path)]) == 0
    assert "2.00 (1)" in capsys.readouterr().out
    assert main(["table", "--all", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "tables" / "text.tex").exists()
    assert "of text" not in capsys.readouterr().err
