"""The studies of Othello and chess: train several architectures, probe them, edit their boards and test whether they
tell states apart.

    runs = runs_of("cpu", ["lstm", "transformer"])      all runs of a budget share its steps, games and parameters
    runs = runs_of("cpu", game="chess")
    work(runs, BUDGETS["cpu"], Exec())      a part is skipped if its file exists and was made with these settings

scripts/othello.py is the command. harness/inside/table.py makes the table.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain, replaced
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.config.sizing import sized
from chomsky_ladder.harness.inside import intervene, probe, worldmodel
from chomsky_ladder.harness.inside.settings import InterveneSettings, ProbeSettings, WorldModelSettings
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import Busy, RunFolder
from chomsky_ladder.harness.train.loop import execute


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The size of a study."""

    task: dict[str, Any]
    """Settings of the game."""
    models: dict[str, dict[str, Any]]
    """Settings of the models it is for."""
    others: dict[str, Any]
    """Settings that any other model takes, if it has them."""
    train: dict[str, Any]
    eval: dict[str, Any]
    parameters: int = 0
    """Target for every model's parameters, reached by its width; 0 for the widths in its settings."""
    seeds: int = 1
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    intervene: InterveneSettings = field(default_factory=InterveneSettings)
    worldmodel: WorldModelSettings = field(default_factory=WorldModelSettings)


_EVAL = {"test": 1024, "validation": 256, "every": 500}
_TINY = {"d_model": 32, "num_blocks": 2, "num_heads": 2}
_LARGE = {"d_model": 512, "num_blocks": 8, "num_heads": 8}

BUDGETS: dict[str, Budget] = {
    "smoke": Budget(
        task={"size": 6},
        models={"transformer": _TINY, "xlstm": {**_TINY, "ratio": "0:1"}, "lstm": {**_TINY, "forget_bias": 1.0}},
        others=_TINY,
        train={"steps": 20, "batch": 16, "lr": 3e-3, "warmup": 0.05, "weight_decay": 0.01, "precision": "fp32"},
        eval={"test": 64, "validation": 32, "every": 0},
        probe=ProbeSettings(games_train=60, games_validation=20, games_test=40, epochs=1, hidden=16),
        intervene=InterveneSettings(cases_validation=10, cases_test=20, strengths=(1.0, 4.0)),
        worldmodel=WorldModelSettings(pairs=10, walks=2, depth=2),
    ),
    # Two hours of two cores: the same steps and games for models of one size. The learning rate is that of 1e-3, 3e-3
    # and 1e-2 with the lowest validation loss after 600 steps; it was the same for all.
    "cpu": Budget(
        task={"size": 6},
        models={
            "transformer": {"num_blocks": 4, "num_heads": 4},
            "xlstm": {"num_blocks": 4, "num_heads": 4, "ratio": "0:1"},
            "mamba": {"num_blocks": 4},
            "lstm": {"num_blocks": 2, "forget_bias": 1.0},
        },
        others={"num_blocks": 4, "num_heads": 4},
        parameters=200_000,
        seeds=3,
        train={"steps": 6000, "batch": 128, "lr": 1e-2, "warmup": 0.05, "weight_decay": 0.01, "precision": "fp32"},
        eval=_EVAL,
        probe=ProbeSettings(games_train=1000, games_validation=300, games_test=500),
        intervene=InterveneSettings(cases_validation=150, cases_test=500),
    ),
    # 50,000 steps of 256 games and width 512, as in the public study of Mamba; 8 blocks as in Li et al.
    "full": Budget(
        task={"size": 8},
        models={"transformer": _LARGE, "mamba": _LARGE, "lstm": {**_LARGE, "forget_bias": 1.0}},
        others=_LARGE,
        train={"steps": 50_000, "batch": 256, "lr": 3e-4, "warmup": 0.05, "weight_decay": 0.01},
        eval={"test": 4096, "validation": 1024, "every": 2000},
        probe=ProbeSettings(games_train=10_000, games_validation=1000, games_test=2000),
    ),
}


# The four architectures of Walker and Lyons (2605.30100), with SLiCE's blocks of 8 and Gated DeltaNet's eigenvalues in
# [-1, 1] as there, in two blocks each, as their models of 8M. Mamba-3 is SISO, theirs MIMO of rank 4, which takes twice
# the time.
_TWO = {"num_blocks": 2}
_PUBLISHED = {
    "transformer": {**_TWO, "num_heads": 4},
    "slice": {**_TWO, "block_size": 8},
    "mamba3": {**_TWO, "head_dim": 32},
    "gated_delta_net": {**_TWO, "num_heads": 4, "eigenvalues": "signed"},
}

