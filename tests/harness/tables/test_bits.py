"""The table of accuracy by bits: which cells stand side by side, and what is missing shown as such."""

from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.protocols import identity_of, preset_run
from chomsky_ladder.harness.page.html import page
from chomsky_ladder.harness.tables.kinds.bits import is_rounded, unrounded
from chomsky_ladder.harness.tables.write import table, write_all
from support.pages import Page
from support.records_by_hand import frame, record

PLAIN, DENSE = "xlstm", "xlstm (task.supervision=dense)"


@pytest.mark.parametrize("bits", [0, 8, 4, 2])
@pytest.mark.parametrize("changes", [{}, {"steps": 7}, {"schedule": "constant"}, {"steps": 7, "schedule": "constant"}])
def test_the_label_of_a_run_tells_its_bits_and_whom_it_stands_beside(bits: int, changes: dict) -> None:
    run = preset_run("parity", "lstm", protocol="xlstm")
    plain = replace(run, task=replace(run.task, supervision="dense"), train=replace(run.train, **changes))
    rounded = identity_of(replace(plain, train=replace(plain.train, qat=bits)))
    assert is_rounded(rounded.columns()) == (bits > 0) and unrounded(rounded.columns()) == identity_of(plain).protocol
    assert rounded.settings.get("train.qat", 0) == bits and ("qat" in rounded.protocol) == (bits > 0)


def test_every_number_of_bits_stands_at_its_own_rate() -> None:
    places = [(PLAIN, 1e-2, 0), (PLAIN, 1e-2, 1), *[(f"{PLAIN} (train.qat=4)", rate, 0) for rate in (1e-2, 1e-3)]]
    scores = [(0.95, 0.9), (0.85, 0.9), (0.99, 0.2), (0.5, 0.6)]  # on the test, in validation
    rows = [
        record(protocol=protocol, lr=rate, seed=seed, test_scaled=scaled, validation=validation)
        for (protocol, rate, seed), (scaled, validation) in zip(places, scores, strict=True)
    ]
    rows.append(record(protocol=f"{PLAIN} (train.qat=2)", status="diverged"))
    rows.append(record(protocol=PLAIN, model="gru"))  # never rounded
    made = table(frame(*rows), "bits")
    (sheet,) = made.sheets
    (line,) = sheet.lines
    assert [column.name for column in sheet.columns] == ["not rounded", "8 bits", "4 bits", "2 bits"]
    assert [entry.lines[0] for entry in line.entries] == [
        "0.90 [0.85, 0.95] 1/2",
        "-",
        "0.50 0/1",
        "1 diverged",
    ]
    assert sheet.title == f"{PLAIN}: bits for parity" and line.name == "LSTM"
    assert made.data["bits"].tolist() == [0, 2, 4] and made.data["lr"].tolist()[-1] == 1e-3


def test_what_differs_in_more_than_its_bits_stands_apart() -> None:
    rows = [record(protocol=protocol) for protocol in (PLAIN, DENSE)]
    rows += [record(protocol=f"{PLAIN} (train.qat=8)"), record(protocol="xlstm (train.qat=2, task.supervision=dense)")]
    made = table(frame(*rows), "bits")
    assert [sheet.title for sheet in made.sheets] == [f"{PLAIN}: bits for parity", f"{DENSE}: bits for parity"]
    dashes = [[entry.lines[0] == "-" for entry in sheet.lines[0].entries] for sheet in made.sheets]
    assert dashes == [[False, False, True, True], [False, True, True, False]]


def test_it_is_written_where_something_was_rounded(tmp_path: Path) -> None:
    for rows, is_there in ([record(protocol=PLAIN)], False), ([record(protocol=f"{PLAIN} (train.qat=8)")], True):
        folder = tmp_path / str(is_there)
        folder.mkdir()
        frame(*rows).to_csv(folder / "records.csv", index=False)
        write_all(folder)
        assert (folder / "tables" / "bits.md").exists() == is_there
    with pytest.raises(ValueError, match="bits: no run is of rounded weights"):
        table(frame(record(protocol=PLAIN)), "bits")


def test_the_page_knows_which_protocols_are_one_but_for_their_bits() -> None:
    rounded = f"{PLAIN} (train.qat=8)"
    data = Page(page(frame(record(protocol=PLAIN), record(protocol=rounded)))).data
    assert [(own["bits"], own["unrounded"]) for own in data["protocols"]] == [(0, PLAIN), (8, PLAIN)]
