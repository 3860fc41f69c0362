"""The table of an Othello study: floors and baselines beside every number, and what the probes have to beat.

A number of the whole board, 8x8, is called a result only where the model's likeliest moves are legal at a rate of .95.
The raw history, a stronger baseline than a random network, is told whichever way it falls.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside import intervene, probe, worldmodel
from chomsky_ladder.harness.store.files import read_json, write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.harmless import csv_of

LEGAL = 0.95
"""Of 8x8 a model with a lower rate of legal moves has not learnt the game."""
BEYOND = 3.0
"""By so many standard deviations over games the linear probe must beat the random network and the majority."""

MEASURED = ("config.json", "result.json", probe.FILE, intervene.FILE, worldmodel.FILE)
"""Files of a run from which its line is made."""

_PROBES = (
    *(("model", kind) for kind in ("linear", "two_layer")),
    *(("random_network", kind) for kind in ("linear", "two_layer")),
    *(("history", kind) for kind in ("linear", "two_layer")),
    ("majority", "none"),
)


def facts_of(run: Run) -> dict[str, float]:
    """The floors of the game, which need no model."""
    floors = run.task.floors((run.train.lengths[1],))
    counted = {name: float(value) for name, value in run.task.facts.items()}
    return {
        "legal_uniform": floors.s_rand,
        "legal_by_ply": floors.content_free,
        "loss_floor": counted["lowest_loss"],
        "top1_ceiling": counted["highest_hit_rate"],
    }


def row_of(folder: RunFolder) -> dict[str, Any]:
    """One model's line of the table."""
    run = Run.from_plain(folder.config())
    result: dict[str, Any] = folder.result() or {}
    size: Any = getattr(run.task, "size", None)
    probed, edited, told = (read_json(folder.path / module.FILE) for module in (probe, intervene, worldmodel))
    test, flip = result["test"], edited["edits"]["flip"]
    best = flip["best"]
    row: dict[str, Any] = {
        "model": run.model.name,
        "settings": identity_of(run).model,
        "run_id": run.run_id,
        "size": size,
        "parameters": result["parameters"],
        "steps": result["steps"],
        "commit": result["provenance"]["commit"],
        "dirty": result["provenance"]["dirty"],
        "device": result["numerics"]["device"],
        "torch": result["provenance"]["packages"]["torch"],
        "is_result": is_result(size=size, legal=test["accuracy"]),
        "legal": test["accuracy"],
        "loss": test["loss"],
        "top1": test["hits"],
        **facts_of(run),
    }
    for source, kind in _PROBES:
        found = _chosen(probed, source, kind)
        row |= {f"{source}_{kind}": found["cell"], f"{source}_{kind}_board": found["board"]}
    row["layer"] = _chosen(probed, "model", "linear")["layer"]
    for against in ("random_network", "majority", "history"):
        row[f"sd_over_{against}"] = _compared(probed, against)["mean_over_sd"]
    row |= {
        "edit_layer": best["layer"],
        "edit_null": flip["null"]["mean"],
        "edit_error": best["error"]["mean"],
        "edit_error_se": best["error"]["se"],
        "edit_random": best["random"]["mean"],
        "edit_wrong_square": best["wrong_square"]["mean"],
        "edit_perfect_null": flip["perfect_null"],
    }
    for name in worldmodel.METRICS:
        row[name] = told["model_metrics"][name]["mean"]
        row[f"{name}_random"] = told["random_network_metrics"][name]["mean"]
    return row


def _chosen(probed: dict[str, Any], source: str, kind: str) -> dict[str, Any]:
    key = (probed["views"][0], source, kind, True)
    return next(row for row in probed["rows"] if (row["view"], row["source"], row["probe"], row["chosen"]) == key)


def _compared(probed: dict[str, Any], against: str) -> dict[str, Any]:
    """The linear probe against a baseline, paired over games."""
    key = (probed["views"][0], "linear", against)
    return next(row for row in probed["comparisons"] if (row["view"], row["probe"], row["against"]) == key)


def is_result(*, size: int, legal: float) -> bool:
    return size < 8 or legal >= LEGAL


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a column a model, floors and baselines on the line of what they are for."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in _cells(rows))
    return "\n".join([head, "| --- " * (len(rows) + 2) + "|", *lines]) + "\n"


def page_table(rows: Sequence[dict[str, Any]]) -> str:
    """The same with the verdicts as HTML for the page."""
    head, *lines = ([escape(cell) for cell in cells] for cells in _cells(rows))
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>' for name, *cells in lines
    )
    made = [f"{row['model']} at commit {row['commit']}, torch {row['torch']}, {row['device']}" for row in rows]
    told = "\n".join(verdicts(rows)).replace("\n  ", "; ").split("\n")
    said = "\n".join(f"<li>{escape(line)}</li>" for line in [*told, *made])
    return (
        f'<div class="scroll" tabindex="0"><table class="plain boards"><thead><tr>{heads}</tr></thead>\n'
        f'<tbody>{body}</tbody></table></div>\n<ul class="settings">{said}</ul>\n'
    )


