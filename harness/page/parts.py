"""Facts about tasks and models that stand beside their results: the listing, what is proven, the papers.

The listing comes from above, for it takes torch to make: `ladder page` and scripts/publish.py hand it in. Without one
the page has the names that the records have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chomsky_ladder.harness.config.theory import DEMANDS, NO_RESULT, TRANSITIONS, verdict
from chomsky_ladder.harness.page.cells import Sheet
from chomsky_ladder.harness.stats.looks import COLOURS, FAMILY, OTHER, looks
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.literature import entries, protocol_text

_OF_TASKS = ("level", "version", "about", "doc", "example", "floors", "protocols", "demand", "facts", "automaton")
_OF_MODELS = ("family", "year", "paper", "about", "doc", "title", "transition", "parameters", "cost", "state_growth")
_OF_MODELS += ("counted_at_vocabulary", "state_bytes_at_length_256", "stepwise", "kernels")


def listed(listing: Mapping[str, Any]) -> dict[str, Any]:
    """Select from the listing the fields that the views of a task and of a model show."""
    tasks = {each["name"]: {key: each[key] for key in _OF_TASKS if key in each} for each in listing.get("tasks", ())}
    models = {each["name"]: {key: each[key] for key in _OF_MODELS if key in each} for each in listing.get("models", ())}
    return {"tasks": tasks, "models": models, "lengths": list(listing.get("floor_lengths", ()))}


def names(sheets: Sequence[Sheet], others: Sequence[str]) -> dict[str, Any]:
    """Return the title, name, family and look of every model label, and the name of every task label."""
    models: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    for sheet in sheets:
        for (kind, label), (name, _) in sheet.named.items():
            if kind == "task":
                tasks[label] = {"name": name.partition(" v")[0]}
            else:
                models[label] = {"title": sheet.titles[label], **_named(name)}
    for label in others:
        name = Identity.of({"protocol": "", "task": "", "model": label}).model_name
        models.setdefault(label, {"title": label, **_named(name)})
    looked = looks(models)
    for label, entry in models.items():
        entry["look"] = list(looked[label])
    return {"models": dict(sorted(models.items())), "tasks": dict(sorted(tasks.items()))}


def families() -> dict[str, str]:
    """Return each family with its colour, in the order of the chips."""
    return {**COLOURS, OTHER: "#4D4D4D"}


def theory(transitions: Sequence[str]) -> dict[str, Any]:
    """Return the words and verdicts of these transitions on every demand, without those that nobody has a result on."""
    found = {
        transition: {
            demand: [one.word, one.why] for demand in DEMANDS if (one := verdict(transition, demand)) != NO_RESULT
        }
        for transition in sorted(set(transitions) - {""})
    }
    return {"transitions": TRANSITIONS, "demands": DEMANDS, "verdicts": found}


def sources() -> list[dict[str, str]]:
    """Return the papers whose values stand beside a climb's, each with the protocol of its runs."""
    return [{"where": entry["where"], "protocol": protocol_text(name)} for name, entry in entries().items()]


def _named(name: str) -> dict[str, str]:
    bare = name.partition(" v")[0]
    return {"name": bare, "family": FAMILY.get(bare, OTHER)}
