"""Generate the pages that the registries and records already say everything about.

    python docs/generate.py    docs/_generated/: tasks, models, protocols, commands, the Python API and the log by month

`docs/conf.py` calls this before each build. Nothing here is written twice: facts are those of `ladder describe`, help
is that of the commands, and results come from results/records.csv.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import month_pages
import pictured
import reference
from marked import escaped, joined, linked, prose, table, toctree

from chomsky_ladder.harness.cli import protocols as settings_of
from chomsky_ladder.harness.cli.describe import described
from chomsky_ladder.harness.cli.listing import of_these_sources
from chomsky_ladder.harness.config.protocols import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.stats.climb import Climb, Step, climbs_of
from chomsky_ladder.harness.stats.outcomes import MARKS
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.record import stored

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_generated"
CLIMB = "climb-v1"
NOTEBOOKS = tuple(f"_generated/notebooks/{name}" for name in ("tour", "bring_your_own"))
FACTS = ("level", "version", "vocabulary", "family", "year", "paper", "sees", "stepwise", "stackable", "state_growth")
FACTS += ("cost", "parameters", "active_parameters", "counted_at_vocabulary", "state_bytes_at_length_256", "asks")
MEASURED = {"train": "training step", "prefill": "prefill", "decode": "decoding"}


def write() -> dict[str, str]:
    """Write all pages anew. Return what the hand-written pages end with: indexes of the generated ones."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    listing = of_these_sources()
    climbs = climbs_of(stored(ROOT / "results" / "records.csv"), CLIMB)
    costs = read_json(ROOT / "results" / "throughput" / "cpu" / "report.json")
    for task in listing["tasks"]:
        _save(f"tasks/{task['name']}", _task_page(task, listing["levels"], climbs))
    for model in listing["models"]:
        _save(f"models/{model['name']}", _model_page(model, climbs, costs))
    for name in PROTOCOLS:
        _save(f"protocols/{name}", _protocol_page(name))
    _save("cli", reference.commands())
    for name in NOTEBOOKS:
        path = ROOT / "docs" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "scripts" / path.name, path)
    (FOLDER / "api.rst").write_text(reference.api(), "utf-8")
    return {
        "tasks": _index(listing["tasks"], "tasks", "level", listing["levels"]),
        "models": _index(listing["models"], "models", "family"),
        "findings": toctree(f"findings/{name}" for name in pictured.names()),
        "protocols": toctree(f"_generated/protocols/{name}" for name in PROTOCOLS),
        "log": month_pages.write(FOLDER / "log"),
    }


def _task_page(task: dict[str, Any], levels: Mapping[str, str], climbs: Sequence[Climb]) -> str:
    facts = described(find_task(task["name"])(), listed=task)
    window = next((key for key in facts if key.startswith("seen_through")), "")
    low, high = facts["floors_at_lengths"]
    parts = [
        f"# {task['name']}",
        prose(facts["doc"]),
        _facts(facts | {"level": levels[facts["level"]]}),
        f"## Example\n\n```text\n{facts['example']}\n```\n\n`ladder sample {task['name']} --count 5` draws more.",
        f"## Floors\n\nScores without computing, at lengths {low} to {high}. "
        "[Concepts](../../concepts.md#floors) explains them.",
        table(["floor", "accuracy"], facts["floors"].items()),
    ]
    if window:
        parts.append(f"Accuracy from a window, at lengths {window.rsplit('_', 1)[1].replace('..', ' to ')}:")
        parts.append(table(["symbols seen", "accuracy"], facts[window].items()))
    parts += [_theory(facts, "way the state moves"), _settings(facts)]
    if task["protocols"]:
        names = ", ".join(f"[{name}](../protocols/{name}.md)" for name in task["protocols"])
        parts.append(f"## Protocols\n\nThese protocols have the task in their table: {names}.")
    rungs = [rung for rung in PROTOCOLS[CLIMB].rungs if rung.task == task["name"]]
    for rung in rungs:
        steps = [(climb, step) for climb in climbs for step in climb.steps if step.rung.name == rung.name and step.n]
        steps.sort(key=lambda pair: (-pair[1].held, -(_at_longest(pair[1]) or 0)))
        rows = [[_model_link(climb, "../models/"), *_cells(step)] for climb, step in steps]
        parts += [f"## Results: {rung.name}, {rung.asks}", _LEGEND, table(["model", *_COLUMNS], rows)]
    return joined(parts)


def _model_page(model: dict[str, Any], climbs: Sequence[Climb], costs: dict[str, Any]) -> str:
    facts = described(find_model(model["name"])())
    kernels = ", ".join(f"`{name}`" for name in facts["kernels"]) or "none: it runs in plain torch"
    parts = [
        f"# {escaped(model['title'])}",
        prose(facts["doc"]),
        f"Its name in commands is `{model['name']}`.",
        _facts(facts),
        f"## Kernels\n\nFast implementations that serve it on some machine: {kernels}. [Kernels](../../kernels.md)",
        _theory(facts, "what a task asks"),
        _settings(facts),
    ]
    for climb in (climb for climb in climbs if climb.name == model["name"]):
        steps = [step for step in climb.steps if step.n]
        rows = [[f"[{step.rung.name}](../tasks/{step.rung.task}.md)", step.rung.asks, *_cells(step)] for step in steps]
        held = f"It holds {climb.held} of {climb.run} rungs."
        parts += [f"## Climb: {escaped(climb.title)}", f"{held} {_LEGEND}", table(["rung", "asks", *_COLUMNS], rows)]
    return joined([*parts, _cost(model["name"], costs)])


