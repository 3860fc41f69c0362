"""The table of accuracy by bits: which cells stand side by side, and what is missing shown as such."""

from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.protocols import identity_of, preset_run
from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.page.html import page
from chomsky_ladder.harness.tables.kinds.bits import is_rounded, unrounded
from chomsky_ladder.harness.tables.write import table, write_all
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


def test_the_page_shows_it_where_something_was_rounded() -> None:
    rows = [record(protocol=PLAIN), record(protocol=PLAIN, model="<b>")]
    assert 'id="bits"' not in page(frame(*rows))
    rows += [record(protocol=f"{PLAIN} (train.qat=8)", model=name) for name in ("lstm", "<b>")]
    shown = page(frame(*rows)).partition('id="bits"')[2].partition("</section>")[0]
    assert (
        shown.count("<tr>") == 1 + 2 and "<bdi>&lt;b&gt;</bdi>" in shown and shown.count("<td>0.80 0/1</td>") == 2 * 2
    )


def test_the_page_leaves_the_pictures_of_rounded_protocols_where_they_are(tmp_path: Path) -> None:
    rounded = f"{PLAIN} (train.qat=8)"
    for protocol in (PLAIN, rounded):
        (tmp_path / folder_name(protocol)).mkdir()
        (tmp_path / folder_name(protocol) / "heat_map.png").write_bytes(b"a picture")
    text = page(frame(record(protocol=PLAIN), record(protocol=rounded)), figures=tmp_path)
    assert text.count("<img ") == 1 and f'; {PLAIN}"' in text and f'; {rounded}"' not in text
