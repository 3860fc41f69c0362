"""Operations against formulas written out for each architecture, exponents against laws that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.throughput.fit import agreement, power_law
from chomsky_ladder.harness.throughput.flops import counted, work_of
from chomsky_ladder.harness.throughput.grid import Grid, Way
from chomsky_ladder.harness.throughput.sizes import state_sized, ways_of, weigh
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.gru import GRUConfig
from chomsky_ladder.models.looped_transformer import LoopedTransformerConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.mamba2 import Mamba2Config
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.scans import products
from chomsky_ladder.models.transformer import TransformerConfig

VOCAB = 16
CPU = torch.device("cpu")


def test_the_formula_is_an_lstms() -> None:
    """Two layers of 4 D (2 D + 1) weights and a head, without a norm; a state of h and c."""
    width = 12
    work = work_of(LSTMConfig(d_model=width, num_blocks=2).build(VOCAB))
    weights = 2 * 4 * width * (2 * width + 1) + VOCAB * width
    assert work[:3] == (weights, 4 * width, 0)
    assert work.forward(7) == work.forward(700) == work.decode(9) == 2 * weights + 16 * width
    assert work.train(7) == 3 * work.forward(7)


def test_the_formula_is_a_transformers() -> None:
    """Beside its weights a token at context c meets c keys and c values of D numbers in each of two blocks."""
    width, inner, length = 16, 24, 40
    model = TransformerConfig(d_model=width, num_blocks=2, num_heads=2, d_inner=inner).build(VOCAB)
    products = 2 * (4 * width * width + 3 * width * inner) + VOCAB * width
    vectors = 5 * width  # norms
    work = work_of(model)
    assert (work.weights, work.grown) == (products + vectors, 2 * 2 * width)
    assert work.state == 2 * 2  # a position of 8 bytes in each block
    small = 2 * vectors + 4 * work.state
    assert work.decode(length) == 2 * products + 2 * 4 * width * length + small
    assert work.forward(length) == 2 * products + 4 * width * length + small
    # The counter sees no vectors, and the masked product of every pair.
    seen = counted(model, torch.zeros(3, length, dtype=torch.int64))
    assert seen == 2 * products + 2 * 4 * width * length


def test_products_count_whichever_library_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens_BL = TransformerConfig(d_model=16, num_blocks=2, num_heads=2).build(VOCAB), torch.zeros(3, 9).long()
    monkeypatch.setattr(products, "torch_is_as_fast", lambda: False)
    seen = []
    for least in (0, 2**60):
        monkeypatch.setattr(products, "LIBRARIES", [replace(each, least=least) for each in products.LIBRARIES])
        seen.append(counted(model, tokens_BL))
    assert seen[0] == seen[1] > 0


def test_what_sees_everything_has_no_half_of_pairs() -> None:
    model = EncoderConfig(d_model=16, num_blocks=2, num_heads=2).build(VOCAB)
    work = work_of(model)
    seen = counted(model, torch.zeros(1, 64, dtype=torch.int64))
    assert work.forward(64) == pytest.approx(seen, rel=0.02)


def test_weights_that_a_token_meets_again_count_again() -> None:
    sizes = {"d_model": 16, "num_blocks": 2, "num_heads": 2}
    once, thrice = (LoopedTransformerConfig(**sizes, loops=loops).build(VOCAB) for loops in (1, 3))
    outside = VOCAB * 16 + 16  # head and last norm
    assert work_of(thrice).weights == 3 * (work_of(once).weights - outside) + outside
    tokens_BL = torch.zeros(1, 64, dtype=torch.int64)
    assert counted(thrice, tokens_BL) == pytest.approx(3 * counted(once, tokens_BL), rel=0.05)


def test_experts_a_token_is_not_sent_to_do_not_count() -> None:
    sizes = {"d_model": 16, "num_blocks": 1, "num_heads": 2, "top_k": 1, "d_inner": 8}
    four, one = (work_of(MoEConfig(**sizes, num_experts=count).build(VOCAB)) for count in (4, 1))
    assert four.weights == one.weights + 3 * 16  # the router's other rows


@pytest.mark.parametrize("name", ["gru", "mamba", "retention", "rnn", "rwkv5", "delta_net"])
def test_the_formula_is_near_the_counter_for_scans(name: str) -> None:
    """Chunked scans do more products than the formula says; the counter does not see elementwise work."""
    model = all_models()[name][0](d_model=64, num_blocks=1).build(VOCAB)
    assert 0.8 < counted(model, torch.zeros(1, 128, dtype=torch.int64)) / work_of(model).forward(128) < 1.25


def test_the_exponent_of_a_power_law_is_found() -> None:
    lengths = [64, 128, 256, 512, 1024]
    found = power_law(lengths, [3e-5 * length**1.7 for length in lengths])
    assert found[:4] == pytest.approx((1.7, 1.7, 1.7, 1.7)) and found.points == 5
    fixed = power_law(lengths, [100 + length for length in lengths])
    assert fixed.low < fixed.exponent < fixed.high < 1.1 and fixed.exponent < fixed.last < 1
    assert power_law(lengths[:2], [1, 2]) is None
    assert power_law(lengths, [0, 1, 2, 3, 4]) is None


def test_the_interval_is_the_textbooks() -> None:
    """Against numpy's covariance of a fitted line and Student's quantile of 3 degrees of freedom."""
    x, y = np.log([1, 2, 4, 8, 16]), np.array([0.1, 0.9, 1.3, 2.4, 2.6])
    found = power_law(np.exp(x).tolist(), np.exp(y).tolist())
    slope, covariance = np.polyfit(x, y, 1, cov=True)
    wide = 3.182 * math.sqrt(covariance[0, 0])
    assert found[:3] == pytest.approx((slope[0], slope[0] - wide, slope[0] + wide))


def test_two_runs_agree_where_their_percentiles_overlap() -> None:
    place = {"match": "parameters", "way": "auto", "precision": "fp32", "what": "train", "batch": 1}

    def row(model: str, length: int, low: float, ms: float, high: float) -> dict[str, object]:
        return {**place, "model": model, "length": length, "ms": ms, "ms_p20": low, "ms_p80": high}

    one = [row("a", 1, 9, 10, 11), row("a", 2, 9, 10, 11), row("b", 1, 1, 2, 3), row("c", 1, 1, 2, 3)]
    other = [row("a", 1, 11, 12, 13), row("a", 2, 12, 20, 30), row("b", 1, 0.1, 0.5, 0.9), {**row("c", 1, 1, 2, 3)}]
    other[3]["ms"] = None
    found = agreement(one, other)
    assert found[:2] == (3, 1)
    assert [line.rsplit(": ")[1] for line in found.apart] == ["x0.25", "x2.00"]


@pytest.mark.parametrize(
    "config", [LSTMConfig(), GRUConfig(), TransformerConfig(), Mamba2Config()], ids=lambda c: c.name
)
def test_no_width_has_a_state_nearer_to_what_was_asked(config: LSTMConfig) -> None:
    target = 8195  # a little above what some width has
    found = state_sized(config, vocab=VOCAB, target=target, context=64)
    best = abs(weigh(found, vocab=VOCAB, context=64) - target)
    for width in (8, 16, 32, 64, 128, 256, 512, 1024):
        try:
            other = type(config)(d_model=width)
        except ValueError:
            continue
        assert best <= abs(weigh(other, vocab=VOCAB, context=64) - target)


def test_a_grid_measures_nothing_twice_and_refuses_what_does_not_add_up() -> None:
    grid = Grid()
    ways = ways_of("lstm", grid, CPU)
    assert ways[0] == Way("fp32", "auto") and {way.name for way in ways} == {"auto", "reference"}
    points = grid.points("parameters", ways)
    assert len(points) == len(set(points))
    assert all(
        point.batch * point.length == grid.tokens for point in points if point.batch > 1 and point.what == "train"
    )
    assert {point.what for point in grid.points("state", ways)} == {"train", "prefill", "decode"}
    with pytest.raises(ValueError, match="strings of 100 do not add up to 1024 tokens"):
        Grid(lengths=(100, 256))
    with pytest.raises(ValueError, match="contexts must be at least 1, not 0"):
        Grid(contexts=(0, 5))
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        Grid(repeats=0)
