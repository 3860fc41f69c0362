"""Fill the text between the markers of a page of docs/findings/: numbers, scope, command and permalink.

    <!-- cells models="lstm; xlstm*; holds:recall" on="compose A5; recall" at="225..256" -->
    <!-- cells models="psm; para_rnn" on="compose A5; recall" begun="yes" -->     also runs of climbs that are not whole
    <!-- rows file="results/tables/scratchpad.md" of="scratchpad" run="scratchpad-transformer-s0-0123456789" -->
    <!-- horizon of="even_pairs-*" -->
    <!-- drift of="cycle_nav-*; word_problem-*" protocol="climb-v2" at="40; 80; 9999" -->
    <!-- rounding -->
    <!-- ablation of="hybrid (short_conv=4, settings*" -->
    <!-- blocks -->
    <!-- regular -->
    <!-- begun of="word_problem-psm-*" protocol="climb-v2" at="40..64; 225..256; 512" -->
    <!-- finding of="corner" -->

Each ends with `<!-- /cells -->`, or the like. `scripts/shown_numbers.py` fills them, so a page has the numbers of the
committed records. `on` names rungs of a climb, or tasks; by default all. `at` may name several ranges of lengths, `all`
(the test's lengths) and `training`. `figure` names the picture beside it, which docs/generate.py draws.
"""

import json
import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase

import finding_inside
import finding_regular
import finding_sentences
from finding_parts import (
    CLIMB,
    ROOT,
    Shown,
    address,
    as_table,
    climbs_under,
    escaped,
    records_there,
    runs_under_way,
    shell,
)

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import Climb, Step, longest
from chomsky_ladder.harness.stats.outcomes import LEARNT, MARKS
from chomsky_ladder.harness.stats.view import Cell, training_lengths
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of

KINDS = "cells|rows|horizon|drift|rounding|ablation|blocks|regular|begun|finding"
MARKED = re.compile(rf"<!-- (?P<kind>{KINDS}) (?P<words>[^\n]*?) ?-->\n.*?<!-- /(?P=kind) -->", re.DOTALL)
_WHOLE = {"training": "in_distribution", "all": "test"}  # columns of a record


def filled(text: str) -> str:
    """Return a page with the numbers of the committed records."""
    return MARKED.sub(_filled, text)


def _filled(match: re.Match[str]) -> str:
    makers = {"cells": _cells, "rows": _rows, "begun": _begun, "regular": finding_regular.regular}
    makers |= {kind: getattr(finding_inside, kind) for kind in ("horizon", "drift", "rounding", "ablation", "blocks")}
    make = makers.get(match["kind"], _sentence)
    opening = f"<!-- {' '.join(filter(None, (match['kind'], match['words'])))} -->"
    return f"{opening}\n\n{make(Shown.of(match['words']))}\n\n<!-- /{match['kind']} -->"


def models_of(shown: Shown) -> list[str]:
    """Return the labels that a marker names, in its order; those that hold a rung are the highest climbers first."""
    labels = [one.model for one in shown.climbs] or sorted({one.stats.model for one in shown.found})
    found: list[str] = []
    for word in shown.listed("models") or ["*"]:
        if word.startswith("holds:"):
            own = [one.model for one in shown.climbs if _step(one, word.removeprefix("holds:")).holds]
        else:
            own = [label for label in labels if label == word or fnmatchcase(label, word.replace("[", "[[]"))]
        assert own, f"no model of {shown.protocol} is {word}"
        found += [label for label in own if label not in found]
    return found


def tasks_of(shown: Shown) -> list[str]:
    """Return the labels of the tasks that a marker names, by rung or as they are."""
    climbs = shown.climbs
    if not climbs:
        return shown.listed("on")
    steps = [_step(climbs[0], name) for name in shown.listed("on")]
    return [step.cell.stats.task for step in steps if step.cell]


def _step(climb: Climb, rung: str) -> Step:
    return next(step for step in climb.steps if step.rung.name == rung)


