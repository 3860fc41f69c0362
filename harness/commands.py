"""What each `ladder` command does: parse its line, ask the harness, print for a person or, with --json, a program."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from harness import conformance, describe
from harness import errors as errors_report
from harness.arguments import parse_run, sized_as_asked
from harness.distributed import PeerLost, launched_rank
from harness.export import export as export_strings
from harness.files import default_results
from harness.machine import find_device
from harness.options import name_first, parse, take, take_flag
from harness.records import Busy, find_run, flat
from harness.registry import find_part, find_task
from harness.train import RunFailed, execute
from models._kernels import demand
from models.base import ModelConfig
from tasks.base import LEVELS, Task


@dataclass
class ListOptions:
    """Every task and model, by class and by family, and the plugins that do not work."""

    json: bool = False
    """Print JSON."""


def list_parts(words: list[str]) -> int:
    options = parse(ListOptions, words, prog="ladder list")
    tree = describe.listing()
    if options.json:
        return _print_json(tree)
    low, high = describe.FLOOR_LENGTHS
    print(f"Floors: chance, best constant, content free, of default settings at lengths {low}..{high}.")
    print("In: the protocols whose published table has the task, which may set it up otherwise.\n")
    for level, title in LEVELS.items():
        of_level = [task for task in tree["tasks"] if task["level"] == level]
        print(f"Tasks, {title}" if of_level else "", end="\n" if of_level else "")
        for task in of_level:
            floors = "  ".join(f"{value:.3f}" for value in task["floors"].values())
            used = f"  in {', '.join(task['protocols'])}" if task["protocols"] else ""
            print(f"  {task['name']}: {task['about']}\n      {task['example']}\n      floors {floors}{used}")
    for family in dict.fromkeys(model["family"] for model in tree["models"]):
        of_family = [model for model in tree["models"] if model["family"] == family]
        print(f"Models, {family}")
        for model in of_family:
            print(f"  {model['name']} ({model['year']}, {model['paper']}): {model['about']}\n      {_size(model)}")
    _columns([(problem,) for problem in tree["problems"]], title="Problems")
    return 0


@dataclass
class DescribeOptions:
    """A task with a worked example and its floors, or a model with its size; and every setting."""

    json: bool = False
    """Print JSON."""


def describe_part(words: list[str]) -> int:
    name = name_first(words, "ladder describe needs the NAME of a task or model")
    kind, cls = find_part(name)
    sizes = take(words, "--model.params") if kind == "model" else []
    options = parse(with_part(DescribeOptions, kind, cls()), words, prog=f"ladder describe {name}")
    part = getattr(options, kind)
    if kind == "model":
        part = sized_as_asked(part, sizes, words, vocab=describe.EXAMPLE_VOCAB)
    tree = describe.described(part)
    if options.json:
        return _print_json(tree)
    print(tree.pop("doc") + "\n")
    settings = tree.pop("settings")
    _columns([(key.replace("_", " "), describe.shown(value)) for key, value in tree.items()])
    rows = [(f"--{kind}.{s['name'].replace('_', '-')}", json.dumps(s["value"]), s["help"]) for s in settings]
    _columns(rows, title="settings")
    return 0


@dataclass
class SampleOptions:
    """Strings of a task with their answers."""

    count: int = 3
    """How many."""
    length: int = 0
    """Their length, as the task counts lengths; 0 for any from 3 to 20."""
    seed: int = 0
    """Key of the strings."""
    json: bool = False
    """Print one JSON object a line."""


def sample(words: list[str]) -> int:
    name = name_first(words, "ladder sample needs the name of a TASK")
    options = parse(with_part(SampleOptions, "task", find_task(name)()), words, prog=f"ladder sample {name}")
    for row in describe.samples(options.task, count=options.count, length=options.length, seed=options.seed):
        print(json.dumps(row) if options.json else f"{' '.join(row['input'])}  ->  {' '.join(row['answer'])}")
    return 0


@dataclass
class ExportOptions:
    """A file of strings with their answers and its hash, to score any model on (`ladder run .. --eval.file FILE`).

    With the defaults, the test strings of the published lengths.
    """

    out: Path
    """The file to write."""
    count: int = 8192
    """How many strings."""
    lengths: tuple[int, int] = (40, 256)
    """Shortest and longest, as the task counts lengths; uniform over the legal ones between."""
    seed: int = 0
    """Key of the strings: eval.seed of the runs whose test strings they are."""
    split: str = "test"
    """The stream they are rows of."""
    json: bool = False
    """Print the file's first line as JSON."""


