"""Taking steps: what is refused, and that a captured step equals the plain one."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.train import steps as how
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.pack import Pack, Parts, Seen
from chomsky_ladder.harness.train.steps import GraphSteps, PlainSteps, stepper
from support.small_runs import cannot_be_captured, small

CPU = torch.device("cpu")


def test_a_capture_needs_cuda(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exec\.capture=on needs a CUDA device, not cpu"):
        execute(small()[0], Exec(device="cpu", capture="on", results=tmp_path), quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_cpu_takes_plain_steps_unless_asked() -> None:
    pack = Pack(small(), device=CPU, backend="auto")
    plain = stepper(pack, Exec(device="cpu"))
    assert type(plain) is PlainSteps and plain.name == "plain"
    assert stepper(pack, Exec(device="cpu", compile="on")).name == "plain, compiled"


def test_steps_end_where_a_pack_has_diverged() -> None:
    pack, told = Pack(small(), device=CPU, backend="auto"), []
    pack.weight_RP.fill_(torch.nan)
    stepper(pack, Exec(device="cpu")).advance(0, 40, told.append)
    assert int(pack.step_number) == 1 and told == []


class _Graphs:
    """Replaces CUDA: a capture remembers the advances made in it, a replay makes them for real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replays, self.captured, self.pools = 0, [], []
        self._recording: list[int] | None = None
        real, graphs = Pack.advance, self

        def advance(pack: Pack, longest: int) -> None:
            if graphs._recording is None:
                real(pack, longest)
            else:
                graphs._recording.append(longest)

        class Graph:
            def replay(self) -> None:
                graphs.replays += 1
                for longest in self.steps:
                    real(graphs.pack, longest)

        class Recording:
            def __init__(self, graph: Graph, stream: Any, pool: Any) -> None:
                self.graph = graph
                graphs.pools.append(pool)

            def __enter__(self) -> None:
                self.graph.steps = graphs._recording = []

            def __exit__(self, *_: object) -> None:
                graphs.captured.append(len(self.graph.steps))
                graphs._recording = None

        class Stream:
            def __init__(self, device: Any = None) -> None:
                pass

            def wait_stream(self, other: Any) -> None:
                pass

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(Pack, "advance", advance)
        for name, stand_in in (
            ("CUDAGraph", Graph),
            ("graph", Recording),
            ("Stream", Stream),
            ("stream", lambda stream: stream),
            ("current_stream", Stream),
            ("synchronize", lambda device: None),
            ("graph_pool_handle", object),
        ):
            monkeypatch.setattr(torch.cuda, name, stand_in)


@cache
def plainly(curriculum: tuple[int, ...]) -> Pack:
    """Two runs after 40 plain steps."""
    pack = Pack(small(seeds=2, curriculum=curriculum), device=CPU, backend="auto")
    PlainSteps(pack, compiling=False).advance(0, 40, lambda done: None)
    return pack


@pytest.mark.parametrize("curriculum", [(), (5, 8)])
@pytest.mark.parametrize("visits", [[40], [7, 13, 33, 40], list(range(1, 41))])
def test_replays_take_every_step_once(
    visits: list[int], curriculum: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookkeeping of a capture, whatever the host's visits cut it into; CUDA itself is stood in for."""
    expected = plainly(curriculum)
    graphs, told = _Graphs(monkeypatch), []
    graphs.pack = pack = Pack(small(seeds=2, curriculum=curriculum), device=CPU, backend="auto")
    replayed = GraphSteps(pack, compiling=False)
    for first, last in zip([0, *visits], visits, strict=False):
        replayed.advance(first, last, told.append)
    assert int(pack.step_number) == 40
    assert pack.seen() == expected.seen()
    assert torch.equal(pack.weight_RP, expected.weight_RP)
    assert told[-1] == 40 and told == sorted(set(told))
    stages = len(curriculum or (1,))
    assert set(graphs.captured) <= {1, how.UNROLLED} and len(graphs.captured) <= 2 * stages
    assert len({id(pool) for pool in graphs.pools}) == 1
    if visits == [40]:
        assert graphs.replays == (2 * (1 + 7) if curriculum else 3 + 7)
    if visits[0] == 1:  # a host that looks at every step
        assert graphs.replays == 40 - how.WARM_UP * stages


def test_memory_that_a_capture_runs_out_of_is_said_to_be_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the capture fails of what failed inside, under a name that says nothing."""
    graphs = _Graphs(monkeypatch)
    graphs.pack = pack = Pack(small(), device=CPU, backend="auto")
    steps = GraphSteps(pack, compiling=False)
    steps.advance(0, how.WARM_UP, lambda done: None)

    def advance(longest: int) -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904

    monkeypatch.setattr(pack, "advance", advance)
    with pytest.raises(torch.OutOfMemoryError, match=r"2\.00 GiB"):
        steps.advance(how.WARM_UP, 40, lambda done: None)
    monkeypatch.setattr(pack, "advance", cannot_be_captured)
    with pytest.raises(RuntimeError, match=r"exec\.capture=off takes it plainly \(not while capturing\)"):
        steps.advance(how.WARM_UP, 40, lambda done: None)


def _graphs_and_plain(model: str, seeds: int, *, compiling: bool) -> tuple[Pack, list[tuple[Seen, Seen]]]:
    """The pack whose steps are replayed on a GPU, and what is seen of it behind forty steps beside plain ones."""
    runs = small(model, seeds=seeds, precision="fp32")
    pack, expected = (Pack(runs, device=torch.device("cuda"), backend="auto") for _ in range(2))
    GraphSteps(pack, compiling=compiling).advance(0, 40, lambda done: None)
    PlainSteps(expected, compiling=False).advance(0, 40, lambda done: None)
    return pack, list(zip(pack.seen(), expected.seen(), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("model", sorted(all_models()))
def test_captured_steps_are_plain_steps(model: str, seeds: int) -> None:
    _, seen = _graphs_and_plain(model, seeds, compiling=False)
    for one, other in seen:
        assert one.done == other.done == 40
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("model", ["lstm", "mamba", "transformer", "xlstm"])
def test_steps_compiled_and_captured_are_plain_steps(model: str, seeds: int) -> None:
    """All parts: also those whose kernels are launched as one."""
    pack, seen = _graphs_and_plain(model, seeds, compiling=True)
    assert pack.compiled == {f"compiled.{part}" for part in Parts._fields if part != "gradients"}
    for one, other in seen:
        assert one.done == other.done == 40
        assert one.loss == pytest.approx(other.loss, rel=1e-3)