def _cells(shown: Shown) -> str:
    climbs = {one.model: one for one in shown.climbs}
    by_place = {(cell.stats.model, cell.stats.task): cell for cell in shown.found}
    known = [step.rung.name for step in next(iter(climbs.values())).steps] if climbs else []
    columns = shown.listed("on") or known or list(dict.fromkeys(task for _, task in by_place))
    ranges = shown.listed("at") or [longest(PROTOCOLS[shown.found[0].stats.identity.protocol_name])]
    rows, first = [], None
    for model in models_of(shown):
        row = []
        for column in columns:
            step = _step(climbs[model], column) if climbs else None
            cell = step.cell if step else by_place.get((model, column))
            first = first or cell
            row += [_entry(cell, step if at == ranges[0] else None, at) for at in ranges]
        is_whole = climbs and "begun" not in shown.words  # else the title says which part it is
        title = climbs[model].title if is_whole else next(c.stats.title for (m, _), c in by_place.items() if m == model)
        rows.append([escaped(title), *row])
    assert first is not None
    heads = [
        f"{escaped(name)}, {_named(at)}" if len(ranges) > 1 else escaped(name) for name in columns for at in ranges
    ]
    if shown.words.get("count"):
        held = [sum(_step(one, name).holds for one in climbs.values()) for name in columns]
        rows.append([f"*models that hold it, of {len(climbs)}*", *map(str, held)])
    where = "" if len(ranges) > 1 else f" at lengths {_named(ranges[0])}"
    legend = f"Scaled accuracy{where}, one number a seed."
    if climbs:
        legend += f" ● held: most seeds at {SOLVED} or more. ◐ learnt (at {LEARNT} in training) and lost. ○ not learnt."
        legend += " ✓ theory says can. ✗ cannot."
    return "\n\n".join([as_table(["model", *heads], rows), legend, _scope(shown, columns), _again(shown, first)])


def _named(at: str) -> str:
    return {"all": "all test lengths"}.get(at, at.replace("..", " to "))


def _entry(cell: Cell | None, step: Step | None, at: str) -> str:
    if cell is None or not cell.runs:
        return "–"
    if at in _WHOLE:
        values = [cell.scaled(run[_WHOLE[at]]) for run in cell.runs]
    else:
        values = [
            cell.scaled((json.loads(run["test_bins"]) | json.loads(run["extrapolation"])).get(at)) for run in cell.runs
        ]
    numbers = " ".join("–" if value is None else f"{round(value, 2) + 0.0:.2f}" for value in values)
    if step is None:
        return numbers
    sign = {"can": " ✓", "cannot": " ✗"}.get(step.theory.word, "")
    return f"{MARKS[step.outcome]} {numbers}{sign}"


def _scope(shown: Shown, columns: Sequence[str]) -> str:
    """Say what was trained: size, steps, strings, seeds, learning rates."""
    models, found = models_of(shown), shown.found
    climbs = {one.model: one for one in shown.climbs}
    chosen = [_step(climbs[model], name).cell for model in models for name in columns] if climbs else found
    cells = [
        cell
        for cell in chosen
        if cell and cell.runs and cell.stats.model in models and (climbs or cell.stats.task in columns)
    ]
    runs, identity = [run for cell in cells for run in cell.tried], cells[0].stats.identity
    preset = PROTOCOLS[identity.protocol_name]
    sizes = sorted({int(run["parameters"]) for run in runs})
    steps = int(identity.settings.get("train.steps", preset.train.get("steps", 0)))
    batch = identity.settings.get("train.batch", preset.train.get("batch"))
    trained = training_lengths(identity)
    said = [
        f"protocol `{shown.protocol}`",
        f"{sizes[0]:,} to {sizes[-1]:,} parameters" if len(sizes) > 1 else f"{sizes[0]:,} parameters",
    ]
    said.append(
        f"{steps:,} steps of {batch} strings of length {trained[0]} to {trained[1]}"
        if trained
        else f"{steps:,} steps of {batch} strings"
    )
    seeds = sorted({run["seed"] for run in runs})
    said.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    rates = sorted({run["lr"] for run in runs})
    said.append(
        f"learning rates {', '.join(f'{rate:g}' for rate in rates)}"
        if len(rates) > 1
        else f"learning rate {rates[0]:g}"
    )
    return f"Scope: {'; '.join(said)}."


