"""`ladder adapt`: a finished run's model on another task: frozen weights, and low-rank factors learnt beside them."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.cli import describe
from chomsky_ladder.harness.cli.arguments import SEED
from chomsky_ladder.harness.cli.options import asks_for_help, parse, take, take_flag
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import Busy
from chomsky_ladder.harness.store.places import default_results, with_published
from chomsky_ladder.harness.train.adapt import adapting, base_folder
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.loop import RunFailed, execute
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.workable import refuse_unworkable


@dataclasses.dataclass(frozen=True)
class AdaptOptions:
    """Adapt a finished run's model to another task. Its weights stay, and low-rank factors beside them learn.

    After RUN_ID and TASK, --help also lists the settings of the new training. Their defaults are those of the run.
    """

    rank: int = 8
    """Rank of the factors."""
    layers: str = "*"
    """Patterns of the matrices that get factors, separated by commas."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Print no progress."""


def adapt(words: list[str]) -> int:
    """RUN_ID TASK [--rank N] [--layers PATTERNS] [settings of the new training]; the result is a run like any other."""
    as_json, quiet = take_flag(words, "--json"), take_flag(words, "--quiet")
    run, settings = parse_adaptation(words)
    refuse_unworkable(run.model, backend=settings.backend, device=find_device(settings.device))
    build_model(run, find_device("cpu"))  # what it refuses, it refuses before anything is written
    try:
        result = execute(run, settings, quiet=quiet)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    except RunFailed as failed:
        print(f"ladder: {failed}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1) if as_json else f"{describe.outcome(result, settings.results)}\n{_said(result)}")
    return 0 if result["status"] == "done" else 1


def parse_adaptation(words: list[str]) -> tuple[Run, Exec]:
    """Return the run of a line. Settings that the line lacks are those of the base run."""
    rest = with_published(words)
    ranks, layers = take(rest, "--rank"), take(rest, "--layers")
    results = take(list(rest), "--exec.results") or [str(default_results())]
    names = [word for word in rest[:2] if not word.startswith("-")]
    if len(names) < 2 and asks_for_help(rest):
        parse(AdaptOptions, rest, prog="ladder adapt RUN_ID TASK")
    if len(names) < 2:
        raise ValueError("adapt what? give a RUN_ID and a TASK, e.g. `ladder adapt parity-lstm-s0 even_pairs`")
    rank = _rank(ranks)
    base = Run.from_plain(base_folder(names[0], Path(results[-1])).config())
    other = preset_run(names[1], base.model.name, protocol=base.protocol)
    fields: list[tuple[str, Any, Any]] = [("task", type(other.task), other.task)]
    chosen = adapting(base, other, rank=rank, layers=(layers or ["*"])[-1])
    fields += [("train", Train, chosen.train), ("eval", Eval, chosen.eval), ("exec", Exec, Exec())]
    fields += [("seed", SEED, chosen.seed)]
    bases = (AdaptOptions,) if asks_for_help(rest) else ()
    tree = dataclasses.make_dataclass("Options", fields, frozen=True, bases=bases)
    tree.__doc__ = f"Adapt {base.run_id} to {names[1]}: its weights stay, low-rank factors beside them learn."
    options = parse(tree, rest[2:], prog=f"ladder adapt {names[0]} {names[1]}")
    train = options.train
    if options.task != other.task and train == chosen.train:  # its settings may have changed the tokens
        train = dataclasses.replace(train, lora_ends="keep" if base.task.vocab == options.task.vocab else "new")
    if train.lora_ends == "keep" and base.task.vocab != options.task.vocab:
        raise ValueError(f"{base.task.name} and {options.task.name} have different tokens: add --train.lora-ends new")
    return dataclasses.replace(chosen, task=options.task, train=train, eval=options.eval, seed=options.seed), (
        options.exec
    )


def _rank(words: list[str]) -> int:
    if words and (not words[-1].isdecimal() or int(words[-1]) < 1):
        raise ValueError(f"--rank must be a whole number of at least 1, not {words[-1]!r}")
    return int(words[-1]) if words else 8


def _said(result: dict[str, Any]) -> str:
    made = result["adaptation"]
    ends = "kept" if made["ends"] == "keep" else "learnt anew"
    return (
        f"  adapted          {made['base']}: rank {made['rank']}, {len(made['layers'])} matrices, embedding and head "
        f"{ends}; {made['learnt']:,} parameters learnt beside {made['frozen']:,} frozen"
    )
