"""The command line of a run: the typed tree of its settings (harness/cli/options.py parses it)."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from tyro.conf import arg

from chomsky_ladder.harness.cli.options import asks_for_help, parse, take
from chomsky_ladder.harness.climb.runs import climber
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.protocols import WIDTHS, case_of, find_protocol, matched, preset_run
from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model, is_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.config.sizing import active_parameters, parse_count, report, sized
from chomsky_ladder.harness.train.machine import emulates, find_device
from chomsky_ladder.harness.train.progress import EMULATED
from chomsky_ladder.models.base import ModelConfig

SEED = Annotated[int, arg(help="Seed of the initial weights and of the training strings.")]
EXAMPLE = ("parity", "lstm")
CARRIED = {"cpu": "xlstm_cpu", "cuda": "xlstm_20k"}  # the protocol of a line without one, by the kind of device


def parse_run(arguments: Sequence[str], *, prog: str = "ladder run") -> tuple[Run, Exec]:
    """TASK MODEL [--protocol NAME] [options of the concrete tree]."""
    rest = list(arguments)
    protocols = take(rest, "--protocol") or [CARRIED[device_of(rest).type]]
    sizes = take(rest, "--model.params")
    names = [word for word in rest[:2] if not word.startswith("-")]
    if len(names) < 2 and asks_for_help(rest):
        _help(protocols[-1], prog)
    if len(names) < 2:
        raise ValueError("which run? give a TASK and a MODEL, e.g. `ladder run parity lstm` (`ladder list` has all)")
    if not is_task(names[0]) and names[0] in all_models() and names[1] in all_tasks():
        raise ValueError(
            f"{names[0]} is a model and {names[1]} a task: the task comes first, `{prog} {names[1]} {names[0]}`"
        )
    preset = preset_run(names[0], names[1], protocol=protocols[-1])
    fields: list[tuple[str, Any, Any]] = [
        ("task", type(preset.task), preset.task),
        ("model", type(preset.model), preset.model),
        ("train", Train, preset.train),
        ("eval", Eval, preset.eval),
        ("exec", Exec, Exec()),
        ("seed", SEED, preset.seed),
    ]
    bases = (TakenFirst,) if asks_for_help(rest) else ()
    tree = dataclasses.make_dataclass("Options", fields, frozen=True, bases=bases)
    tree.__doc__ = (
        f"Train and score {names[1]} on {names[0]} under the protocol {preset.protocol}, which has the defaults.\n\n"
        "--model.params 100k finds the widths for so many parameters."
    )
    options = parse(tree, rest[2:], prog=f"{prog} {names[0]} {names[1]}")
    run = Run(
        task=options.task,
        model=sized_as_asked(
            at_size_of(preset.protocol, options.model, rest), sizes, rest, vocab=len(options.task.vocab)
        ),
        train=trained_as_said(preset, options.train, options.model, rest),
        eval=options.eval,
        seed=options.seed,
        protocol=preset.protocol,
    )
    return run, options.exec


@dataclasses.dataclass(frozen=True)
class TakenFirst:
    """The options that are taken out of a line before its settings are read, for its help."""

    protocol: str = ""
    """The protocol whose settings are the defaults; `ladder describe --protocol NAME` lists them."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Print no progress."""


def _help(protocol: str, prog: str) -> None:
    """Print what every run has; a task and a model have settings besides."""
    preset = preset_run(*EXAMPLE, protocol=protocol)
    fields = [("train", Train, preset.train), ("eval", Eval, preset.eval), ("exec", Exec, Exec())]
    tree = dataclasses.make_dataclass("Options", [*fields, ("seed", SEED, 0)], frozen=True, bases=(TakenFirst,))
    tree.__doc__ = (
        "Train and score a MODEL on a TASK. `ladder list` has the names of both. A torch module of your own is a "
        "MODEL, too: my_package.layers:Mine, layers.py:Mine.\n\n"
        f"After TASK and MODEL, --help also lists their own settings, --task.* and --model.*. The defaults below are "
        f"those of `{' '.join([prog, *EXAMPLE])}` under {protocol}. --model.params 100k finds the widths for so many "
        "parameters."
    )
    parse(tree, ["--help"], prog=f"{prog} TASK MODEL")


def trained_as_said(preset: Run, train: Train, model: ModelConfig, words: Sequence[str]) -> Train:
    """Return the protocol's training settings for a model, except those that the line sets itself."""
    said = {word.split("=")[0].replace("-", "_") for word in words}
    own = {name: value for name, value in case_of(preset, model).items() if f"__train.{name}" not in said}
    return replaced(train, own, where="train")


def device_of(words: Sequence[str]) -> torch.device:
    """Return the device that a line asks for."""
    return find_device(["auto", *take(list(words), "--exec.device")][-1])


def advice(words: Sequence[str], run: Run, settings: Exec) -> list[str]:
    """Return advice before a run begins: choices that the line left open, and what they cost here."""
    device, said = find_device(settings.device), []
    on_cpu = device.type == "cpu"
    given = {word.split("=")[0] for word in words}
    if "--protocol" not in given:
        larger = "--protocol xlstm_20k, 20,000 steps of 256 strings, takes hours here"
        other = larger if on_cpu else "--protocol NAME for another"
        said.append(f"protocol {run.protocol}, which {'a CPU' if on_cpu else 'this device'} carries; {other}")
    if emulates(run.train.precision, device) and "--train.precision" not in given:
        said.append(EMULATED)
    return said


def sized_as_asked(model: ModelConfig, sizes: list[str], words: Sequence[str], *, vocab: int) -> ModelConfig:
    """Return the model at the size of `--model.params`, if there is one, and say on stderr what was found."""
    if not sizes:
        return model
    if chosen := chosen_width(words):
        raise ValueError(f"--model.params finds the widths itself: leave out {chosen}")
    target = parse_count(sizes[-1])
    found = sized(model, vocab=vocab, target=target)
    nearest = active_parameters(found, vocab)
    if not target / 2 <= nearest <= 2 * target:
        raise ValueError(f"--model.params {sizes[-1]}: no width brings {model.name} nearer than {nearest:,} parameters")
    print(report(found, vocab=vocab, target=target), file=sys.stderr)
    return found


def chosen_width(words: Sequence[str]) -> str:
    """Return the option that chooses a width, if a line has one."""
    options = {f"--model.{name}" for width in WIDTHS for name in (width, width.replace("_", "-"))}
    return next((word.split("=")[0] for word in words if word.split("=")[0] in options), "")


def with_climber(options: type[Any], name: str, words: Sequence[str]) -> type[Any]:
    """Return the options of a climb with the settings of a model, at the size of the protocol that the line names."""
    protocol = (take(list(words), "--protocol") or [options.protocol])[-1]
    model = climber(find_model(name), protocol=protocol)
    fields = [("model", type(model), dataclasses.field(default_factory=lambda: model))]
    both = dataclasses.make_dataclass(options.__name__, fields, bases=(options,), kw_only=True)
    both.__doc__ = options.__doc__
    return both


def at_size_of(protocol: str, model: ModelConfig, words: Sequence[str]) -> ModelConfig:
    """Return the model at its protocol's number of parameters, if that has one and the line chooses no width."""
    return model if chosen_width(words) else matched(model, find_protocol(protocol))
