"""The identity of a record as data, and the labels that people read. Labels are made here and nowhere else.

    protocol_name  task_name     model_name  settings
    xlstm_cpu      word_problem  lstm        {"train.qat":4,"task.group":"S3","model.d_model":32}

    xlstm_cpu (train.qat=4)      word_problem (group=S3)      lstm (d_model=32)

`settings` are the differences from the protocol's preset, by dotted names. Numbers, texts, booleans and lists keep
their type. The version of a task, model or protocol is in there from the second on (`"model.version":2`). So results of
two versions of a task or model never share a row, and those of two versions of a protocol never share a table. A task's
layout belongs to the protocol's label, so two layouts never share a table. Nothing here needs torch.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

COLUMNS = ("protocol_name", "task_name", "model_name", "settings")  # columns of a record
LAYOUT = ("task.count", "task.query", "task.supervision", "task.decode")
FILES = ("eval.file_sha256", "task.file_sha256")  # hashes of files, which no option can bring back

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Identity:
    """A run's place in every table: all of its config but learning rate and seed, which every protocol sweeps."""

    protocol_name: str
    task_name: str
    model_name: str
    settings: Settings

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Identity":
        """Return the identity of a record or a result. Old ones without these columns are read from their labels."""
        settings = row.get("settings")
        if isinstance(settings, str | dict):
            opened = _opened(settings) if isinstance(settings, str) else settings
            missing = [name for name in COLUMNS[:3] if not row.get(name)]
            if missing:
                raise ValueError(f"it has settings, but no {' and no '.join(missing)}")
            protocol, task, model = (row[name] for name in COLUMNS[:3])
            return cls(protocol, task, model, opened)
        return _of_labels(row["protocol"], row["task"], row["model"])

    def plain(self) -> dict[str, Any]:
        """Return the identity as a result holds it."""
        return {**{name: getattr(self, name) for name in COLUMNS}, "settings": dict(self.settings)}

    def columns(self) -> dict[str, str]:
        """Return the identity as a line of records.csv holds it."""
        tree = self.plain()
        return {**tree, "settings": json.dumps(tree["settings"], separators=(",", ":"))}

    def columns_and_labels(self) -> dict[str, str]:
        """Return both columns and labels. They are cached, since many runs share them."""
        return _columns_and_labels(*self.columns().values())

    def labels(self) -> dict[str, str]:
        return {"protocol": self.protocol, "task": self.task, "model": self.model}

    @property
    def protocol(self) -> str:
        return self.protocol_parts().whole

    @property
    def task(self) -> str:
        return self.task_parts().whole

    @property
    def model(self) -> str:
        return self.model_parts().whole

    def protocol_parts(self, *left_out: str) -> "Label":
        """Return the protocol's label without some settings, for comparisons that ignore these."""
        changes = {name: value for name, value in self.settings.items() if _is_of_protocol(name)}
        version = changes.pop("protocol.version", 1)
        kept = {name: changes[name] for name in changes if name not in left_out}
        return _versioned(self.protocol_name, {"version": version, **kept})

    def beside(self, settings: Sequence[str]) -> dict[str, str]:
        """Return labels in which these settings move from the protocol to the task (if they are its) or the model."""
        moved = {name: self.settings[name] for name in settings if name in self.settings and _is_of_protocol(name)}
        of_task = {name.removeprefix("task."): value for name, value in moved.items() if name.startswith("task.")}
        of_model = {name: value for name, value in moved.items() if not name.startswith("task.")}
        return {
            "protocol": self.protocol_parts(*moved).whole,
            "task": _versioned(self.task_name, self._own("task") | of_task).whole,
            "model": _versioned(self.model_name, self._own("model") | of_model).whole,
        }

    def task_parts(self) -> "Label":
        return _versioned(self.task_name, self._own("task"))

    def model_parts(self, *left_out: str) -> "Label":
        own = self._own("model")
        return _versioned(self.model_name, {name: own[name] for name in own if name not in left_out})

    def of_task(self) -> dict[str, Any]:
        """Return the task's settings without the prefix "task."."""
        return self._own("task")

    def of_model(self) -> dict[str, Any]:
        return self._own("model")

    def _own(self, part: str) -> dict[str, Any]:
        own = ((name, value) for name, value in self.settings.items() if name.startswith(f"{part}."))
        return {name.removeprefix(f"{part}."): value for name, value in own if not _is_of_protocol(name)}


class Label(NamedTuple):
    """A label as people read it: a name, with its version from the second on, and the changed settings."""

    name: str
    changes: str

    @property
    def whole(self) -> str:
        return f"{self.name} ({self.changes})" if self.changes else self.name


def _versioned(name: str, own: dict[str, Any]) -> Label:
    version = own.pop("version", 1)
    return _label(name if version == 1 else f"{name} v{version}", own)


def _label(name: str, changes: Settings) -> Label:
    return Label(name, ", ".join(_change(setting, value) for setting, value in changes.items()))


def _is_of_protocol(name: str) -> bool:
    return name.startswith(("protocol.", "train.", "eval.")) or name in LAYOUT


