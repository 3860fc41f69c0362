"""One self-contained HTML file from the records: the ladder, the matrix, accuracy by length, cost, tasks, models.

Nothing is fetched when it is looked at; its Content-Security-Policy forbids that, and allows one script and one style
by their hashes. The records stand in it as JSON, rounded to what is shown; the script draws every view and figure from
them. Text of records reaches the page escaped, or as JSON without `<`. The same records give the same bytes.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.theory import TRANSITIONS
from chomsky_ladder.harness.page import boards, costs, parts, plain
from chomsky_ladder.harness.page.cells import Sheet, cells, curves, protocols, runs
from chomsky_ladder.harness.page.climbs import ladders
from chomsky_ladder.harness.page.stories import stories
from chomsky_ladder.harness.stats.view import CLASSES, cells_of
from chomsky_ladder.harness.store import curves as learning_curves
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.submit.received import Received, received

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    *("start", "values", "state", "elements", "marks", "charts", "exports", "controls", "cell"),
    *("ladder", "corner", "matrix", "lengths", "cost", "task", "model", "theory", "worlds", "add", "about", "views"),
)
"""The script's files in the order in which they are joined: each needs those before it."""


def of_results(results: Path, *, listing: Mapping[str, Any] | None = None, url: str = "", picture: str = "") -> str:
    """Bring records.csv and curves.csv up to date and make the page of all there is under a results folder."""
    records, points = collect(results), learning_curves.collect(results)
    submitted = list(received(results, records))
    return page(
        pd.concat([records, *(one.records for one in submitted)]),
        curves=pd.concat([points, *(one.curves for one in submitted)]),
        submitted=submitted,
        listing=listing,
        throughput=results / "throughput",
        worlds=results,
        figures=results / "figures",
        url=url,
        picture=picture,
    )


def page(
    records: pd.DataFrame,
    *,
    curves: pd.DataFrame | None = None,
    submitted: Sequence[Received] = (),
    listing: Mapping[str, Any] | None = None,
    throughput: Path | None = None,
    worlds: Path | None = None,
    figures: Path | None = None,
    url: str = "",
    picture: str = "",
) -> str:
    """The page; `listing` is that of `ladder list`, the folders hold what was measured beside the records. `worlds` has
    the folders othello/ and chess/.

    The records may hold those of `submitted`, which no finding counts. `url` is where it will lie and `picture` the
    name of one beside it, which are shown where somebody links to it.
    """
    records = records.sort_values("run_id", ignore_index=True)
    labels = sorted(records["protocol"].unique())
    every = [Sheet.of(label, cells_of(records[records["protocol"] == label])) for label in labels]
    sheets = [sheet for sheet in every if sheet.cells]  # of runs that only choose a rate there is nothing to show
    climbs = ladders(sheets)
    data = {
        **_of_records(records, sheets, curves),
        "ladders": climbs,
        "submitted": {one.label: {"word": one.word, "cite": one.cite} for one in submitted},
        "stories": stories(sheets, climbs, without={one.label for one in submitted}),
        **_beside(sheets, climbs, listing or {}, throughput),
        "worlds": boards.studies(worlds) if worlds else [],
        "figures": _of_plugins(labels, figures) if figures else [],
    }
    held = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    script = "\n".join((ASSETS / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    css = (ASSETS / "page.css").read_text("utf-8")
    filled = {
        "share": _shared(url, picture),
        "css": css,
        "css_hash": _hash(css),
        "script": script,
        "script_hash": _hash(script),
        "data": held.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        "plain": plain.tables(sheets, climbs),
    }
    template = (ASSETS / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], template)


def _shared(url: str, picture: str) -> str:
    """Return the tags that say how a link to the page is shown. They need whole addresses."""
    if not url:
        return '<meta name="twitter:card" content="summary">'
    here = escape(url.rstrip("/") + "/", quote=True)
    lines = [f'<link rel="canonical" href="{here}">', f'<meta property="og:url" content="{here}">']
    if picture:
        lines.append(f'<meta property="og:image" content="{here}{escape(picture, quote=True)}">')
        lines.append('<meta property="og:image:width" content="1200">\n<meta property="og:image:height" content="630">')
        lines.append('<meta property="og:image:alt" content="Which models hold which rungs of the ladder">')
    card = "summary_large_image" if picture else "summary"
    return "\n".join([*lines, f'<meta name="twitter:card" content="{card}">'])


def _of_records(records: pd.DataFrame, sheets: list[Sheet], points: pd.DataFrame | None) -> dict[str, Any]:
    digest = hashlib.sha256(records.to_csv(index=False, lineterminator="\n").encode()).hexdigest()
    return {
        "count": len(records),
        "digest": digest,
        "protocols": protocols(records, sheets),
        "cells": cells(records, sheets),
        "runs": runs(records),
        "curves": curves(records, sheets, points),
        "classes": CLASSES,
    }


def _beside(
    sheets: list[Sheet], climbs: list[dict[str, Any]], listing: Mapping[str, Any], throughput: Path | None
) -> dict[str, Any]:
    """Return the facts about tasks and models that stand beside the records, and the costs."""
    machines = costs.machines(throughput) if throughput else []
    listed = parts.listed(listing)
    named = parts.names(sheets, [*costs.models(machines), *listed["models"]])
    for name, entry in named["models"].items():
        if title := listed["models"].get(name, {}).get("title"):
            entry["title"] = title
    moves = [*TRANSITIONS, *(row["transition"] for climb in climbs for row in climb["rows"])]
    moves += [model["transition"] for model in listed["models"].values() if "transition" in model]
    shown = {"listed": listed, "names": named, "families": parts.families(), "theory": parts.theory(moves)}
    shown["sources"] = parts.sources()
    return {**shown, "throughput": machines}


def _of_plugins(labels: list[str], folder: Path) -> list[dict[str, str]]:
    """Return the figures that plugins have drawn beside ours: their titles, and their places beside the page."""
    if not folder.is_dir():
        return []
    from chomsky_ladder.harness.figures.names import folder_name
    from chomsky_ladder.harness.figures.plot import all_plots  # with matplotlib

    others = [plot for plot in all_plots() if not plot.module.startswith("chomsky_ladder.harness.")]
    places = [(label, plot, f"{folder_name(label)}/{plot.name}.png") for plot in others for label in labels]
    return [
        {"protocol": label, "title": plot.title, "path": f"figures/{place}"}
        for label, plot, place in places
        if (folder / place).exists()
    ]


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
