"""The table of perplexities from hand-made records: what stands in it, and that it compares nothing it may not."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.tables.kinds.text import BOUNDS, THEIRS
from chomsky_ladder.harness.tables.published import read
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
        "model": [BYTES, WORDS, "parameters", "SlimPajama"],
        "lstm": ["2.00 (1, 1 diverged)|1.000 bits per byte", "-", "999", "-"],
        "mamba": ["6.00 ± 2.83 (2)|2.500 bits per byte", "16.00 (1)|4.000 bits a token", "1,234", "13.70|423 M"],
        "transformer": ["-", "1 failed", "-", "14.25|407 M"],
    }


def test_the_header_says_why_nothing_is_compared() -> None:
    rows = of("mamba", (4.0,)) + of("lstm", (2.0,), parameters=99, steps=200)
    (sheet,) = table(frame(*rows), "text").sheets
    said = sheet.lead[1]
    assert said.startswith("The last column is not comparable") and "Beck et al. 2024" in said
    assert "356 to 456 million parameters" in said and "15B tokens of SlimPajama" in said
    assert "here 99 to 1,234 parameters, 550,400 to 1,100,800 tokens of another text" in said
    assert sheet.notes == (
        "In the paper and not here: gpt3, llama, h3, hyena, rwkv4, rwkv5, rwkv6, retention, hgrn, gla, hgrn2, "
        "xlstm_1_0, xlstm_7_1.",
    )
    assert not any(entry.bold or entry.mark for line in sheet.lines for entry in line.entries)


def test_the_chain_has_its_bounds_beside_it() -> None:
    assert list(BOUNDS.values()) == pytest.approx([math.exp(ENTROPY_RATE), math.exp(UNIGRAM_ENTROPY)], rel=1e-12)
    found = shown(of("lstm", (2.5,), "text") + of("lstm", (9.0,)))
    assert found["lstm"][0] == "2.50 (1)|1.322 bits a letter"
    assert found["bound: entropy rate"] == ["2.38", "-", "", ""]
    assert found["floor: letters' frequencies"] == ["3.36", "-", "", ""]
    assert "bound: entropy rate" not in shown(of("lstm", (9.0,)))


def test_the_numbers_are_unrounded() -> None:
    data = table(frame(*of("mamba", (4.0, 8.0)), *of("lstm", (2.0,))), "text").data
    (lstm, mamba) = data.to_dict("records")
    assert (mamba["n"], mamba["perplexity"], mamba["std"]) == (2, pytest.approx(6.0), pytest.approx(math.sqrt(8)))
    assert mamba["nats"] == pytest.approx(2.5 * math.log(2)) and mamba["slimpajama_perplexity"] == 13.7
    assert math.isnan(lstm["slimpajama_params_millions"]) and lstm["tokens_per_step"] == 5504.0


def test_the_rate_is_chosen_on_validation_and_never_on_perplexity() -> None:
    rows = of("lstm", (2.0,), lr=1e-2, validation=0.5) + of("lstm", (3.0,), lr=1e-3, validation=0.6)
    assert shown(rows)["lstm"][0].startswith("3.00 (1)")


def test_the_names_are_models_here_and_there() -> None:
    assert {theirs for *_, theirs in THEIRS} <= set(read("slimpajama_perplexity.csv")["model"])
    for name, settings, _ in THEIRS:
        assert settings.keys() <= {field.name for field in fields(find_model(name))}
    assert find_model("xlstm")().ratio not in ("1:0", "7:1")


def test_a_models_size_is_no_other_model_and_every_other_setting_is() -> None:
    labels = {"mamba (d_model=16, num_blocks=4)": "13.70|423 M", "mamba (d_state=4)": "-", "lstm (d_model=8)": "-"}
    labels |= {"xlstm (num_heads=2, ratio=7:1)": "13.48|408 M", "xlstm (d_model=8)": "-", "mamba v2": "-"}
    found = shown([row for label in labels for row in of(label, (2.0,))])
    assert {label: found[label][-1] for label in labels} == labels


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
