"""`ladder list`: what tasks and models there are, by name; some of them, or all of a kind, in full.

ladder list                                 names, by class and by family
ladder list tasks                           each with an example, its floors and the protocols that have it
ladder list models state_space 'rwkv*'      of a family, or of names
ladder list regular                         the tasks of a class
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli import listing
from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, print_json
from chomsky_ladder.harness.config.rooms import did_you_mean

KINDS = ("tasks", "models")
_ACROSS = 100


@dataclass
class ListOptions:
    """List tasks by class and models by family. Those you name are shown with an example, floors and sizes."""

    words: Positional[tuple[str, ...]] = ()
    """`tasks`, `models`, or names of classes, families, tasks and models. * stands for anything."""
    json: bool = False
    """Print JSON."""


def list_parts(words: list[str]) -> int:
    options = parse(ListOptions, words, prog="ladder list")
    whole = listing.listed()
    tree = _asked_for(whole, options.words)
    if options.json:
        return print_json(tree)
    if options.words:
        _in_full(tree)
    else:
        _by_name(tree)
    columns([(problem,) for problem in tree["problems"]], title="Problems")
    return 0


GROUPED_BY = {"tasks": "level", "models": "family"}


def _asked_for(tree: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the part of the listing that the words name. A word that matches nothing is refused."""
    kinds = [kind for kind in KINDS if kind in words] or list(KINDS)
    names = [word for word in words if word not in KINDS]
    for word in names:
        if not any(_is_of(part, kind, word) for kind in kinds for part in tree[kind]):
            there = {_written(part[by]) for kind in kinds for part in tree[kind] for by in ("name", GROUPED_BY[kind])}
            hint = did_you_mean(word, sorted(there - {"none"})) or "; `ladder list` has all names"
            raise ValueError(f"no {' or '.join(kinds)} of the name, class or family {word!r}{hint}")
    kept = {kind: [part for part in tree[kind] if kind in kinds and _is_wanted(part, kind, names)] for kind in KINDS}
    return tree | kept


def _is_wanted(part: dict[str, Any], kind: str, names: Sequence[str]) -> bool:
    return not names or any(_is_of(part, kind, name) for name in names)


def _is_of(part: dict[str, Any], kind: str, word: str) -> bool:
    return _written(part[GROUPED_BY[kind]]) == _written(word) or fnmatchcase(part["name"], word)


def _written(group: str) -> str:
    """Return a class or family from a word of a command line: state space, state-space: state_space."""
    return group.lower().replace(" ", "_").replace("-", "_")


def _by_name(tree: dict[str, Any]) -> None:
    print(f"{len(tree['tasks'])} tasks")
    _named({tree["levels"][level]: tasks for level, tasks in _by_level(tree)})
    print(f"\n{len(tree['models'])} models")
    _named(dict(_grouped(tree["models"], "family")))
    print("\nIn full: ladder list tasks, ladder list models, ladder list regular 'rwkv*', ladder describe NAME")


def _named(groups: dict[str, list[dict[str, Any]]]) -> None:
    wide = max(map(len, groups), default=0)
    for title, parts in groups.items():
        names = "  ".join(part["name"] for part in parts)
        lines = textwrap.wrap(names, _ACROSS - wide, break_long_words=False, break_on_hyphens=False)
        for head, line in zip([title, *[""] * len(lines)], lines, strict=False):
            print(f"  {head:{wide}}  {line}")


def _in_full(tree: dict[str, Any]) -> None:
    if tree["tasks"]:
        low, high = tree["floor_lengths"]
        print(f"Floors: chance, best constant, content free, of default settings at lengths {low}..{high}.")
        print("In: the protocols whose published table has the task, which may set it up otherwise.")
    if tree["models"]:
        print("Fast: kernels that serve a model somewhere; `ladder doctor` says which of them this machine has.")
    for level, tasks in _by_level(tree):
        print(f"\nTasks, {tree['levels'][level]}")
        for task in tasks:
            floors = "  ".join(f"{value:.3f}" for value in task["floors"].values())
            used = f"  in {', '.join(task['protocols'])}" if task["protocols"] else ""
            print(f"  {task['name']}: {task['about']}\n      {task['example']}\n      floors {floors}{used}")
    for title, models in _grouped(tree["models"], "family"):
        print(f"\nModels, {title}")
        for model in models:
            print(f"  {model['name']} ({model['year']}, {model['paper']}): {model['about']}\n      {_size(model)}")


def _by_level(tree: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Group tasks by class, from the lowest up."""
    found = dict(_grouped(tree["tasks"], "level"))
    return [(level, found[level]) for level in tree["levels"] if level in found]


def _grouped(parts: Iterable[dict[str, Any]], by: str) -> list[tuple[str, list[dict[str, Any]]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        found.setdefault(part[by], []).append(part)
    return list(found.items())


def _size(model: dict[str, Any]) -> str:
    """Describe a model's parts and cost in one line."""
    state = model["state_bytes_at_length_256"]
    grows = " and growing" if model["state_growth"] == "length" else ""
    parts = [
        f"{model['parameters']:,} parameters",
        f"state of {state:,} bytes at length 256{grows}" if state is not None else "no step form",
        "cost unknown" if model["cost"] == "unknown" else f"{model['cost']} in the length",
        *([f"fast: {', '.join(model['kernels'])}"] if model["kernels"] else []),
    ]
    return "   ".join(parts)
