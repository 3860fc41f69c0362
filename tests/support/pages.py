"""Pages made by hand: records of a climb and of a published protocol, hostile names, and the HTML as tests read it."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.page.columns import value_of
from support.records_by_hand import frame, record

IMAGE, SCRIPT, QUOTES = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"'&lt;b{{data}}"
HOSTILE = (IMAGE, SCRIPT, QUOTES, "<!--<script>", "javascript:alert(3)", "long_" * 30, "\u202egnp")
LEVELS = {IMAGE: "regular", "majority": "counter", "bucket_sort": "context_sensitive", "set": "context_sensitive"}
_LONGEST = "225..256"


class Page(HTMLParser):
    """The plain tables of a page as rows of text, its elements with their attributes, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._where: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._where.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "script":
            self.scripts.append("")
        elif tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._where and self._where.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self._where[-1:]:
            self.scripts[-1] += data
        elif "style" in self._where[-1:]:
            self.styles[-1] += data
        elif {"td", "th"} & set(self._where):
            self.tables[-1][-1][-1] += data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def column(data: dict[str, Any], name: str) -> list[Any]:
    """One of the runs' columns, as the script unpacks it."""
    return unpacked(data["runs"][name])


def run_ids(data: dict[str, Any]) -> list[str]:
    """Put together of what runs have in common, their seed and the rest, as the script does."""
    parts = zip(column(data, "run_id"), column(data, "seed"), column(data, "digest"), strict=True)
    return [f"{start}{seed}-{digest}" if digest else start for start, seed, digest in parts]


def cells(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Each with its columns' values and its whole command, as the script has them."""
    found = rows(data["cells"])
    for cell in found:
        own = data["protocols"][cell["protocol"]]
        task, model = own["tasks"][cell["task"]], own["models"][cell["model"]]
        names = f"{data['names']['tasks'][task]['name']} {data['names']['models'][model]['name']}"
        if cell["command"].startswith("--"):
            cell["command"] = f"ladder run {names} {cell['command']}"
    return found


def unpacked(packed: Any) -> list[Any]:
    if isinstance(packed, list):
        return packed
    if "per" in packed:
        return [_divided(parts, packed["per"]) for parts in unpacked(packed["in"])]
    if "all" in packed:
        return [packed["all"]] * packed["count"]
    each = zip(packed["at"], packed.get("times", [1] * len(packed["at"])), strict=True)
    return [packed["of"][place] for place, times in each for _ in range(times)]


def _divided(parts: Any, per: int) -> Any:
    if isinstance(parts, list):
        return [_divided(part, per) for part in parts]
    return parts if parts is None else value_of(parts / per)


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table of columns, as the script has them."""
    lists = {name: unpacked(values) for name, values in columns.items()}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def climb(*, models: tuple[str, ...] = ("lstm", "mamba"), whole: bool = False) -> list[dict[str, Any]]:
    """Two seeds on every rung but the last: the first model holds all, the second one half of the seeds of some.

    A whole climb has three seeds and all rungs.
    """
    kinds = {"lstm": "lstm", "mamba": "diagonal", "transformer": "attention"}
    rows = []
    for number, rung in enumerate(PROTOCOLS["climb-v1"].rungs[: None if whole else -1]):
        asks = {"parity": "parity", "majority": "majority", "dyck": "nesting"}.get(rung.task, "star-free")
        usual = PROTOCOLS["climb-v1"].tasks.get(rung.task, {})
        changes = {key: value for key, value in rung.settings.items() if usual.get(key) != value}
        shown = ", ".join(f"{key}={value}" for key, value in changes.items())
        for model in models:
            for seed in range(3 if whole else 2):
                high = model == "lstm" or (number % 2 == 0 and seed == 0)
                bins = {"40..64": 1.0, _LONGEST: 0.99 if high else 0.6}
                rows.append(
                    record(
                        protocol="climb-v1",
                        task=f"{rung.task} ({shown})" if shown else rung.task,
                        model=model,
                        seed=seed,
                        transition=kinds.get(model, ""),
                        demand=asks,
                        test_scaled=0.95 if high else 0.2,
                        test_bins=json.dumps(bins),
                        content_free_bins=json.dumps(dict.fromkeys(bins, 0.5)),
                        extrapolation='{"512":0.8}',
                        state_bytes=640,
                    )
                )
    return rows


def runs() -> pd.DataFrame:
    """A climb; models and tasks with hostile names, a run that failed, cells nobody measured, many columns."""
    bins = '{"40..64":0.9,"65..96":0.7,"97..128":0.55}'
    rows = [
        record(
            task=task,
            level=level,
            model=model,
            seed=seed,
            test_scaled=score + seed / 100,
            test_bins=bins,
            content_free_bins=bins.replace("0.9", "0.6"),
            extrapolation='{"512":0.6}',
            parameters=size,
            state_bytes=size // 10,
            commit="c0ffee",
            device=SCRIPT,
            torch="2.13.0",
        )
        for task, level in LEVELS.items()
        for model, score, size in (("lstm", 0.5, 1000), ("mamba", 0.1, 2000), (SCRIPT, 0.9, 3000))
        for seed in (0, 1)
        if (task, model) != ("majority", SCRIPT)
    ]
    rows.append(record(task="bucket_sort", level="context_sensitive", model=QUOTES, status="failed", error=IMAGE))
    rows += [record(protocol="quick (train.steps=9)", model=name, lr=1e-2) for name in HOSTILE]
    rows += [record(protocol="slice", task=f"quite_a_long_task_{i}", model=f"model_{i}") for i in range(20)]
    rows += [record(protocol="xlstm_cpu"), record(protocol="xlstm_cpu (train.qat=4)")]
    return frame(*climb(), *rows)


def curves(records: pd.DataFrame) -> pd.DataFrame:
    rows = [(run, step, 2 / step, step / 200) for run in records["run_id"] for step in (20, 40, 100)]
    return pd.DataFrame(rows, columns=["run_id", "step", "loss", "validation"])
