"""The rows beside other packages hold what was timed, and a package or device that is missing says so."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.throughput.grid import Grid
from chomsky_ladder.harness.throughput.measure import Meter, Spread
from chomsky_ladder.harness.throughput.table import sheets

BENCHMARKS = Path(__file__).parents[3] / "scripts" / "benchmarks"


@pytest.fixture
def peers() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import throughput_peers

        patch.setattr(throughput_peers, "SHAPES", ((2, 8),))
        yield throughput_peers


class Told(Meter):
    """Acts are called once, and their times are told."""

    def turns(self, acts: dict[str, Any]) -> dict[str, Spread]:
        for act in acts.values():
            act()
        ms = {"ours": 2.0, "reference": 4.0, "theirs": 10.0}
        return {name: Spread(ms[name], ms[name] / 2, ms[name] * 2, ms[name]) for name in acts}


def test_ratios_are_of_what_was_timed(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xlstm")

    def absent() -> None:
        raise ImportError("No module named 'transformers'")

    monkeypatch.setattr(peers, "TransformersMamba", absent)
    rows = peers.peer_rows(Told(torch.device("cpu")))
    by_name = {row["peer"]: row for row in rows}
    for kind in ("mLSTM", "sLSTM"):
        row = by_name[f"xlstm package, {kind}"]
        assert (row["shape"], row["ours_ms"], row["theirs_ms"]) == ("2 x 8", 2.0, 10.0)
        assert (row["ratio"], row["reference_ratio"]) == (5.0, 2.5)
    assert by_name["transformers, Mamba"]["not_run"] == "No module named 'transformers'"
    if not torch.cuda.is_available():
        assert by_name["mamba_ssm, its kernel"]["not_run"] == "no CUDA device"
    report = {
        **dict.fromkeys(("device", "torch", "clock"), "x"),
        "grid": {**Grid().__dict__},
        "kernels": {},
        "ceilings": {"fp32": {"product_gflop_per_s": 1.0, "copy_gb_per_s": 1.0}},
        "rows": [],
        "peers": rows,
        "provenance": {"commit": "x"},
    }
    sheet = sheets(report)[-1]
    assert sheet.title == "Peers" and [line.name for line in sheet.lines] == [row["peer"] for row in rows]
    shown = {line.name: [entry.lines for entry in line.entries] for line in sheet.lines}
    assert shown["xlstm package, sLSTM"] == [
        ("2 x 8",), ("2.00", "1.00..4.00"), ("4.00", "2.00..8.00"), ("10.0", "5.00..20.0"), ("5.00",), ("2.50",), ("5",)
    ]  # fmt: skip
    assert shown["transformers, Mamba"][0] == ("No module named 'transformers'",)


def test_both_sides_take_the_same_gradients_of_the_same_inputs(peers: ModuleType) -> None:
    """Ours by its default path and by its reference, which a table sets beside each other."""
    x_BLD, direction_BLD = torch.randn(2, 2, 8, peers.WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one = peers.Ours(peers.MambaConfig(d_model=peers.WIDTH, num_blocks=1), "auto")
        other = peers.Ours(peers.MambaConfig(d_model=peers.WIDTH, num_blocks=1), "reference")
    other.load_state_dict(one.state_dict())
    for model in (one, other):
        act = peers._both_ways(model, x_BLD, direction_BLD)
        act()
        act()  # gradients do not add up over repetitions
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4, msg=name)
