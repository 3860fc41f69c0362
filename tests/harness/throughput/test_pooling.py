"""Several sittings of one grid are pooled as by hand."""

import pytest

from chomsky_ladder.harness.throughput.join import joined


def test_sittings_are_pooled() -> None:
    """Pooling keeps the median of medians and the widest percentiles. Rates follow, and a number replaces an OOM."""
    place = {"model": "lstm", "match": "parameters", "way": "auto", "precision": "fp32", "length": 64, "batch": 1}
    head = {"device": "d", "torch": "t", "clock": "c", "grid": {}, "peers": [], "seconds": 1.0}
    head |= {"provenance": {"commit": "abc"}}
    sittings = []
    for ms, low, high in ((10.0, 9.0, 12.0), (30.0, 29.0, 33.0), (20.0, 8.0, 21.0)):
        spread = {"ms": ms, "ms_p20": low, "ms_p80": high, "wall_ms": ms + 1}
        parts = {f"forward_{name}": value / 2 for name, value in spread.items()}
        train = place | {
            "what": "train",
            **spread,
            **parts,
            "tokens_per_s": 640 / ms,
            "gb_per_s": 30 / ms,
            "repeats": 30,
        }
        decode = place | {"what": "decode", "not_run": "OOM"}
        sittings.append({**head, "rows": [train, decode]})
    sittings[1]["rows"][1] = place | {"what": "decode", "ms": 2.0, "ms_p20": 1.0, "ms_p80": 3.0, "repeats": 30}
    whole = joined(sittings)
    train, decode = whole["rows"]
    assert (train["ms"], train["ms_p20"], train["ms_p80"], train["wall_ms"]) == (20, 8, 33, 21)
    assert (train["forward_ms"], train["forward_ms_p20"], train["forward_ms_p80"]) == (10, 4, 16.5)
    assert train["tokens_per_s"] == pytest.approx(32) and train["gb_per_s"] == pytest.approx(1.5)
    assert train["repeats"] == 90 and whole["sittings"] == 3 and whole["seconds"] == 3.0
    assert decode == sittings[1]["rows"][1]
    assert joined(sittings[:1]) is sittings[0] and joined([whole]) is whole
    with pytest.raises(ValueError, match="a report is of 3 sittings already"):
        joined([whole, sittings[0]])
    with pytest.raises(ValueError, match="reports of different commits"):
        joined([sittings[0], {**sittings[1], "provenance": {"commit": "def"}}])


def test_packages_beside_ours_are_pooled_too() -> None:
    head = {"device": "d", "torch": "t", "clock": "c", "grid": {}, "rows": [{"model": "m"}], "seconds": 1.0}
    head |= {"provenance": {"commit": "abc"}}
    place, sittings = {"peer": "theirs", "shape": "4 x 8", "goal": 5.0}, []
    for ours, theirs in ((1.0, 6.0), (2.0, 8.0), (4.0, 20.0)):
        times = {"ours_ms": ours, "ours_ms_p20": ours - 0.5, "ours_ms_p80": ours + 0.5, "ours_wall_ms": ours}
        times |= {"theirs_ms": theirs, "theirs_ms_p20": theirs - 1, "theirs_ms_p80": theirs + 1, "theirs_wall_ms": 9.0}
        missing = {"peer": "a kernel", "shape": "1 x 1", "goal": 0.97, "not_run": "no CUDA device"}
        sittings.append({**head, "peers": [place | times | {"ratio": theirs / ours}, missing]})
    half = {**head, "peers": []}  # the other models, measured apart
    row, missing = joined([sittings[0], half, *sittings[1:]])["peers"]
    assert (row["ours_ms"], row["ours_ms_p20"], row["ours_ms_p80"], row["ours_wall_ms"]) == (2, 0.5, 4.5, 2)
    assert (row["theirs_ms"], row["theirs_ms_p20"], row["theirs_ms_p80"], row["ratio"]) == (8, 5, 21, 5)
    assert missing["not_run"] == "no CUDA device" and row["goal"] == 5.0