def _protocol_page(name: str) -> str:
    protocol = PROTOCOLS[name]
    rungs = [
        [str(place), rung.name, rung.asks, f"[{rung.task}](../tasks/{rung.task}.md)"]
        for place, rung in enumerate(protocol.rungs, start=1)
    ]
    parts = [f"# {name}", f"Version {protocol.version}. {linked(protocol.source[0].upper() + protocol.source[1:])}."]
    parts.append(table(["", ""], [[fact, escaped(value)] for fact, value in settings_of.facts(protocol)]))
    parts += ["## Rungs", table(["", "rung", "asks", "task"], rungs)] if rungs else []
    for title, own in settings_of.settings(protocol).items():
        rows = [[f"`{key}`", escaped(settings_of.shown(value))] for key, value in own.items()]
        parts += [f"## {escaped(title)}", table(["setting", "value"], rows)] if rows else []
    return joined(parts)


def _facts(facts: Mapping[str, Any]) -> str:
    shown = [(key.replace("_", " "), facts[key]) for key in FACTS if facts.get(key) not in (None, "")]
    if facts.get("transition"):
        shown.append(("transition", facts["transition"]))
    return table(["", ""], [[key, linked(_value(value))] for key, value in shown])


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value[:24]) + (f" .. ({len(value)} in all)" if len(value) > 24 else "")
    return f"{value:,}" if type(value) is int and value > 9999 else str(value)


def _theory(facts: Mapping[str, Any], of: str) -> str:
    rows = [[row["of"], row["word"], linked(row["why"])] for row in facts.get("theory", ())]
    said = "What papers prove. [Concepts](../../concepts.md#theory-marks) says what the words mean."
    return f"## Theory\n\n{said}\n\n{table([of, 'verdict', 'paper and assumption'], rows)}" if rows else ""


def _settings(facts: Mapping[str, Any]) -> str:
    kind = "task" if "level" in facts else "model"
    rows = [
        [
            f"`--{kind}.{each['name'].replace('_', '-')}`",
            escaped(f"`{each['value']!r}`"),
            prose(each["help"]),
        ]
        for each in facts["settings"]
    ]
    return f"## Settings\n\n{table(['setting', 'default', 'meaning'], rows)}" if rows else ""


_COLUMNS = ("outcome", "seeds that hold", "at 225 to 256", "theory")
_LEGEND = (
    "The outcome is that of most seeds. Accuracy is scaled, the median over seeds. [Concepts](../../concepts.md) has "
    "the terms, and [the whole table](../../../results/tables/climb.md) all models."
)


def _cells(step: Step) -> list[str]:
    found = _at_longest(step)
    scaled = "none" if found is None else f"{found:.2f}"
    return [f"{MARKS[step.outcome]} {step.outcome}", f"{step.held} of {step.n}", scaled, step.theory.word]


def _at_longest(step: Step) -> float | None:
    return step.at("225..256")


def _model_link(climb: Climb, folder: str) -> str:
    return f"[{escaped(climb.title)}]({folder}{climb.name}.md)"


def _cost(name: str, costs: dict[str, Any]) -> str:
    wanted = {"model": name, "way": "auto", "precision": "fp32", "length": costs["grid"]["at"]}
    lines = [
        [
            *(MEASURED[row["what"]], row["match"], row["batch"]),
            *(f"{row[key]:,.0f}" if row.get(key) else "none" for key in ("parameters", "state_bytes", "tokens_per_s")),
        ]
        for row in costs["rows"]
        if wanted.items() <= row.items() and row["what"] in MEASURED
    ]
    head = ["what", "matched", "batch", "parameters", "bytes of state", "tokens a second"]
    about = f"Length {costs['grid']['at']}, fp32, one thread of an {costs['device']}."
    return f"## Cost\n\n{about} [Cost](../../cost.md) explains it.\n\n{table(head, lines)}" if lines else ""


def _index(parts: Sequence[dict[str, Any]], kind: str, by: str, titles: Mapping[str, str] | None = None) -> str:
    """List the pages of a kind, group by group."""
    groups = {part[by]: [] for part in parts} if titles is None else {level: [] for level in titles}
    for part in parts:
        groups[part[by]].append(part)
    lines = [f"## Every {kind.removesuffix('s')}", ""]
    for group, own in groups.items():
        rows = [[f"[{part['name']}](_generated/{kind}/{part['name']}.md)", escaped(part["about"])] for part in own]
        lines += [f"### {(titles or {}).get(group, group)}", "", table(["name", "in one sentence"], rows), ""]
    return "\n".join(lines) + toctree(f"_generated/{kind}/{part['name']}" for part in parts)


def _save(name: str, text: str) -> None:
    path = FOLDER / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
