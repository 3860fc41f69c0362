"""One self-contained HTML file from the records: tables, what is behind every cell, figures, provenance.

Nothing is fetched when it is looked at; its Content-Security-Policy forbids that. The tables are plain HTML, made here;
the script beside the style in page_assets/ sorts, filters and opens cells, with the records embedded as JSON. Text of
records reaches HTML escaped, and scripts as JSON without `<`. The same records give the same bytes.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness import curves as learning_curves
from harness.collect import collect
from harness.figure_data import CLASSES, FLOORS, LEVELS, Cell, cells_of, heat_map, rank, training_lengths
from harness.files import write_atomically
from harness.page_commands import reproduce
from harness.presets import PROTOCOLS

_ASSETS = Path(__file__).with_name("page_assets")
_CURVE_NUMBERS = 100_000  # over all curves of a page
_FIGURE_BYTES = 2_200_000  # of figures in a page, as they are embedded
_FIGURES = {
    "heat_map": "Accuracy of every model on every task, by class",
    "ladder": "The highest class each model climbs",
    "lengths": "Accuracy against length",
    "cost": "Accuracy against what a model costs",
    "validation": "Validation accuracy by step",
    "loss": "Training loss by step",
}


def write(results: Path, out: Path) -> int:
    """Bring records.csv and curves.csv up to date, write the page from them and the figures; its size in bytes."""
    records = collect(results)
    content = page(records, curves=learning_curves.collect(results), figures=results / "figures").encode()
    write_atomically(out, content)
    return len(content)


@dataclass(frozen=True)
class _Sheet:
    """What the page shows of one protocol."""

    label: str
    cells: list[Cell]
    tasks: list[str]  # by class
    models: list[str]
    levels: dict[str, str]

    @classmethod
    def of(cls, label: str, cells: list[Cell]) -> "_Sheet":
        levels = {cell.stats.task: cell.stats.level for cell in reversed(cells)}
        tasks = sorted(levels, key=lambda task: (rank(levels[task]), levels[task], task))
        return cls(label, cells, tasks, sorted({cell.stats.model for cell in cells}), levels)

    @property
    def place(self) -> dict[tuple[str, str], int]:
        return {(cell.stats.model, cell.stats.task): i for i, cell in enumerate(self.cells)}


def page(records: pd.DataFrame, *, curves: pd.DataFrame | None = None, figures: Path | None = None) -> str:
    """The page; `figures` is the folder that holds a folder of figures for each protocol."""
    records = records.sort_values("run_id", ignore_index=True)
    labels = sorted(records["protocol"].unique())
    sheets = [_Sheet.of(label, cells_of(records[records["protocol"] == label])) for label in labels]
    pictures = _pictures(labels, figures) if figures is not None and figures.is_dir() else {}
    script, data = (_ASSETS / "page.js").read_text(), _data(records, sheets, curves)
    classes = sorted(
        {level for sheet in sheets for level in sheet.levels.values()}, key=lambda name: (rank(name), name)
    )
    starts = [sum(len(sheet.cells) for sheet in sheets[:i]) for i in range(len(sheets))]
    sections = [
        _section(i, sheet, starts[i], pictures.get(sheet.label, []), records[records["protocol"] == sheet.label])
        for i, sheet in enumerate(sheets)
    ]
    links = "".join(f'<li><a href="#protocol-{i}">{_text(label)}</a></li>' for i, label in enumerate(labels))
    parts = {
        "css": (_ASSETS / "page.css").read_text(),
        "script": script,
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "contents": f'<nav class="contents" aria-label="Protocols"><ul>{links}</ul></nav>\n' if len(labels) > 1 else "",
        "classes": "".join(map(_box, classes)),
        "protocols": "\n".join(sections),
        "provenance": _provenance(records, data["csv"]),
    }
    template = (_ASSETS / "page.html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _data(records: pd.DataFrame, sheets: Sequence[_Sheet], curves: pd.DataFrame | None) -> dict[str, Any]:
    """What the script reads: records.csv as it is, and what is decided here rather than there."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for i, names in enumerate(zip(records["protocol"], records["task"], records["model"], strict=True)):
        rows.setdefault(names, []).append(i)
    cells, protocols, shown = [], [], []
    for number, sheet in enumerate(sheets):
        place = sheet.place
        grid = [[place.get((model, task)) for task in sheet.tasks] for model in sheet.models]
        protocols.append(
            {
                "label": sheet.label,
                "models": sheet.models,
                "tasks": sheet.tasks,
                "levels": [sheet.levels[task] for task in sheet.tasks],
                "classes": [_class(sheet.levels[task]) for task in sheet.tasks],
                "names": [_class_name(sheet.levels[task]) for task in sheet.tasks],
                "cells": [[None if i is None else len(cells) + i for i in line] for line in grid],
            }
        )
        for cell in sheet.cells:
            seen = cell.stats
            command, notes = reproduce(sheet.label, seen.task, seen.model, lr=seen.lr)
            chance = cell.runs[0]["s_rand"] if cell.runs and seen.measure != "test" else 0.0
            bins = json.loads(cell.runs[0]["test_bins"]) if cell.runs else {}
            cells.append(
                {
                    "protocol": number,
                    "task": sheet.tasks.index(seen.task),
                    "model": sheet.models.index(seen.model),
                    "lr": seen.lr,
                    "measure": seen.measure,
                    "mean": _number(seen.mean),
                    "std": _number(seen.std),
                    "chance": _number(chance) or 0.0,
                    "trained": training_lengths(sheet.label, bins),
                    "rows": rows[sheet.label, seen.task, seen.model],
                    "command": command,
                    "notes": notes,
                }
            )
            own = records.iloc[rows[sheet.label, seen.task, seen.model]]
            shown += list(own.loc[own["lr"] == seen.lr, "run_id"])
    thinned, points = _curves(curves, shown)
    csv = records.to_csv(index=False, lineterminator="\n")
    return {"csv": csv, "protocols": protocols, "cells": cells, "curves": thinned, "points": points}


