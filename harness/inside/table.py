"""The table of a study of a board game: floors and baselines beside every number, and baselines that probes must beat.

A column is a model. A cell is the mean of its seeds with the standard deviation; for a choice, every seed's value. For
Othello's whole 8x8 board, a number counts as a result only if at least .95 of the model's likeliest moves are legal.
The raw history, a stronger baseline than a random network, is always reported.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import stdev
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside import intervene, probe, worldmodel
from chomsky_ladder.harness.inside.cases import board_of
from chomsky_ladder.harness.store.files import read_json, write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.titles import name_of
from chomsky_ladder.tasks._board import BoardGame

Row = dict[str, Any]
Cell = Callable[[Sequence[Row]], str]

LEGAL = 0.95
"""A model with a smaller share of legal moves has not learnt the game, where this counts."""
BEYOND = 3.0
"""The linear probe must beat random network and majority by this many standard deviations over games."""

_PROBES = (
    *(("model", kind) for kind in ("linear", "two_layer")),
    *(("random_network", kind) for kind in ("linear", "two_layer")),
    *(("history", kind) for kind in ("linear", "two_layer")),
    ("majority", "none"),
)


def facts_of(run: Run) -> dict[str, float]:
    """Return the floors of the game, which need no model."""
    floors = run.task.floors((run.train.lengths[1],))
    counted = {name: float(value) for name, value in run.task.facts.items()}
    return {
        "legal_uniform": floors.s_rand,
        "legal_by_ply": floors.content_free,
        "loss_floor": counted["lowest_loss"],
        "top1_ceiling": counted["highest_hit_rate"],
    }


def row_of(folder: RunFolder) -> Row:
    """Return the table's line for one run, a seed of a model."""
    run = Run.from_plain(folder.config())
    identity = identity_of(run)
    result: dict[str, Any] = folder.result() or {}
    task = board_of(run.task)
    probed, edited, told = (read_json(folder.path / module.FILE) for module in (probe, intervene, worldmodel))
    test, flip = result["test"], edited["edits"]["flip"]
    best = flip["best"]
    row: Row = {
        "model": name_of(identity),
        "settings": identity.model,
        "seed": run.seed,
        "run_id": run.run_id,
        "size": task.size,
        "parameters": result["parameters"],
        "steps": result["steps"],
        "commit": result["provenance"]["commit"],
        "dirty": result["provenance"]["dirty"],
        "device": result["numerics"]["device"],
        "torch": result["provenance"]["packages"]["torch"],
        "is_result": is_result(task, legal=test["accuracy"]),
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
    """Compare the linear probe with a baseline, paired over games."""
    key = (probed["views"][0], "linear", against)
    return next(row for row in probed["comparisons"] if (row["view"], row["probe"], row["against"]) == key)


def is_result(task: BoardGame, *, legal: float) -> bool:
    return not task.counts_if_learnt or legal >= LEGAL


def by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group the lines by model, under its name, or under its settings if two models share a name."""
    key = "model" if len({row["settings"] for row in rows}) == len({row["model"] for row in rows}) else "settings"
    return {name: [row for row in rows if row[key] == name] for name in dict.fromkeys(row[key] for row in rows)}


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown: a column for each model, with floors and baselines on the lines they belong to."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in _cells(rows))
    return "\n".join([head, f"| --- {'| --- ' * (len(by_model(rows)) + 1)}|", *lines]) + "\n"


def page_table(rows: Sequence[Row]) -> str:
    """Return the table and the verdicts as HTML for the page."""
    head, *lines = ([escape(cell) for cell in cells] for cells in _cells(rows))
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>' for name, *cells in lines
    )
    made = [
        f"{name}, seed {row['seed']}: commit {row['commit']}, torch {row['torch']}, {row['device']}"
        for name, own in by_model(rows).items()
        for row in own
    ]
    said = "\n".join(f"<li>{escape(line)}</li>" for line in [*verdicts(rows), *made])
    return (
        f'<div class="scroll" tabindex="0"><table class="plain boards"><thead><tr>{heads}</tr></thead>\n'
        f'<tbody>{body}</tbody></table></div>\n<ul class="settings">{said}</ul>\n'
    )


def _cells(rows: Sequence[Row]) -> Iterator[list[str]]:
    models = by_model(rows)
    yield ["", "floor", *models]
    for name, floor, cell in _LINES:
        yield [name, floor(rows), *map(cell, models.values())]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return the claims: first on all models, then on each, with the comparison to the history of moves either way."""
    models = by_model(rows)
    lines = [headline({name: _above_history(own) for name, own in models.items()}) + "."]
    for name, own in models.items():
        won = sum(map(beats, own))
        random, majority, history = (_deviations(against)(own) for against in ("random_network", "majority", "history"))
        line = (
            f"{name}: the linear probe beats the random network ({random} s.d. over games) and the majority "
            f"({majority}) by {BEYOND:g} on {won} of {_seeds(own)}; "
            f"it reads {_mean(own, 'model_linear')} of the squares, the raw history's {_mean(own, 'history_linear')} "
            f"({history}); an edit (flip) leaves {_mean(own, 'edit_error', 2)} errors a board of "
            f"{_mean(own, 'edit_null', 2)} unedited, a random direction {_mean(own, 'edit_random', 2)}"
        )
        if not all(row["is_result"] for row in own):
            line += f"; not a result: its moves are legal at a rate of {_mean(own, 'legal')}, below {LEGAL}"
        lines.append(line)
    return lines


def headline(above: Mapping[str, bool]) -> str:
    """Return a sentence that names the models whose streams tell more of the board than the moves do."""
    models = [name for name, is_above in above.items() if is_above]
    if not models:
        return "The moves alone tell a linear probe more of the board than any model's stream does"
    if len(models) == len(above):
        return "Every model's stream tells a linear probe more of the board than the moves alone do"
    named = ", ".join(models) if len(models) < 3 else f"{len(models)} of {len(above)} models"
    return f"Of {named} the stream tells a linear probe more of the board than the moves alone do"


def beats(row: Row) -> bool:
    return all((row[f"sd_over_{against}"] or 0.0) >= BEYOND for against in ("random_network", "majority"))


def _above_history(own: Sequence[Row]) -> bool:
    """Return True if the probe beats the history on every seed."""
    return all(row["model_linear"] > row["history_linear"] for row in own)


def write(rows: Sequence[Row], stem: Path) -> str:
    """Write the table as CSV, Markdown and HTML, the last two with verdicts. Return the Markdown."""
    text = table(rows) + "\n" + "\n".join(verdicts(rows)) + "\n"
    stem.parent.mkdir(parents=True, exist_ok=True)
    csv = csv_of(pd.DataFrame(rows), float_format="%.6g")
    write_atomically(stem.with_name(f"{stem.name}.csv"), csv.encode())
    write_atomically(stem.with_name(f"{stem.name}.md"), text.encode())
    write_atomically(stem.with_name(f"{stem.name}.html"), page_table(rows).encode())
    return text


def _seeds(own: Sequence[Row]) -> str:
    return f"{len(own)} seed{'s' * (len(own) > 1)}"


def _across(values: Sequence[float | None], form: str) -> str:
    """Return a mean and, for several values, their deviation."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = form.format(sum(known) / len(known))
    return mean if len(set(known)) == 1 else f"{mean} ± {form.replace('+', '').format(stdev(known))}"


def _mean(own: Sequence[Row], name: str, digits: int = 3) -> str:
    return _across([row[name] for row in own], f"{{:.{digits}f}}")


def _all(own: Sequence[Row], name: str) -> str:
    """Return each seed's value, once if all agree."""
    return ", ".join(dict.fromkeys(f"{row[name]:,}" for row in own))


def _number(name: str, digits: int = 3) -> Cell:
    return lambda own: _mean(own, name, digits)


def _both(name: str) -> Cell:
    return lambda own: f"{_mean(own, name)} ({_mean(own, f'{name}_random')})"


def _deviations(against: str) -> Cell:
    return lambda own: _across([row[f"sd_over_{against}"] for row in own], "{:+.1f}")


def _nothing(own: Sequence[Row]) -> str:
    return ""


_LINES: tuple[tuple[str, Cell, Cell], ...] = (
    ("parameters", _nothing, lambda own: _all(own, "parameters")),
    ("steps", _nothing, lambda own: _all(own, "steps")),
    ("seeds", _nothing, lambda own: str(len(own))),
    (
        "legal rate of the likeliest move",
        lambda rows: f"{rows[0]['legal_uniform']:.3f} uniform, {rows[0]['legal_by_ply']:.3f} by ply",
        lambda own: _mean(own, "legal") + ("" if all(row["is_result"] for row in own) else " (not a result)"),
    ),
    ("loss, nats", lambda rows: f"{rows[0]['loss_floor']:.3f} at best", _number("loss")),
    ("top-1", lambda rows: f"{rows[0]['top1_ceiling']:.3f} at best", _number("top1")),
    (
        "linear probe, squares right (layer)",
        lambda rows: f"{rows[0]['majority_none']:.3f} majority",
        lambda own: f"{_mean(own, 'model_linear')} ({_all(own, 'layer')})",
    ),
    ("- of a random network", _nothing, _number("random_network_linear")),
    ("- of the raw history", _nothing, _number("history_linear")),
    (
        "two-layer probe, squares right",
        lambda rows: f"{rows[0]['majority_none']:.3f} majority",
        _number("model_two_layer"),
    ),
    ("- of a random network", _nothing, _number("random_network_two_layer")),
    ("- of the raw history", _nothing, _number("history_two_layer")),
    (
        "linear probe, whole boards right",
        lambda rows: f"{rows[0]['majority_none_board']:.3f} majority",
        _number("model_linear_board"),
    ),
    ("- of the raw history", _nothing, _number("history_linear_board")),
    ("linear over random network, s.d. over games", _nothing, _deviations("random_network")),
    ("linear over majority, s.d.", _nothing, _deviations("majority")),
    ("linear over raw history, s.d.", _nothing, _deviations("history")),
    (
        "flip: errors a board, edited (from layer)",
        lambda rows: f"{rows[0]['edit_perfect_null']:.2f} a perfect player's, unedited",
        lambda own: f"{_mean(own, 'edit_error', 2)} ({_all(own, 'edit_layer')})",
    ),
    ("- not edited (null)", _nothing, _number("edit_null", 2)),
    ("- random direction", _nothing, _number("edit_random", 2)),
    ("- another square's direction", _nothing, _number("edit_wrong_square", 2)),
    *(
        (f"{name.replace('_', ' ')} (of a random network)", lambda rows: "1 perfect", _both(name))
        for name in worldmodel.METRICS
    ),
)
