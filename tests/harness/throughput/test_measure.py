"""Clocks against a clock that is told what time it is, memory against allocations of known size."""

import itertools
import resource

import pytest
import torch

from chomsky_ladder.harness.throughput import measure as throughput_measure
from chomsky_ladder.harness.throughput.measure import Meter, ceilings, ran_out
from chomsky_ladder.harness.throughput.memory import bounded, free_bytes, peak_of
from chomsky_ladder.harness.train.replays import captured

CPU = torch.device("cpu")


class Clock:
    """Process and wall time that acts move themselves; the wall's runs three times as fast."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms, self.calls = 0.0, []
        monkeypatch.setattr(throughput_measure, "_stamp", lambda: (self.ms, 3 * self.ms))

    def act(self, name: str, *costs: float) -> throughput_measure.Act:
        each = itertools.cycle(costs)

        def act() -> None:
            self.calls.append(name)
            self.ms += next(each)

        return act


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_medians_and_percentiles_of_the_parts_of_a_step(clock: Clock) -> None:
    """One call warms up, then five are timed: 2 to 6 and 10 each."""
    found = Meter(CPU, repeats=5).parts({"a": clock.act("a", 100, 2, 3, 4, 5, 6), "b": clock.act("b", 10)})
    assert found["a"] == pytest.approx((4, 2.8, 5.2, 12))  # numpy's linear quantiles of 2, 3, 4, 5, 6
    assert found["b"] == pytest.approx((10, 10, 10, 30))
    assert found["whole"] == pytest.approx((14, 12.8, 15.2, 42))
    assert clock.calls == ["a", "b"] * 6


def test_several_threads_are_timed_by_the_wall(clock: Clock) -> None:
    meter = Meter(CPU, repeats=3, threads=2)
    assert meter.call(clock.act("a", 2)) == (6, 6, 6, None)
    assert (meter.clock, Meter(CPU).clock) == ("wall clock", "process time")
    assert set(meter.call(clock.act("a", 2)).named("x_")) == {"x_ms", "x_ms_p20", "x_ms_p80"}


def test_short_calls_are_timed_in_blocks(clock: Clock) -> None:
    found = Meter(CPU, repeats=4).blocks(clock.act("a", 0.1))
    assert found == pytest.approx((0.1, 0.1, 0.1, 0.3))
    calls = round(throughput_measure.BLOCK_MS / 0.3)
    assert len(clock.calls) == 2 + 4 * calls
    clock.calls.clear()
    Meter(CPU, repeats=4).blocks(clock.act("a", 1000))
    assert len(clock.calls) == 2 + 4


def test_rivals_take_turns(clock: Clock) -> None:
    found = Meter(CPU, repeats=4).turns({"a": clock.act("a", 1), "b": clock.act("b", 5)})
    assert (found["a"].ms, found["b"].ms) == pytest.approx((1, 5))
    timed = clock.calls[2 * throughput_measure.WARM_UP :]
    assert timed == ["a", "b", "b", "a"] * 2


def test_ceilings_are_what_was_done_in_the_quickest_round(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throughput_measure._COPIED, "cpu", 4000)
    monkeypatch.setitem(throughput_measure._PRODUCT, "cpu", 10)
    stamps = iter(itertools.accumulate([0, 9, 0, 2] + [0, 5] * 100))
    monkeypatch.setattr(throughput_measure, "_stamp", lambda: (next(stamps), 0.0))
    found = ceilings(Meter(CPU), "fp32")
    assert found == {"copy_gb_per_s": round(8000 / 2 / 1e6, 2), "product_gflop_per_s": round(2000 / 5 / 1e6, 2)}
    monkeypatch.undo()
    monkeypatch.setitem(throughput_measure._COPIED, "cpu", 1 << 22)
    monkeypatch.setitem(throughput_measure._PRODUCT, "cpu", 128)
    real = ceilings(Meter(CPU), "fp32")
    assert 0.1 < real["copy_gb_per_s"] < 1000 and 0.1 < real["product_gflop_per_s"] < 10_000


def test_the_peak_is_the_most_that_was_held_at_once() -> None:
    def act() -> None:
        a = torch.empty(250_000)
        b = torch.empty(500_000)
        del a
        c = torch.empty(125_000)
        del b, c
        torch.empty(100_000)

    assert peak_of(act, CPU).allocated == 3_000_000
    weight = torch.ones(1000, 1000, requires_grad=True)  # stands before, so it does not count

    def step() -> None:
        weight.grad = None
        (weight * 2).sin().sum().backward()

    whole = 4_000_000
    assert 3 * whole <= peak_of(step, CPU).allocated < 3 * whole + 10_000  # product, sine and gradients overlap
    reserved = peak_of(lambda: torch.ones(5_000_000), CPU).reserved
    assert reserved is None or 0.9 * 20_000_000 < reserved < 60_000_000


def test_memory_runs_out_at_the_bound() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    beyond = 1 << 33  # bytes: more than a process that has trained for minutes has kept for itself
    with bounded(CPU, 50_000_000):
        torch.empty(5_000_000).fill_(1)
        with pytest.raises(RuntimeError) as caught:
            torch.empty(beyond // 4)
        assert ran_out(caught.value)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    torch.empty(100_000_000)
    with bounded(CPU):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] > free_bytes(CPU) / 2


def test_only_a_lack_of_memory_is_one() -> None:
    assert ran_out(torch.OutOfMemoryError("CUDA out of memory")) and ran_out(MemoryError())
    assert not ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not ran_out(ValueError("can't allocate memory"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graph_replays_what_was_recorded_and_events_time_it() -> None:
    device = torch.device("cuda")
    x = torch.ones(1024, 1024, device=device)

    def act() -> None:
        for _ in range(20):
            x.mul_(2).clamp_(max=4)

    replay = captured(act, device)
    x.fill_(1)
    replay()
    torch.cuda.synchronize()
    assert bool((x == 4).all())
    meter = Meter(device, repeats=10)
    plain, graph = meter.call(act), meter.call(replay)
    assert meter.clock == "CUDA events" and plain.wall_ms is None
    assert 0 < graph.p20 <= graph.ms <= graph.p80 and graph.ms < plain.ms
    parts = meter.parts({"one": act, "two": act})
    assert parts["whole"].ms == pytest.approx(parts["one"].ms + parts["two"].ms, rel=0.3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_peak_on_a_device_is_its_allocators() -> None:
    device = torch.device("cuda")
    torch.cuda.empty_cache()  # or it takes what an earlier test left
    peak = peak_of(lambda: torch.empty(1 << 26, dtype=torch.int8, device=device), device)
    assert peak.allocated == 1 << 26 and peak.reserved >= 1 << 26
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 44, dtype=torch.int8, device=device)
    assert ran_out(caught.value)