def _again(shown: Shown, cell: Cell) -> str:
    """Return the commands that make one cell and the table again, and the cell's address on the page.

    Of runs under way there is no page yet, and a climb makes them again.
    """
    if "begun" in shown.words:
        return shell([shown.words["again"]])
    run = min(cell.runs, key=lambda run: run["seed"])
    kind = "--kind climb " if shown.climbs else ""
    models = " ".join(shlex.quote(model) for model in models_of(shown)[:4])
    table = f"ladder table {kind}--results published --protocol {shlex.quote(shown.protocol)} --models {models}"
    return "\n\n".join([shell([f"ladder reproduce {run['run_id']}", table]), address(cell)])


def _rows(shown: Shown) -> str:
    """Copy the rows of a committed table that match a pattern, with the table's head."""
    lines = (ROOT / shown.words["file"]).read_text("utf-8").splitlines()
    section = shown.words.get("under", "")
    start = next(i for i, line in enumerate(lines) if line.startswith("#") and section in line) if section else 0
    first = next(i for i in range(start, len(lines)) if lines[i].startswith("| "))
    after = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    head, rule, *body = lines[first:after]
    named = {line.split(" | ")[0]: line for line in reversed(body)}  # for rows with one name, the first
    kept = [line for line in body if line is named[line.split(" | ")[0]] or "of" not in shown.words]
    kept = [line for line in kept if re.search(shown.words.get("of", ""), line.split(" | ")[0])]
    assert kept, shown.words
    if shown.words.get("total"):
        columns = zip(*(line.strip("| ").split(" | ")[1:] for line in kept), strict=True)
        kept.append(f"| *all* | {' | '.join(str(sum(map(int, column))) for column in columns)} |")
    parts = ["\n".join([head, rule, *kept]), f"Scope: {shown.words['scope']}." if "scope" in shown.words else ""]
    commands = [shown.words["again"]] if "again" in shown.words else []
    parts += [shell(commands) if commands else ""]
    return "\n\n".join(part for part in parts if part)


def _begun(shown: Shown) -> str:
    """List the accuracy of runs whose climb is not whole yet; `at` names ranges of lengths."""
    records = runs_under_way()[runs_under_way()["protocol"] == shown.protocol]
    kept = records[[any(fnmatchcase(str(run_id), one) for one in shown.listed("of")) for run_id in records.index]]
    rows, at = [], shown.listed("at")
    for run_id, run in kept.iterrows():
        title = escaped(title_of(Identity.of(run.to_dict() | {"run_id": run_id})))
        scores = json.loads(run["test_bins"]) | json.loads(run["extrapolation"])
        shares = [run["in_distribution"], *(scores[where] for where in at)]
        rows.append([title, run["task"], f"{run['lr']:g}", str(run["seed"]), *(f"{share:.2f}" for share in shares)])
    head = ["model", "task", "learning rate", "seed", "in training", *(where.replace("..", " to ") for where in at)]
    scope = f"Accuracy by length. Scope: protocol `{shown.protocol}`, whose table is under way; "
    scope += f"{kept['parameters'].min():,} to {kept['parameters'].max():,} parameters; {kept['steps'].max():,} steps."
    again = [shown.words["again"]] if "again" in shown.words else []
    parts = [as_table(head, sorted(rows)), scope, shell(again) if again else ""]
    return "\n\n".join(filter(None, parts))


def _sentence(shown: Shown) -> str:
    """Return the sentence of a finding."""
    return finding_sentences.sentence(shown.words["of"], records_there(), climbs_under(CLIMB))
