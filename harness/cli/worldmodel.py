"""`ladder worldmodel`: whether a trained model tells states apart, and only those."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.inside.settings import WorldModelSettings
from chomsky_ladder.harness.store.folder import Busy, find_run
from chomsky_ladder.harness.store.places import default_results


@dataclass
class WorldModelOptions:
    """Measure whether a trained model tells states apart (compression and distinction, Vafa et al. 2024), on games and
    automata.

    Two histories of one state should accept the same continuations, and those of two states should not. A random
    network of the same config stands beside it. Writes worldmodel.json to the run's folder.
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    worldmodel: WorldModelSettings = field(default_factory=WorldModelSettings)
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    json: bool = False
    """Print JSON."""


def worldmodel(words: list[str]) -> int:
    options = parse(WorldModelOptions, words, prog="ladder worldmodel")
    from chomsky_ladder.harness.inside.worldmodel import world_model_run  # with torch

    folder = find_run(options.results, options.run_id)
    try:
        result = world_model_run(folder, options.worldmodel, device=options.device)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    print(json.dumps(result, indent=1) if options.json else worldmodel_text(result))
    return 0


def worldmodel_text(result: dict[str, Any]) -> str:
    """Yield the table for a person."""
    from chomsky_ladder.harness.inside.worldmodel import METRICS

    lines = [
        f"{result['run_id']} at step {result['step']:,}: means over pairs of histories, +- standard error",
        f"  {'':24}{'model':>20}{'random network':>20}{'perfect':>10}{'pairs':>8}",
    ]
    for name in METRICS:
        own, random = (result[of][name] for of in ("model_metrics", "random_network_metrics"))
        row = f"{_shown(own):>20}{_shown(random):>20}{1:>10.3f}{own['pairs']:>8,}"
        lines.append(f"  {name.replace('_', ' '):24}{row}")
    return "\n".join(lines)


def _shown(metric: dict[str, Any]) -> str:
    if metric["mean"] is None:
        return "no boundary"
    return f"{metric['mean']:.3f}" + ("" if metric["se"] is None else f" +- {metric['se']:.3f}")
