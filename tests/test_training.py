"""Every model learns: 200 steps on even_pairs take it well above what answering without looking scores."""

from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.tasks.even_pairs import EvenPairs
from support.cases import some

FEW = ("lstm",)  # the others prove themselves by their first losses every time
RATES = {"encoder_decoder": 4e-3, "fp_mamba": 4e-3}


@pytest.mark.parametrize("name", some(sorted(all_models()), always=FEW))
def test_two_hundred_steps_beat_the_floor(name: str, tmp_path: Path) -> None:
    run = Run(
        task=EvenPairs(),
        model=replace(all_models()[name][0].tiny(), d_model=32),
        train=Train(steps=200, batch=32, lengths=(3, 12), lr=RATES.get(name, 1e-2), weight_decay=0.0),
        eval=Eval(lengths=(3, 12), test=512, validation=64, every=0, bins=(3, 12), extrapolate=()),
    )
    result = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    assert result["test"]["accuracy"] > result["floors"]["content_free"] + 0.15  # 7 standard errors of 512 strings