CHESS: dict[str, Budget] = {
    "smoke": replace(
        BUDGETS["smoke"],
        task={},
        models={name: {**own, "d_model": 32} for name, own in _PUBLISHED.items()},
        train={**BUDGETS["smoke"].train, "steps": 4, "batch": 4, "lengths": (16, 16)},
        eval={"test": 16, "validation": 8, "every": 0, "lengths": (16, 16), "bins": (16,), "extrapolate": ()},
        probe=ProbeSettings(games_train=8, games_validation=4, games_test=8, epochs=1, hidden=8),
        intervene=InterveneSettings(cases_validation=4, cases_test=8, strengths=(1.0,), examples=1),
        worldmodel=WorldModelSettings(pairs=4, walks=1, depth=2),
    ),
    # Some 9 hours of a core: three quarters of an hour for the training of each of 12 models. The learning rate was not
    # searched.
    "cpu": Budget(
        task={},
        models=_PUBLISHED,
        others=_TWO,
        parameters=600_000,
        seeds=3,
        train={"steps": 6000, "batch": 64, "lr": 3e-3, "warmup": 0.05, "weight_decay": 0.01, "precision": "fp32"},
        eval=_EVAL,
        probe=ProbeSettings(games_train=400, games_validation=100, games_test=300),
        intervene=InterveneSettings(cases_validation=100, cases_test=300, strengths=(0.5, 1.0, 2.0, 4.0, 8.0)),
        worldmodel=WorldModelSettings(pairs=50, depth=3),
    ),
}

GAMES = {"othello": BUDGETS, "chess": CHESS}


def runs_of(budget: str, models: Sequence[str] = (), *, seeds: int = 0, game: str = "othello") -> list[Run]:
    """Return the runs of these models, all first seeds first; without names, the runs of the budget's own models."""
    if budget not in GAMES[game]:
        raise ValueError(f"{game} has no budget {budget!r}: choose of {', '.join(GAMES[game])}")
    found = GAMES[game][budget]
    return [_run(game, found, model, seed) for seed in range(seeds or found.seeds) for model in models or found.models]


def _run(game: str, budget: Budget, model: str, seed: int) -> Run:
    base = preset_run(game, model, seed=seed)
    known = plain(base.model)
    own = budget.models.get(model, budget.others)
    task = replaced(base.task, budget.task, where="task")
    config = replaced(base.model, {name: value for name, value in own.items() if name in known}, where="model")
    if budget.parameters:
        config = sized(config, vocab=len(task.vocab), target=budget.parameters)
    return replace(
        base,
        task=task,
        model=config,
        train=replaced(base.train, budget.train, where="train"),
        eval=replaced(base.eval, budget.eval, where="eval"),
    )


def carry_out(run: Run, budget: Budget, settings: Exec, *, quiet: bool = False) -> None:
    """Do the parts of a run that are not done yet. Raise Busy if another process is at it."""
    folder = RunFolder(settings.results, run.run_id)
    result = execute(run, settings, quiet=quiet)
    if result["status"] != "done":
        raise ValueError(f"{run.run_id} has {result['status']}: try another learning rate")
    device = settings.device
    parts: dict[str, tuple[Any, Callable[[], Any]]] = {
        probe.FILE: (budget.probe, lambda: probe.probe_run(folder, budget.probe, device=device, quiet=quiet)),
        intervene.FILE: (
            budget.intervene,
            lambda: intervene.intervene_run(folder, budget.intervene, device=device, quiet=quiet),
        ),
        worldmodel.FILE: (
            budget.worldmodel,
            lambda: worldmodel.world_model_run(folder, budget.worldmodel, device=device),
        ),
    }
    for name, (wanted, measure) in parts.items():
        if not has(folder, name, wanted):
            measure()


def has(folder: RunFolder, name: str, wanted: Any) -> bool:
    """Return True if a part's file exists and was made with these settings."""
    there = read_json(folder.path / name)
    return there is not None and there["settings"] == plain(wanted)


def is_done(folder: RunFolder, budget: Budget) -> bool:
    parts = {probe.FILE: budget.probe, intervene.FILE: budget.intervene, worldmodel.FILE: budget.worldmodel}
    return folder.result() is not None and all(has(folder, name, wanted) for name, wanted in parts.items())


def work(runs: Sequence[Run], budget: Budget, settings: Exec, *, quiet: bool = False) -> None:
    """Work on all runs that no other process holds. Several processes share a list through the runs' locks."""
    for run in runs:
        if not is_done(RunFolder(settings.results, run.run_id), budget):
            with suppress(Busy):
                carry_out(run, budget, settings, quiet=quiet)
