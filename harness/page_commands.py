"""Command lines and the page: what `ladder page` does, and the line with which a reader reproduces a run."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from harness.files import default_results
from harness.options import parse


@dataclass
class PageOptions:
    """Bring records.csv and curves.csv up to date and write one HTML file of tables, cells and figures."""

    results: Path = field(default_factory=default_results)
    """The folder of runs/, records.csv, curves.csv and figures/."""
    out: Path | None = None
    """The file to write; page.html in the results folder if not given."""


def page(words: list[str]) -> int:
    options = parse(PageOptions, words, prog="ladder page")
    if not options.results.is_dir():
        raise ValueError(f"no such folder of results: {options.results}")
    out = options.out or options.results / "page.html"
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out names a file in a folder that is there, not {out}")
    from harness import page as pages  # with pandas

    size = pages.write(options.results, out)
    print(f"{out}: {size / 1e6:.2f} MB")
    return 0


def reproduce(protocol: str, task: str, model: str, *, lr: float) -> tuple[str, list[str]]:
    """The command of a record's labels, without its seed, and what a reader has to know of it.

    `parity`, `lstm (d_model=32)` of `quick (train.steps=9)` at 0.01 is `ladder run parity lstm --protocol quick
    --train.lr 0.01 --model.d-model 32 --train.steps 9`.
    """
    names, words, left, versions = {}, [], [], []
    for part, label in {"task": task, "model": model, "protocol": protocol}.items():
        found = re.fullmatch(r"([^\s()]+)(?: v(\d+))?(?: \((.*)\))?", label, flags=re.DOTALL)
        if not found:
            names[part] = label
            left.append(label)
            continue
        names[part], version, changes = found.groups()
        versions += [f"{names[part]} is version {version}"] if version else []
        options = _options(changes or "", prefix="" if part == "protocol" else f"{part}.")
        words += options or []
        left += [changes] if options is None else []
    start = ["ladder", "run", names["task"], names["model"], "--protocol", names["protocol"], "--train.lr", repr(lr)]
    notes = [f"{', '.join(versions)}: another version of the code may have another."] if versions else []
    if left:
        notes.append(f"These labels deviate from the protocol in what is no plain option, so add it: {'; '.join(left)}")
    elif words:
        notes.append("These labels deviate from the protocol; the options say so. The run's id must come out the same.")
    return shlex.join([*start, *words]), notes


def _options(changes: str, *, prefix: str) -> list[str] | None:
    """The words for `name=value, name=low..high`; None where a value does not stand for itself."""
    words = []
    for change in changes.split(", ") if changes else []:
        name, equals, value = change.partition("=")
        values = value.split("..")
        is_list = len(values) > 1 and all(re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", one) for one in values)
        is_empty = value == "" and name in ("train.curriculum", "eval.extrapolate")
        is_plain = re.fullmatch(r"\S+", value) and ".." not in value and value not in ("None", "True", "False")
        if not equals or not re.fullmatch(r"[a-z][\w.]*", name) or name in ("eval.file", "file_sha256"):
            return None
        if not is_list and not is_empty and not is_plain:
            return None
        words += [f"--{prefix}{name}".replace("_", "-"), *([] if is_empty else values if is_list else [value])]
    return words
