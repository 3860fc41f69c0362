"""The numbers of each figure from cells alone."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.figures.kinds import heat_map as of_heat_map
from chomsky_ladder.harness.figures.kinds import ladder as of_ladder
from chomsky_ladder.harness.figures.kinds import learning as of_learning
from chomsky_ladder.harness.figures.kinds import lengths as of_lengths
from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.stats.view import Cell


def heat_map(cells: Sequence[Cell]) -> pd.DataFrame:
    return of_heat_map.heat_map(Scene(cells, None, {}))


def ladder(cells: Sequence[Cell], **options: float) -> pd.DataFrame:
    return of_ladder.ladder(Scene(cells, None, {}), **options)


def lengths(cells: Sequence[Cell]) -> pd.DataFrame:
    return of_lengths.lengths(Scene(cells, None, {}))


def learning(cells: Sequence[Cell], curves: pd.DataFrame | None, *, of: Any) -> pd.DataFrame:
    return of_learning.learning(Scene(cells, curves, {}), of=of)