def _cells(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    yield ["", "floor", *(row["model"] for row in rows)]
    for name, floor, cell in _LINES:
        yield [name, floor(rows[0]), *map(cell, rows)]


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What is claimed of each model, and whether the history of moves alone is read better than the model."""
    lines = []
    for row in rows:
        random, majority = row["sd_over_random_network"], row["sd_over_majority"]
        does = "beats" if beats(row) else "does NOT beat"
        lines.append(
            f"{row['model']}: the linear probe {does} both the random network ({_signed(random)} s.d. over games) and "
            f"the majority ({_signed(majority)} s.d.) by {BEYOND:g}"
        )
        own, history = row["model_linear"], row["history_linear"]
        side = "above" if own > history else "below"
        lines.append(f"  it reads {own:.4f} of the squares, {side} the raw history's {history:.4f}")
        if not row["is_result"]:
            lines.append(f"  not a result: its moves are legal at a rate of {row['legal']:.3f}, below {LEGAL}")
    return lines


def beats(row: dict[str, Any]) -> bool:
    return all((row[f"sd_over_{against}"] or 0.0) >= BEYOND for against in ("random_network", "majority"))


def write(rows: Sequence[dict[str, Any]], stem: Path) -> str:
    """The table as CSV, markdown and HTML, the last two with the verdicts under it; the markdown again."""
    text = table(rows) + "\n" + "\n".join(verdicts(rows)) + "\n"
    stem.parent.mkdir(parents=True, exist_ok=True)
    csv = csv_of(pd.DataFrame(rows), float_format="%.6g")
    write_atomically(stem.with_name(f"{stem.name}.csv"), csv.encode())
    write_atomically(stem.with_name(f"{stem.name}.md"), text.encode())
    write_atomically(stem.with_name(f"{stem.name}.html"), page_table(rows).encode())
    return text


def keep(folders: Sequence[RunFolder], out: Path) -> None:
    """Copies of what the table is made from, with its provenance, which are small enough to be committed."""
    for folder in folders:
        copies = out / folder.path.name
        copies.mkdir(parents=True, exist_ok=True)
        for name in MEASURED:
            write_atomically(copies / name, (folder.path / name).read_bytes())


def _number(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: "–" if row[name] is None else f"{row[name]:.3f}"


def _both(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: f"{_number(name)(row)} ({_number(f'{name}_random')(row)})"


def _signed(value: float | None) -> str:
    return "no" if value is None else f"{value:+.1f}"


def _nothing(row: dict[str, Any]) -> str:
    return ""


_LINES: tuple[tuple[str, Callable[[dict[str, Any]], str], Callable[[dict[str, Any]], str]], ...] = (
    ("parameters", _nothing, lambda row: f"{row['parameters']:,}"),
    ("steps", _nothing, lambda row: f"{row['steps']:,}"),
    (
        "legal rate of the likeliest move",
        lambda row: f"{row['legal_uniform']:.3f} uniform, {row['legal_by_ply']:.3f} by ply",
        lambda row: f"{row['legal']:.3f}" + ("" if row["is_result"] else " (not a result)"),
    ),
    ("loss, nats", lambda row: f"{row['loss_floor']:.3f} at best", _number("loss")),
    ("top-1", lambda row: f"{row['top1_ceiling']:.3f} at best", _number("top1")),
    (
        "linear probe, squares right (layer)",
        lambda row: f"{row['majority_none']:.3f} majority",
        lambda row: f"{row['model_linear']:.3f} ({row['layer']})",
    ),
    ("- of a random network", _nothing, _number("random_network_linear")),
    ("- of the raw history", _nothing, _number("history_linear")),
    ("two-layer probe, squares right", lambda row: f"{row['majority_none']:.3f} majority", _number("model_two_layer")),
    ("- of a random network", _nothing, _number("random_network_two_layer")),
    ("- of the raw history", _nothing, _number("history_two_layer")),
    (
        "linear probe, whole boards right",
        lambda row: f"{row['majority_none_board']:.3f} majority",
        _number("model_linear_board"),
    ),
    ("- of the raw history", _nothing, _number("history_linear_board")),
    ("linear over random network, s.d. over games", _nothing, lambda row: _signed(row["sd_over_random_network"])),
    ("linear over majority, s.d.", _nothing, lambda row: _signed(row["sd_over_majority"])),
    ("linear over raw history, s.d.", _nothing, lambda row: _signed(row["sd_over_history"])),
    (
        "flip: errors a board (from layer)",
        lambda row: f"{row['edit_perfect_null']:.2f} a perfect player's null",
        lambda row: f"{row['edit_error']:.2f} ± {row['edit_error_se']:.2f} ({row['edit_layer']})",
    ),
    ("- not edited (null)", _nothing, lambda row: f"{row['edit_null']:.2f}"),
    ("- random direction", _nothing, lambda row: f"{row['edit_random']:.2f}"),
    ("- another square's direction", _nothing, lambda row: f"{row['edit_wrong_square']:.2f}"),
    *(
        (f"{name.replace('_', ' ')} (of a random network)", lambda row: "1 perfect", _both(name))
        for name in worldmodel.METRICS
    ),
)
