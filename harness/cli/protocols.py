"""`ladder describe --protocol NAME`: where it comes from, how its paper reports, and every setting it makes.

ladder describe --protocol deepmind

best seed of 10, raw accuracy, solved from 0.9
train    batch 128    lengths 1..40    ...
encoder  num_blocks 5    dropout 0.1
"""

import textwrap
from dataclasses import asdict
from typing import Any

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, print_json
from chomsky_ladder.harness.config.protocol import Protocol
from chomsky_ladder.harness.config.protocols import find_protocol


def describe_protocol(name: str, words: list[str], options: type[Any]) -> int:
    """Print a protocol. `words` are parsed as `options`, those of `ladder describe`."""
    protocol = find_protocol(name)
    asked = parse(options, words, prog=f"ladder describe --protocol {name}")
    if asked.json:
        return print_json({"protocol": name, **asdict(protocol)})
    whole = name if protocol.version == 1 else f"{name}, version {protocol.version}"
    print("\n".join(textwrap.wrap(f"{whole}: {protocol.source}.", 100)) + "\n")
    columns(facts(protocol))
    rows = [(str(place), rung.name, rung.task, rung.asks) for place, rung in enumerate(protocol.rungs, start=1)]
    columns(rows, title="rungs")
    for title, rows in settings(protocol).items():
        if rows:
            columns([(key, shown(value)) for key, value in rows.items()], title=title)
    return 0


def facts(protocol: Protocol) -> list[tuple[str, str]]:
    measure = "accuracy above chance" if protocol.measure == "scaled" else "plain accuracy"
    known = [
        ("a cell", f"the {protocol.reports} of {protocol.seeds} seeds, {measure}"),
        ("solved", f"from {protocol.solved:g} of that"),
        ("learning rates", ", ".join(f"{rate:g}" for rate in protocol.rates)),
        ("tasks", ", ".join(protocol.table)),
    ]
    known += [("parameters", f"about {protocol.params:,}, by the width")] if protocol.params else []
    return known + ([("remark", protocol.remark)] if protocol.remark else [])


def settings(protocol: Protocol) -> dict[str, dict[str, Any]]:
    """Group the settings by what they belong to, the common ones first."""
    found = {"train": protocol.train, "eval": protocol.eval, "every model": protocol.model, "every task": protocol.task}
    found |= {f"model {name}": own for name, own in protocol.models.items()}
    found |= {f"task {name}": own for name, own in protocol.tasks.items()}
    found |= {f"rung {rung.name}: {rung.task}": rung.settings for rung in protocol.rungs}
    for case in protocol.cases:
        of = [", ".join(case.models) or "every model", f"on {', '.join(case.tasks)}" if case.tasks else ""]
        of += ["where " + ", ".join(f"{key} is {value}" for key, value in case.where.items())] if case.where else []
        parts = {"train": case.train, "eval": case.eval, "model": case.model}
        own = {f"{part}.{key}": value for part, settings in parts.items() for key, value in settings.items()}
        title = " ".join(filter(None, of))
        found[title] = found.get(title, {}) | own
    return found


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown(own)}" for key, own in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "none"
    return str(value)
