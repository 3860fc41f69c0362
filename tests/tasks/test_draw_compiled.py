"""torch.compile takes the making of strings whole and leaves them as they are, nor is there what Triton refuses.

Nothing here is compiled to machine code: on a CPU the strings never are (harness/train/steps.py). What is seen is what
Dynamo and AOTAutograd make of the draw, from the same plain first step on.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from chomsky_ladder.harness.config.registry import all_tasks, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.word_problem import WordProblem
from support.cases import some

TRACED = [name for name in sorted(all_tasks()) if name != "chess"]
"""A game of chess is made by thousands of operations, which are never compiled (harness/train/compiled.py)."""
INT32 = range(-(1 << 31), 1 << 31)


def drawing(task: Task) -> Callable[[Tensor], Batch]:
    """The draw of a pack of two runs, behind its first, plain step."""
    train = Train(steps=40, batch=4, lengths=(3, 24), lr=1e-2)
    score = Eval(lengths=(8, 24), test=16, validation=8, every=0, bins=(8, 24), extrapolate=())
    run = Run(task=task, model=find_model("lstm").tiny(), train=train, eval=score)
    stream = TrainingStream([run, run], torch.device("cpu"))

    def draw(step: Tensor) -> Batch:
        return stream.batch(step, longest=24)

    draw(torch.tensor(0))
    return draw


def out_of_range(graph: fx.Graph) -> list[str]:
    """Return where whole numbers beyond 32 bits meet what is computed from positions alone.

    Inductor makes one expression of indices of these, of type int32, and Triton then refuses the number.
    """
    positions: set[fx.Node] = set()
    refused = []
    for node in graph.nodes:
        made_of = node.all_input_nodes
        if getattr(node.target, "__name__", "") == "arange" or (made_of and positions.issuperset(made_of)):
            positions.add(node)
            if any(isinstance(x, int) and x not in INT32 for x in node.args):
                refused.append(node.format_node())
    return refused


@pytest.mark.full
@pytest.mark.parametrize("name", some(TRACED, always=("parity", "mod_arithmetic")))
def test_strings_compile_whole_and_stay_the_same(name: str) -> None:
    is_traced_whole(find_task(name)())


@pytest.mark.full
@pytest.mark.parametrize("settings", [{"held_pairs": 10}, {"effect": 80, "reveal": 30, "observe": "source"}])
def test_word_problems_compile_whole(settings: dict[str, Any]) -> None:
    is_traced_whole(WordProblem(group="S3", **settings))


def is_traced_whole(task: Task) -> None:
    torch._dynamo.reset()
    draw, graphs = drawing(task), []

    def backend(module: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(module.graph)
        return torch._dynamo.lookup_backend("aot_eager")(module, inputs)

    compiled = torch.compile(draw, fullgraph=True, dynamic=False, backend=backend)
    for step in (torch.tensor(1), torch.tensor(1 << 40)):
        assert all(torch.equal(a, b) for a, b in zip(compiled(step), draw(step), strict=True))
    (graph,) = graphs
    assert not out_of_range(graph)


def test_the_columns_of_an_address_are_kept_as_plain_tensors_alone() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from chomsky_ladder.tasks import draw

    rows_B = torch.arange(3)
    expected = draw.Draw(seed=0, split="train", rows_B=rows_B).integers(10, (7919,))
    draw._COLUMNS.clear()
    with FakeTensorMode() as mode:
        draw.Draw(seed=0, split="train", rows_B=mode.from_tensor(rows_B)).integers(10, (7919,))
    draw.Draw(seed=0, split="train", rows_B=rows_B.to("meta")).integers(10, (7919,))
    assert not draw._COLUMNS
    again = draw.Draw(seed=0, split="train", rows_B=rows_B).integers(10, (7919,))
    assert torch.equal(again, expected) and list(draw._COLUMNS) == [(7919, rows_B.device)]
