"""The table of a text beside the climb, from hand-made records."""

import json
import math
from typing import Any

import pytest

from chomsky_ladder.harness.config.corpora import CORPORA
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.tables.kind import ROOM, Made
from chomsky_ladder.harness.tables.kinds.language import CLIMB
from chomsky_ladder.harness.tables.write import table
from support.records_by_hand import frame, record

BIBLE = f"text (file_sha256={CORPORA[0].sha256})"
MODELS = ("mamba", "lstm", "gla", "rnn", "gru", "s4")  # from the fewest bits to the most


def climb(model: str, recall: float, *, seeds: int = 3) -> list[dict[str, Any]]:
    """Every rung of a model, with scaled accuracy 1 but for recall, where it is given."""
    rows = []
    for rung in PROTOCOLS[CLIMB].rungs:
        own = ", ".join(f"{name}={value}" for name, value in rung.settings.items())
        accuracy = (1 + recall) / 2 if rung.task == "mqar" else 1.0
        place = {"protocol": CLIMB, "task": f"{rung.task} ({own})" if own else rung.task, "model": model}
        bins = json.dumps({"225..256": accuracy})
        rows += [record(**place, seed=seed, test_bins=bins, extrapolation="{}") for seed in range(seeds)]
    return rows


def reading(model: str, bits: float, *, task: str = BIBLE, **changes: Any) -> dict[str, Any]:
    place = {"protocol": "text-v1", "task": task, "level": "none", "model": model, "parameters": 100_000}
    return record(**place, test_loss=bits * math.log(2), **changes)


def made(*rows: dict[str, Any]) -> Made:
    return table(frame(*rows), "language")


def shown(of: Made, sheet: int) -> dict[str, list[str]]:
    return {line.name: ["|".join(entry.lines) for entry in line.entries] for line in of.sheets[sheet].lines}


def all_six() -> list[dict[str, Any]]:
    rows = [reading(model, 2 + place / 10) for place, model in enumerate(MODELS)]
    return rows + [row for place, model in enumerate(MODELS) for row in climb(model, 1 - place / 10)]


def test_models_stand_by_bits_beside_their_families() -> None:
    found = made(*all_six())
    models, correlations = found.sheets
    assert models.title == "text-v1: the King James Bible" and correlations.title.startswith(models.title)
    assert list(shown(found, 0))[:2] == ["Mamba", "LSTM"]
    assert shown(found, 0)["LSTM"] == ["2.100", "1.00", "1.00", "1.00", "0.90", "100,000", "1"]
    assert shown(found, 1)["retrieval"] == ["1.00", "6"]  # whoever recalls more needs fewer bits
    assert shown(found, 1)["memory"] == shown(found, 1)["parameters"] == ["0.00", "6"]  # all alike
    assert "100,000 parameters, 1,000 steps of 16 windows" in correlations.notes[0]
    assert found.data["bits"].tolist() == pytest.approx([2, 2.1, 2.2, 2.3, 2.4, 2.5])
    assert found.data["retrieval"].tolist() == pytest.approx([1, 0.9, 0.8, 0.7, 0.6, 0.5])


def test_the_sign_is_that_of_fewer_bits() -> None:
    rows = [reading(model, 2 + place / 10) for place, model in enumerate(MODELS)]
    rows += [row for place, model in enumerate(MODELS) for row in climb(model, place / 10)]
    assert shown(made(*rows), 1)["retrieval"] == ["-1.00", "6"]


def test_few_models_have_no_correlation_and_parts_of_a_climb_no_line() -> None:
    rows = [*climb("lstm", 1.0), *climb("gru", 1.0, seeds=2), reading("lstm", 2.0), reading("gru", 2.1)]
    found = made(*rows, reading("mamba", 1.9), reading("lstm", 9.0, seed=1, status="diverged"))
    assert list(shown(found, 0)) == ["LSTM"] and shown(found, 1)["retrieval"] == ["-", "1"]


def test_another_text_has_its_own_sheets_and_words_have_none() -> None:
    other, words = "text (file_sha256=0123456789abcdef)", f"text (file_sha256={CORPORA[0].sha256}, words=8)"
    rows = [reading("lstm", bits, task=task) for bits, task in ((2.0, BIBLE), (3.0, other), (9.0, words))]
    titles = [sheet.title for sheet in made(*climb("lstm", 1.0), *rows).sheets]
    assert titles[::2] == ["text-v1: the text 0123456789abcdef", "text-v1: the King James Bible"]


def test_it_needs_a_text_and_a_climb() -> None:
    kind = ROOM.find("language")
    for rows in ([reading("lstm", 2.0)], climb("lstm", 1.0)):
        with pytest.raises(ValueError, match="nothing to show in a table of language: no model has read a text and cl"):
            made(*rows)
        assert not kind.when(frame(*rows))
    assert kind.when(frame(*climb("lstm", 1.0), reading("lstm", 2.0)))
    with pytest.raises(ValueError, match="no record is of a text, or climb-v1"):
        made(record(task="text"))
