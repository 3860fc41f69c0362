"""Commands on one task or model: parse the line, ask the harness, print text or, with --json, JSON."""

import json
from dataclasses import dataclass, make_dataclass
from pathlib import Path

from chomsky_ladder.harness.cli import describe
from chomsky_ladder.harness.cli.arguments import sized_as_asked
from chomsky_ladder.harness.cli.options import name_first, parse, take
from chomsky_ladder.harness.cli.protocols import describe_protocol
from chomsky_ladder.harness.cli.say import columns, print_json, said
from chomsky_ladder.harness.config.registry import find_part, find_task
from chomsky_ladder.harness.conform import suite as conformance
from chomsky_ladder.harness.train.export import export as export_strings
from chomsky_ladder.harness.train.workable import refuse_mistaken
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.tasks.base import Task


@dataclass
class DescribeOptions:
    """Describe a task with an example and its floors, or a model with its size, and list every setting.

    `--protocol NAME` in place of a name describes a protocol: its source, how its paper reports, and what it sets.
    After the NAME, --help also lists its own settings, --task.* or --model.*. `--model.params 100k` finds the widths.
    """

    json: bool = False
    """Print JSON."""


def describe_part(words: list[str]) -> int:
    if protocols := take(words, "--protocol"):
        return describe_protocol(protocols[-1], words, DescribeOptions)
    name = name_first(
        words,
        "ladder describe needs the NAME of a task or model, or --protocol NAME",
        helped=lambda: parse(DescribeOptions, words, prog="ladder describe NAME"),
    )
    kind, cls = find_part(name)
    sizes = take(words, "--model.params") if kind == "model" else []
    options = parse(with_part(DescribeOptions, kind, cls()), words, prog=f"ladder describe {name}")
    part = getattr(options, kind)
    if kind == "model":
        part = sized_as_asked(part, sizes, words, vocab=describe.EXAMPLE_VOCAB)
    tree = describe.described(part)
    if options.json:
        return print_json(tree)
    print(tree.pop("doc") + "\n")
    settings = tree.pop("settings")
    tables = {title: tree.pop(title, []) for title in ("theory", "beyond_its_training_lengths")}
    columns([(key.replace("_", " "), describe.shown(value)) for key, value in tree.items()])
    for title, rows in tables.items():
        columns([(row["word"], row["of"], row["why"]) for row in rows], title=title.replace("_", " "))
    rows = [(f"--{kind}.{s['name'].replace('_', '-')}", json.dumps(s["value"]), s["help"]) for s in settings]
    columns(rows, title="settings")
    return 0


@dataclass
class SampleOptions:
    """Print strings of a task with their answers. After the TASK, --help also lists its own settings, --task.*."""

    count: int = 3
    """Strings to print."""
    length: int = 0
    """Their length, as the task counts lengths; 0 for any from 3 to 20."""
    seed: int = 0
    """Seed of the strings."""
    json: bool = False
    """Print one JSON object a line."""


def sample(words: list[str]) -> int:
    name = name_first(
        words,
        "ladder sample needs the name of a TASK",
        helped=lambda: parse(SampleOptions, words, prog="ladder sample TASK"),
    )
    options = parse(with_part(SampleOptions, "task", find_task(name)()), words, prog=f"ladder sample {name}")
    refuse_mistaken(options.task)
    for row in describe.samples(options.task, count=options.count, length=options.length, seed=options.seed):
        print(json.dumps(row) if options.json else f"{' '.join(row['input'])}  ->  {' '.join(row['answer'])}")
    return 0


@dataclass
class ExportOptions:
    """Write a file of strings with their answers and a hash. Any model can be scored on it, with `--eval.file FILE`.

    The defaults give the test strings of the published lengths. After the TASK, --help also lists its own settings,
    --task.*.
    """

    out: Path
    """The file to write."""
    count: int = 8192
    """Strings to write."""
    lengths: tuple[int, int] = (40, 256)
    """Shortest and longest string, as the task counts lengths. Legal lengths between them are equally likely."""
    seed: int = 0
    """Seed of the strings. A run with this eval.seed has the same test strings."""
    split: str = "test"
    """The split that the strings come from."""
    json: bool = False
    """Print the file's first line as JSON."""


