"""A model that leaks is refused before it trains, by every way to train it; one that declares what it sees is not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.conform.before import refuse_leaks
from chomsky_ladder.harness.sweep.plan import plan
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.plain import wrap
from support.small_runs import small


class Mixes(nn.Module):
    """Sums the stream over time or over the batch, up to each position or over all of it."""

    def __init__(self, d_model: int, over: str) -> None:
        super().__init__()
        self.out, self.over = nn.Linear(d_model, d_model), over

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        valid_BLD = x_BLD if ctx.valid_BL is None else torch.where(ctx.valid_BL[..., None], x_BLD, 0)
        future_BLD = x_BLD + valid_BLD.sum(1, keepdim=True)
        assert self.over != "short" or x_BLD.shape[1] <= 40, "no more than 40"
        ways = {"short": x_BLD, "past": x_BLD.cumsum(1), "future": future_BLD, "rows": x_BLD.cumsum(0)}
        return self.out(torch.tanh(ways[self.over]))


def run_of(over: str, sees: str = "past") -> list[Run]:
    cls = wrap("mixes", lambda config: Mixes(config.d_model, over), sees=sees)  # pyright: ignore[reportArgumentType]
    return [Run(task=run.task, model=cls.tiny(), train=run.train, eval=run.eval) for run in small()]


@pytest.mark.parametrize(
    ("over", "why"), [("future", "the future never changes the past"), ("rows", "rows do not see")]
)
def test_a_leak_is_refused(over: str, why: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^mixes fails `ladder check`: {why}.* --exec\.unchecked trains it as it is$"
    ):
        refuse_leaks(run_of(over), Exec())
    refuse_leaks(run_of(over), Exec(unchecked=True))


def test_what_does_not_leak_or_says_that_it_sees_all_is_trained() -> None:
    refuse_leaks([*run_of("past"), *run_of("future", sees="all")], Exec())


def test_an_assertion_of_the_model_itself_is_no_leak() -> None:
    refuse_leaks(run_of("short"), Exec())


@pytest.mark.parametrize("way", [sweep, plan])
def test_nothing_trains_before_it(way: object, tmp_path: Path) -> None:
    assert callable(way)
    with pytest.raises(ValueError, match="mixes fails `ladder check`"):
        way(run_of("future"), Exec(results=tmp_path))
    assert not list(tmp_path.glob("runs/*"))