def export(words: list[str]) -> int:
    name = name_first(words, "ladder export needs the name of a TASK")
    cls = find_task(name)
    options = parse(with_part(ExportOptions, "task", cls()), words, prog=f"ladder export {name}")
    lengths = options.lengths
    if cls.own_lengths and lengths == ExportOptions.__dataclass_fields__["lengths"].default:
        lengths = cls.own_lengths
    header = export_strings(
        options.task, options.out, lengths=lengths, count=options.count, seed=options.seed, split=options.split
    )
    if options.json:
        return _print_json(header)
    low, high = header["lengths"]
    print(f"{options.out}: {header['count']:,} strings of {name}, lengths {low}..{high}, sha256 {header['sha256']}")
    return 0


def run(words: list[str]) -> int:
    as_json, quiet = take_flag(words, "--json"), take_flag(words, "--quiet")
    cell, settings = parse_run(words)
    demand(settings.backend, model=cell.model.name, device=find_device(settings.device))
    try:
        result = execute(cell, settings, quiet=quiet)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    except (RunFailed, PeerLost) as failed:
        if launched_rank() == 0:
            print(f"ladder: {failed}", file=sys.stderr)
        return 1
    if launched_rank() == 0:  # of several processes one speaks
        if as_json:
            _print_json(result)
        else:
            print(describe.outcome(result, settings.results))
    return 0 if result["status"] == "done" else 1


@dataclass
class CheckOptions:
    """The conformance suite over one task or model, with any settings: what every registered one is held to."""


def check(words: list[str]) -> int:
    name = name_first(words, "ladder check needs the NAME of a task or model")
    kind, cls = find_part(name)
    options = parse(with_part(CheckOptions, kind, conformance.specimen(cls)), words, prog=f"ladder check {name}")
    outcomes = conformance.check(getattr(options, kind))
    _columns([(outcome.verdict, outcome.check, outcome.reason) for outcome in outcomes])
    failed = sum(outcome.verdict == "FAIL" for outcome in outcomes)
    print(f"{name}: {failed} of {len(outcomes)} checks fail" if failed else f"{name}: conforms")
    return 1 if failed else 0


@dataclass
class ErrorsOptions:
    """Where a trained model fails: accuracy by answer slot, the confusion of answers, strings it gets wrong."""

    run_id: Positional[str]
    """The run, by its id or a part that only one has."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def errors(words: list[str]) -> int:
    options = parse(ErrorsOptions, words, prog="ladder errors")
    report = errors_report.report(find_run(options.results, options.run_id))
    if options.json:
        return _print_json(report)
    print(errors_report.text(report))
    return 0


@dataclass
class DiffOptions:
    """The settings in which two runs differ."""

    a: Positional[str]
    b: Positional[str]
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def diff(words: list[str]) -> int:
    options = parse(DiffOptions, words, prog="ladder diff")
    one, other = (flat(find_run(options.results, run_id).config()) for run_id in (options.a, options.b))
    changed = {key: [one.get(key), other.get(key)] for key in {**one, **other} if one.get(key) != other.get(key)}
    if options.json:
        return _print_json(changed)
    _columns([(key, json.dumps(a), json.dumps(b)) for key, (a, b) in changed.items()])
    if not changed:
        print("the same run")
    return 0


@dataclass
class DoctorOptions:
    """What this machine has: devices, kernels and why the others are missing, versions."""

    json: bool = False
    """Print JSON."""


def doctor(words: list[str]) -> int:
    options = parse(DoctorOptions, words, prog="ladder doctor")
    tree = describe.machine()
    if options.json:
        return _print_json(tree)
    for title, rows in tree.items():
        _columns([(str(key), describe.shown(value)) for key, value in rows.items()], title=title)
    return 0


def with_part(options: type, kind: str, part: Task | ModelConfig) -> type:
    """The options with the settings of a concrete task or model beside them, as `--task.*` or `--model.*`."""
    both = make_dataclass(options.__name__, [(kind, type(part), part)], bases=(options,))
    both.__doc__ = options.__doc__
    return both


def _print_json(tree: Any) -> int:
    print(json.dumps(tree, indent=1))
    return 0


def _size(model: dict[str, Any]) -> str:
    """What a model is made of and costs, in one line of `ladder list`."""
    state = model["state_bytes_at_length_256"]
    grows = " and growing" if model["state_growth"] == "length" else ""
    parts = [
        f"{model['parameters']:,} parameters",
        f"state of {state:,} bytes at length 256{grows}" if state is not None else "no step form",
        f"{model['cost']} in the length",
        *(f"{name}: {missing or 'ready'}" for name, missing in model["kernels"].items()),
    ]
    return "   ".join(parts)


def _columns(rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Rows as aligned columns under a title, the last column free; nothing where there are none."""
    rows = list(rows)
    if rows and title:
        print(title)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
        print("  " + "  ".join([*cells, row[-1]]).rstrip())