def _change(name: str, value: Any) -> str:
    if name == "eval.file_sha256":
        return f"eval.file={value[:12]}"
    if not isinstance(value, list | tuple):
        return f"{name}={value}"
    return f"{name}={'..'.join(map(str, value))}"


@lru_cache(maxsize=4096)
def _columns_and_labels(protocol: str, task: str, model: str, settings: str) -> dict[str, str]:
    identity = Identity(protocol, task, model, _opened(settings))
    return identity.columns() | identity.labels()


@lru_cache(maxsize=4096)
def _opened(settings: str) -> dict[str, Any]:
    """Return the settings of a record as a dict: names with values, in which lists nest at most once."""
    try:
        tree = json.loads(settings)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict) or any(map(_is_deep, tree.values())):
        raise ValueError(f"settings should be the JSON of names with values, not {settings[:40]!r}")
    return tree


def _is_deep(value: Any, *, levels: int = 3) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(each, levels=levels - 1) for each in inner)


# Old records: their labels are their only identity, and a task's layout is not in them.

_TRACKED = ("cycle_nav", "even_pairs", "flip_flop", "mod_arithmetic", "parity", "random_dfa", "regular", "word_problem")
_HARD = ("odds_first", "repetition", "reverse_string", "set", "stack_manipulation")
TRAITS = {**dict.fromkeys(_TRACKED, "tracks_state"), **dict.fromkeys(_HARD, "hard")}

_LISTS = ("train.lengths", "train.curriculum", "train.betas", "eval.lengths", "eval.bins", "eval.extrapolate")


@lru_cache(maxsize=4096)
def _of_labels(protocol: str, task: str, model: str) -> Identity:
    found = {part: _read(part, label) for part, label in (("protocol", protocol), ("task", task), ("model", model))}
    settings = {name: value for _, own in found.values() for name, value in own.items()}
    (protocol, _), (task, _), (model, _) = found.values()
    return Identity(protocol, task, model, settings)


def _read(part: str, label: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings in a label. A label of another form is a name."""
    found = re.fullmatch(r"([^\s()]+)(?: v(\d+))?(?: \((.*)\))?", label, flags=re.DOTALL)
    if not found:
        return label, {}
    name, version, changes = found.groups()
    settings: dict[str, Any] = {f"{part}.version": int(version)} if version else {}
    for change in re.split(r", (?=[a-z][\w.]*=)", changes) if changes else []:
        setting, _, value = change.partition("=")
        whole = setting if part == "protocol" else f"{part}.{setting}"
        is_file = whole == "eval.file"
        settings["eval.file_sha256" if is_file else whole] = value if is_file else _value(whole, value)
    protocol, task, model = (name if part == own else "" for own in ("protocol", "task", "model"))
    identity = Identity(protocol, task, model, settings)
    is_whole = identity.labels()[part] == label and all(type(settings.get(name, [])) is list for name in _LISTS)
    return (name, settings) if is_whole else (label, {})


def _value(name: str, text: str) -> Any:
    """Return the typed value of a setting in a label. Numbers and booleans look like themselves; `a..b` is a list."""
    if text == "" and name in _LISTS:
        return []
    parts = [_plain(part) for part in text.split("..")]
    are_numbers = all(type(part) in (int, float) for part in parts)
    return parts if are_numbers and (len(parts) > 1 or name in _LISTS) else _plain(text)


def _plain(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    for kind in (int, float):
        if re.fullmatch(r"-?\d[\d.e+-]*", text):
            with suppress(ValueError):
                return kind(text)
    return words.get(text, text)


def reproduce(identity: Identity, *, lr: float) -> tuple[str, list[str]]:
    """Return the command that makes such a run, without its seed, and remarks that a reader needs.

    The example above at 0.01 is `ladder run word_problem lstm --protocol xlstm_cpu --train.lr 0.01 --train.qat 4
    --task.group S3 --model.d-model 32`.
    """
    words, versions, left = [], [], []
    for name, value in identity.settings.items():
        part, _, setting = name.partition(".")
        if setting == "version":
            versions.append(f"{getattr(identity, f'{part}_name')} is version {value}")
        elif name in FILES:
            left.append(_change(name, value))
        else:
            words += _option(name, value)
    start = ["ladder", "run", identity.task_name, identity.model_name, "--protocol", identity.protocol_name]
    notes = [f"{', '.join(versions)}: another version of the code may have another."] if versions else []
    if left:
        notes.append(f"These labels deviate from the protocol in what is no plain option, so add it: {'; '.join(left)}")
    elif words:
        notes.append("These labels deviate from the protocol; the options say so. The run's id must come out the same.")
    return shlex.join([*start, "--train.lr", repr(lr), *words]), notes


def _option(name: str, value: Any) -> list[str]:
    part, _, setting = name.partition(".")
    if isinstance(value, bool):  # it differs from the preset, so only the flag that changes it exists
        return [f"--{part}.{'' if value else 'no-'}{setting}".replace("_", "-")]
    values = value if isinstance(value, list) else [value]
    return [f"--{name}".replace("_", "-"), *map(str, values)]