def export(words: list[str]) -> int:
    name = name_first(
        words,
        "ladder export needs the name of a TASK",
        helped=lambda: parse(ExportOptions, words, prog="ladder export TASK"),
    )
    cls = find_task(name)
    options = parse(with_part(ExportOptions, "task", cls()), words, prog=f"ladder export {name}")
    lengths = options.lengths
    if cls.own_lengths and lengths == ExportOptions.__dataclass_fields__["lengths"].default:
        lengths = cls.own_lengths
    header = export_strings(
        options.task, options.out, lengths=lengths, count=options.count, seed=options.seed, split=options.split
    )
    if options.json:
        return print_json(header)
    low, high = header["lengths"]
    print(f"{options.out}: {header['count']:,} strings of {name}, lengths {low}..{high}, sha256 {header['sha256']}")
    return 0


@dataclass
class CheckOptions:
    """Test that a task or model keeps its promises, with any settings. Every registered one passes these tests.

    After the NAME, --help also lists its own settings, --task.* or --model.*.
    """

    parameters: bool = False
    """Also print how each parameter of a model starts, how its class starts it, and where it gets no gradient."""


def check(words: list[str]) -> int:
    name = name_first(
        words,
        "ladder check needs the NAME of a task or model",
        helped=lambda: parse(CheckOptions, words, prog="ladder check NAME"),
    )
    kind, cls = find_part(name)
    options = parse(with_part(CheckOptions, kind, conformance.specimen(cls)), words, prog=f"ladder check {name}")
    if options.parameters and kind != "model":
        raise ValueError(f"--parameters is for models, and {name} is a {kind}")
    outcomes = conformance.check(getattr(options, kind))
    failed = sum(outcome.verdict == "FAIL" for outcome in outcomes)
    rows = [(outcome.verdict, outcome.check, outcome.reason) for outcome in _without_what_follows(outcomes)]
    columns(rows, looks={"FAIL": "bad", "skip": "faint"})
    if options.parameters:
        _say_parameters(options.model)
    if all(outcome.verdict == "skip" for outcome in outcomes):
        said(f"{name}: nothing of it could be checked here", "weak")
        return 1
    if failed:
        said(f"{name}: {failed} of {len(outcomes)} checks fail", "bad")
        return 1
    said(f"{name}: conforms", "good")
    return 0


def _say_parameters(model: ModelConfig) -> None:
    """Print how the parameters of a model start."""
    from chomsky_ladder.harness.conform.parameters import audit

    starts = audit(model)
    rows = [
        (each.name, str(list(each.shape)), f"{each.mean:.3g} +- {each.std:.3g}", each.usual, each.remark)
        for each in starts
    ]
    remarked = sum(bool(each.remark) for each in starts)
    columns([("parameter", "shape", "mean +- std", "its class", ""), *rows])
    print(f"{remarked} of {len(starts)} parameters have a remark; none is a fault by itself")


ROOTS = (
    "what_it_owns_is_registered",
    "its_dropout_is_the_contexts",
    "blocks_keep_the_shape_of_the_stream",
    "gives_logits_over_the_vocabulary",
)
"""Checks whose failure makes most others fail."""


def _without_what_follows(outcomes: list[conformance.Outcome]) -> list[conformance.Outcome]:
    """Put failures that follow from a root, or repeat a reason, in one line: most go with the first."""
    roots = {root.replace("_", " ") for root in ROOTS}
    failed = [outcome for outcome in outcomes if outcome.verdict == "FAIL"]
    firsts = {outcome.reason: outcome for outcome in reversed(failed)}.values()
    causes = [outcome for outcome in failed if outcome.check in roots] or firsts
    causes = [outcome for outcome in failed if outcome in causes and outcome in firsts]
    rest = [outcome for outcome in failed if outcome not in causes]
    if not rest:
        return outcomes
    kept = [outcome for outcome in outcomes if outcome not in rest]
    said = f"{len(rest)} more fail, which may follow from the above: {', '.join(outcome.check for outcome in rest)}"
    return [*kept, conformance.Outcome("..", "FAIL", said)]


def with_part(options: type, kind: str, part: Task | ModelConfig) -> type:
    """Return the options with the settings of a concrete task or model, as `--task.*` or `--model.*`."""
    both = make_dataclass(options.__name__, [(kind, type(part), part)], bases=(options,))
    both.__doc__ = options.__doc__
    return both
