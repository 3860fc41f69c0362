"""The line with which a reader reproduces a run, from its record's labels."""

import re
import shlex


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
