"""One self-contained HTML file from the records: tables, what is behind every cell, figures, provenance.

Nothing is fetched when it is looked at; its Content-Security-Policy forbids that. The tables are plain HTML, made here;
the script beside the style in page_assets/ sorts, filters and opens cells, with the records embedded as JSON. Text of
records reaches HTML escaped, and scripts as JSON without `<`. The same records give the same bytes.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, warning_of
from chomsky_ladder.harness.figures.plot import one_a_task
from chomsky_ladder.harness.page import bits as page_bits
from chomsky_ladder.harness.page import boards as page_boards
from chomsky_ladder.harness.page import pictures as page_pictures
from chomsky_ladder.harness.page.data import Sheet, class_name, finite, level_class, script_data
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.stats.view import FLOORS, Cell, cells_of, rank
from chomsky_ladder.harness.store import curves as learning_curves
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.labels import Identity, Label
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.tables.kinds.bits import is_rounded

_DATA_AND_FIGURES = 2_300_000  # bytes, beside what boards take: with more runs in it a page has fewer pictures
_ASSETS = Path(__file__).with_name("assets")


def write(results: Path, out: Path) -> int:
    """Bring records.csv and curves.csv up to date, write the page from them and the figures; its size in bytes."""
    records = collect(results)
    curves = learning_curves.collect(results)
    content = page(records, curves=curves, figures=results / "figures", boards=results / "othello").encode()
    write_atomically(out, content)
    return len(content)


def page(
    records: pd.DataFrame,
    *,
    curves: pd.DataFrame | None = None,
    figures: Path | None = None,
    boards: Path | None = None,
) -> str:
    """The page; `figures` holds a folder of figures for each protocol, `boards` the tables and figures of Othello."""
    records = records.sort_values("run_id", ignore_index=True)
    labels = sorted(records["protocol"].unique())
    sheets = [Sheet.of(label, cells_of(records[records["protocol"] == label])) for label in labels]
    rounded = set(records.loc[[is_rounded(row) for row in as_rows(records)], "protocol"])
    whole = [label for label in labels if label not in rounded]  # rounded ones have a section of their own
    script, data = (_ASSETS / "page.js").read_text("utf-8"), script_data(records, sheets, curves)
    held = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    room = min(page_pictures.ROOM, max(0, _DATA_AND_FIGURES - len(held)))
    pictures = page_pictures.of_protocols(whole, figures, room=room) if figures is not None else {}
    classes = sorted(
        {level for sheet in sheets for level in sheet.levels.values()}, key=lambda name: (rank(name), name)
    )
    starts = [sum(len(sheet.cells) for sheet in sheets[:i]) for i in range(len(sheets))]
    sections = [
        _section(i, sheet, starts[i], pictures.get(sheet.label, []), records[records["protocol"] == sheet.label])
        for i, sheet in enumerate(sheets)
    ]
    places = {f"protocol-{i}": label for i, label in enumerate(labels)}
    if bits := page_bits.section(records):
        places["bits"] = "Bits of the weights"
        sections.append(bits)
    if boards is not None:
        places |= {f"othello-{study}": f"Othello, {study}" for study in page_boards.studies(boards)}
        sections += page_boards.sections(boards)
    links = "".join(f'<li><a href="#{escape(place)}">{escape(label)}</a></li>' for place, label in places.items())
    parts = {
        "css": (_ASSETS / "page.css").read_text("utf-8"),
        "script": script,
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        "data": held,
        "contents": f'<nav class="contents" aria-label="Sections"><ul>{links}</ul></nav>\n' if len(places) > 1 else "",
        "classes": "".join(map(_box, classes)),
        "protocols": "\n".join(sections),
        "provenance": _provenance(records, data["csv"]),
    }
    template = (_ASSETS / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _section(number: int, sheet: Sheet, start: int, pictures: Sequence[str], records: pd.DataFrame) -> str:
    name, changes = sheet.protocol.protocol_parts()
    source = PROTOCOLS[name].source if name in PROTOCOLS else ""
    about = [escape(source[:1].upper() + source[1:])] if source else []
    about += [f"Deviates from it in <bdi>({escape(changes)})</bdi>"] if changes else []
    about += [f"Runs: {len(records):,}. Learning rates tried: {', '.join(map(str, sorted(records['lr'].unique())))}"]
    warning = f'<p class="warning">{escape(warning_of(name))}</p>' if warning_of(name) else ""
    figures = f'<div class="figures">{"".join(pictures)}</div>' if pictures else ""
    nothing = '<p class="nothing" hidden>Nothing of this protocol passes the filter.</p>'
    return (
        f'<section class="block" id="protocol-{number}" aria-labelledby="title-{number}">'
        f'<h2 id="title-{number}"><bdi>{escape(sheet.label)}</bdi></h2>{warning}'
        f'<p class="settings">{". ".join(about)}.</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="title-{number}">'
        f"{_table(number, sheet, start)}</div>{nothing}\n{figures}</section>"
    )


def _table(number: int, sheet: Sheet, start: int) -> str:
    place, named = sheet.place, sheet.named
    first = {
        i for i, task in enumerate(sheet.tasks) if i == 0 or sheet.levels[sheet.tasks[i - 1]] != sheet.levels[task]
    }
    raw = {cell.stats.task for cell in sheet.cells if cell.stats.measure == "test"}
    classes = [
        f"{level_class(sheet.levels[task])}{' first' if i in first else ''}" for i, task in enumerate(sheet.tasks)
    ]

    def line(head: str, values: Sequence[str], row: str = "") -> str:
        cells = (f'<td class="{classes[i]}" data-column="{i}"{value}</td>' for i, value in enumerate(values))
        return f'<tr{row}><th scope="row">{head}</th>{"".join(cells)}</tr>\n'

    levels = Counter(sheet.levels[task] for task in sheet.tasks)
    ordered = dict.fromkeys(sheet.levels[task] for task in sheet.tasks)
    bands = [
        f'<th scope="colgroup" colspan="{levels[level]}" class="band first {level_class(level)}" '
        f'data-level="{escape(level)}">{escape(class_name(level))}</th>'
        for level in ordered
    ]
    heads = [
        f'<th scope="col" aria-sort="none" class="{classes[i]}" data-column="{i}"><button type="button"><span>'
        f"{_named(named['task', task])}{'<small>raw</small>' if task in raw else ''}</span></button></th>"
        for i, task in enumerate(sheet.tasks)
    ]
    body = []
    for row, model in enumerate(sheet.models):
        cells = [place.get((model, task)) for task in sheet.tasks]
        values = [_UNMEASURED if i is None else _cell(sheet.cells[i], start + i) for i in cells]
        body.append(line(_titled(sheet, model), values, f' data-row="{row}"'))
    firsts = one_a_task(sheet.cells)
    means = {(cell.stats.task, floor): cell.scaled(cell.runs[0][floor]) for cell in firsts for floor in FLOORS}
    floors = []
    for floor in FLOORS:
        found = [means.get((task, floor)) for task in sheet.tasks]
        values = [
            _UNMEASURED if v is None or finite(v) is None else f'><div class="cell">{_two_digits(v)}</div>'
            for v in found
        ]
        floors.append(line(f"floor: {floor.replace('_', ' ')}", values))
    columns = "".join(f'<colgroup span="{levels[level]}"></colgroup>' for level in ordered)
    return (
        f'<table class="grid" data-protocol="{number}"><caption class="hidden-text">Scaled test accuracy under '
        f"{escape(sheet.label)}: models by tasks</caption><colgroup></colgroup>{columns}<thead>"
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
    if seen.median is None:
        value, heat = f"<small>none of {seen.diverged + seen.failed + seen.unfinished_elsewhere} finished</small>", 0
    else:
        low, high = map(_two_digits, seen.range)
        spread = f"[{low}, {high}] " if low != high else ""
        share = ", ".join([f"{seen.reached.hits}/{seen.reached.n}", *fates])
        value = f"{_two_digits(seen.median)} <small>{spread}{share}</small>"
        heat = round(34 * min(max(seen.median, 0.0), 1.0))
    return (
        f' style="--heat:{heat}"><button type="button" class="cell" data-cell="{number}" aria-haspopup="dialog">'
        f"{value}</button>"
    )


def _provenance(records: pd.DataFrame, csv: str) -> str:
    digest = hashlib.sha256(csv.encode()).hexdigest()
    parts = [
        f"<p>Made by <code>ladder page</code> from {len(records):,} records; the sha256 of their records.csv is "
        f"<code>{digest}</code>.</p>"
    ]
    for label, own in records.groupby("protocol", sort=True):
        name, dirty = Identity.of(own.iloc[0]).protocol_name, int(own["dirty"].eq(True).sum())
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
            "Source": PROTOCOLS[name].source if name in PROTOCOLS else "",
        }
        rows = "".join(f"<dt>{key}</dt><dd><bdi>{escape(value)}</bdi></dd>" for key, value in facts.items() if value)
        parts.append(f'<div class="who"><h3><bdi>{escape(str(label))}</bdi></h3><dl>{rows}</dl></div>')
    return "\n".join(parts)


def _counted(values: pd.Series) -> Iterator[tuple[str, int]]:
    """Each value with how often it occurs, the commonest first."""
    yield from sorted(Counter(map(str, values)).items(), key=lambda pair: (-pair[1], pair[0]))


def _box(level: str) -> str:
    return (
        f'<label class="{level_class(level)}"><input type="checkbox" value="{escape(level)}" checked>'
        f'<span class="badge">{escape(class_name(level))}</span></label>\n'
    )


def _titled(sheet: Sheet, model: str) -> str:
    """A model by its title, with its label for who points at it."""
    title = next(cell.stats.title for cell in sheet.cells if cell.stats.model == model)
    return f'<bdi title="{escape(model)}">{escape(title).replace("_", "_<wbr>")}</bdi>'


def _named(label: Label) -> str:
    """The settings small below the name, which may break after an underscore."""
    settings = f" <small>({escape(label.changes).replace('=', '=<wbr>')})</small>" if label.changes else ""
    return f"<bdi>{escape(label.name).replace('_', '_<wbr>')}{settings}</bdi>"


def _two_digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # never -0.00