def _curves(curves: pd.DataFrame | None, shown: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Of each run shown, steps and values of both curves, thinned evenly to so many points; and how many."""
    found: dict[str, Any] = {}
    if curves is None:
        return found, 0
    kept = curves[curves["run_id"].isin(set(shown))].sort_values(["run_id", "step"])
    points = max(12, min(200, _CURVE_NUMBERS // (4 * max(1, kept["run_id"].nunique()))))
    for run_id, own in kept.groupby("run_id", sort=True):
        for name in ("validation", "loss"):
            values = [
                (int(step), float(f"{value:.4g}"))
                for step, value in zip(own["step"], own[name].astype(float), strict=True)
                if math.isfinite(value)
            ]
            if len(values) > points:
                values = [values[i * (len(values) - 1) // (points - 1)] for i in range(points)]
            if values:
                found.setdefault(str(run_id), {})[name] = list(zip(*values, strict=True))
    return found, points


def _section(number: int, sheet: _Sheet, start: int, pictures: Sequence[str], records: pd.DataFrame) -> str:
    name, _, changes = sheet.label.partition(" ")
    source = PROTOCOLS[name].source if name in PROTOCOLS else ""
    about = [_text(source[:1].upper() + source[1:])] if source else []
    about += [f"Deviates from it in <bdi>{_text(changes)}</bdi>"] if changes else []
    about += [f"Runs: {len(records):,}. Learning rates tried: {', '.join(map(str, sorted(records['lr'].unique())))}"]
    quick = '<p class="warning">Quick: a smoke run, not a result.</p>' if name == "quick" else ""
    figures = f'<div class="figures">{"".join(pictures)}</div>' if pictures else ""
    nothing = '<p class="nothing" hidden>Nothing of this protocol passes the filter.</p>'
    return (
        f'<section class="block" id="protocol-{number}" aria-labelledby="title-{number}">'
        f'<h2 id="title-{number}"><bdi>{_text(sheet.label)}</bdi></h2>{quick}'
        f'<p class="settings">{". ".join(about)}.</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="title-{number}">'
        f"{_table(number, sheet, start)}</div>{nothing}\n{figures}</section>"
    )


def _table(number: int, sheet: _Sheet, start: int) -> str:
    place = sheet.place
    first = {
        i for i, task in enumerate(sheet.tasks) if i == 0 or sheet.levels[sheet.tasks[i - 1]] != sheet.levels[task]
    }
    raw = {cell.stats.task for cell in sheet.cells if cell.stats.measure == "test"}
    classes = [f"{_class(sheet.levels[task])}{' first' if i in first else ''}" for i, task in enumerate(sheet.tasks)]

    def line(head: str, values: Sequence[str], row: str = "") -> str:
        cells = (f'<td class="{classes[i]}" data-column="{i}"{value}</td>' for i, value in enumerate(values))
        return f'<tr{row}><th scope="row">{head}</th>{"".join(cells)}</tr>\n'

    levels = Counter(sheet.levels[task] for task in sheet.tasks)
    ordered = dict.fromkeys(sheet.levels[task] for task in sheet.tasks)
    bands = [
        f'<th scope="colgroup" colspan="{levels[level]}" class="band first {_class(level)}" '
        f'data-level="{_text(level)}">{_text(_class_name(level))}</th>'
        for level in ordered
    ]
    heads = [
        f'<th scope="col" aria-sort="none" class="{classes[i]}" data-column="{i}"><button type="button"><span>'
        f"{_named(task)}{'<small>raw</small>' if task in raw else ''}</span></button></th>"
        for i, task in enumerate(sheet.tasks)
    ]
    body = []
    for row, model in enumerate(sheet.models):
        cells = [place.get((model, task)) for task in sheet.tasks]
        values = [_UNMEASURED if i is None else _cell(sheet.cells[i], start + i) for i in cells]
        body.append(line(_named(model), values, f' data-row="{row}"'))
    seen = heat_map(sheet.cells)
    means = {(row["task"], row["floor"]): row["mean"] for row in seen[seen["n"] == 0].to_dict("records")}
    floors = []
    for floor in FLOORS:
        found = [means.get((task, floor)) for task in sheet.tasks]
        values = [_UNMEASURED if _number(v) is None else f'><div class="cell">{_two_digits(v)}</div>' for v in found]
        floors.append(line(f"floor: {floor.replace('_', ' ')}", values))
    columns = "".join(f'<colgroup span="{levels[level]}"></colgroup>' for level in ordered)
    return (
        f'<table class="grid" data-protocol="{number}"><caption class="hidden-text">Scaled test accuracy under '
        f"{_text(sheet.label)}: models by tasks</caption><colgroup></colgroup>{columns}<thead>"
        '<tr><th scope="col" rowspan="2" class="corner" aria-sort="ascending"><button type="button"><span>Model</span>'
        f"</button></th>{''.join(bands)}</tr>\n<tr>{''.join(heads)}</tr></thead>\n"
        f'<tbody>{"".join(body)}</tbody><tbody class="floors">{"".join(floors)}</tbody></table>'
    )


_UNMEASURED = (
    '><div class="cell unmeasured"><span aria-hidden="true">–</span><span class="hidden-text">not measured</span></div>'
)


def _cell(cell: Cell, number: int) -> str:
    seen = cell.stats
    fates = [f"{count} {fate}" for fate, count in (("diverged", seen.diverged), ("failed", seen.failed)) if count]
    if seen.mean is None:
        value, heat = f"<small>none of {seen.diverged + seen.failed + seen.unfinished_elsewhere} finished</small>", 0
    else:
        spread = f"± {seen.std:.2f} " if seen.std is not None else ""
        value = f"{_two_digits(seen.mean)} <small>{spread}({', '.join([str(seen.n), *fates])})</small>"
        heat = round(34 * min(max(seen.mean, 0.0), 1.0))
    return (
        f' style="--heat:{heat}"><button type="button" class="cell" data-cell="{number}" aria-haspopup="dialog">'
        f"{value}</button>"
    )


def _pictures(labels: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """The figures of each protocol; the headline figures of all go first where there is no room for every one."""
    from harness.figures import folder_name  # with matplotlib

    left = _FIGURE_BYTES
    found: dict[str, list[str]] = {}
    for name, title in _FIGURES.items():
        for label in labels:
            stem = folder / folder_name(label) / name
            kinds = {"svg+xml": stem.with_suffix(".svg"), "png": stem.with_suffix(".png")}
            there = {kind: path.read_bytes() for kind, path in kinds.items() if path.exists()}
            if not there:
                continue
            kind = min(there, key=lambda kind: len(there[kind]))
            content = base64.b64encode(there[kind]).decode()
            shown = (
                f"<figcaption>{title}: too large for this page; it is in figures/{folder_name(label)}/.</figcaption>"
            )
            if len(content) <= left:
                left -= len(content)
                alt = _text(f"{title}; {label}")
                shown = f'<img src="data:image/{kind};base64,{content}" alt="{alt}" loading="lazy">'
            found.setdefault(label, []).append(f"<figure>{shown}</figure>\n")
    return found


def _provenance(records: pd.DataFrame, csv: str) -> str:
    digest = hashlib.sha256(csv.encode()).hexdigest()
    parts = [
        f"<p>Made by <code>ladder page</code> from {len(records):,} records; the sha256 of their records.csv is "
        f"<code>{digest}</code>.</p>"
    ]
    for label, own in records.groupby("protocol", sort=True):
        dirty = int(own["dirty"].eq(True).sum())
        hours = (own["train_seconds"].astype(float).sum() + own["score_seconds"].astype(float).sum()) / 3600
        facts = {
            "Runs": ", ".join(f"{count:,} {status}" for status, count in _counted(own["status"])),
            "Seeds": ", ".join(map(str, sorted(own["seed"].unique()))),
            "Time": f"{hours:,.2f} h of training and scoring",
            "Commits": "; ".join(f"{commit or 'unknown'} ({count:,})" for commit, count in _counted(own["commit"])),
            "Uncommitted changes": f"in the code of {dirty:,} runs" if dirty else "",
            "Devices": "; ".join(f"{device} ({count:,})" for device, count in _counted(own["device"]) if device),
            "torch": "; ".join(f"{version} ({count:,})" for version, count in _counted(own["torch"]) if version),
            "Fast paths": "; ".join(f"{paths} ({count:,})" for paths, count in _counted(own["backends"]) if paths),
            "Source": PROTOCOLS[name].source if (name := str(label).partition(" ")[0]) in PROTOCOLS else "",
        }
        rows = "".join(f"<dt>{key}</dt><dd><bdi>{_text(value)}</bdi></dd>" for key, value in facts.items() if value)
        parts.append(f'<div class="who"><h3><bdi>{_text(str(label))}</bdi></h3><dl>{rows}</dl></div>')
    return "\n".join(parts)


def _counted(values: pd.Series) -> Iterator[tuple[str, int]]:
    """Each value with how often it occurs, the commonest first."""
    yield from sorted(Counter(map(str, values)).items(), key=lambda pair: (-pair[1], pair[0]))


def _box(level: str) -> str:
    return (
        f'<label class="{_class(level)}"><input type="checkbox" value="{_text(level)}" checked>'
        f'<span class="badge">{_text(_class_name(level))}</span></label>\n'
    )


def _class(level: str) -> str:
    """Of style; a plugin's own class looks like none."""
    return level if level in LEVELS else "none"


def _class_name(level: str) -> str:
    return {**CLASSES, "none": "outside"}.get(level, level)


def _named(label: str) -> str:
    """A label with its settings small below its name, which may break after an underscore."""
    name, bracket, changes = label.partition(" (")
    settings = f" <small>({_text(changes).replace('=', '=<wbr>')}</small>" if bracket else ""
    return f"<bdi>{_text(name).replace('_', '_<wbr>')}{settings}</bdi>"


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _two_digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
