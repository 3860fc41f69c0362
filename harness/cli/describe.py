"""Tasks, models, runs and machines as trees of plain values, for `ladder` to print and for programs to read."""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.cli.help import docs_of
from chomsky_ladder.harness.config.lengths import ATTENTION, BY_DEMAND, predicted
from chomsky_ladder.harness.config.parts import MOST_DRAWN, plain
from chomsky_ladder.harness.config.protocols import PROTOCOLS
from chomsky_ladder.harness.config.registry import all_models, all_tasks, problems
from chomsky_ladder.harness.config.theory import DEMANDS, JOIN, NO_RESULT, TRANSITIONS, Verdict, verdict
from chomsky_ladder.harness.conform.task import GUESSED
from chomsky_ladder.harness.inside.automata import machine_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.train import machine as this_machine
from chomsky_ladder.harness.train.build import STATE_LENGTH, weigh_state
from chomsky_ladder.harness.train.samples import MOST, sample
from chomsky_ladder.models.backbone import count_parameters
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.kernels.choose import available
from chomsky_ladder.models.kernels.kernel import Kernel
from chomsky_ladder.tasks.base import LEVELS, Floors, Task
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.windows import windowed

CAPABILITIES = ("sees", "stepwise", "stackable", "state_growth", "cost")
FLOOR_LENGTHS = (40, 256)  # those of the published evaluation
LONGEST = (225, 256)
WINDOWS = (8, 31, 127)
MOST_COUNTED = 6  # lengths
EXAMPLE_WIDTH = 30  # tokens of an example that still read well in a line
MOST_STATES, MOST_SYMBOLS = 12, 8  # of an automaton that still reads well
EXAMPLE_VOCAB = 12  # a model is weighed with the vocabulary of the largest of the common tasks


def listing(weighed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything registered, one entry a name; conflicts are among the problems.

    An entry of an earlier listing is taken as it is, but for what a plugin may add to it.
    """
    tasks, models = ({part["name"]: part for part in (weighed or {}).get(kind, ())} for kind in ("tasks", "models"))
    return {
        "tasks": [
            (tasks.get(name) or _listed_task(cls))
            | {"protocols": [key for key, protocol in PROTOCOLS.items() if name in protocol.table]}
            for name, (cls, *_) in sorted(all_tasks().items())
        ],
        "models": [
            (models.get(name) or _listed_model(cls))
            | {"kernels": [kernel.name for kernel in available() if name in kernel.serves]}
            for name, (cls, *_) in sorted(all_models().items())
        ],
        "protocols": {name: protocol.source for name, protocol in PROTOCOLS.items()},
        "levels": LEVELS,
        "floor_lengths": FLOOR_LENGTHS,
        "problems": problems(),
    }


def _listed_task(cls: type[Task]) -> dict[str, Any]:
    task = cls()
    return {
        "name": task.name,
        "level": task.level,
        "version": task.version,
        "about": about(cls),
        **_task_in_short(task),
        "doc": _doc(cls),
        "demand": task.demand,
        "facts": task.facts,
        "automaton": drawable(task),
    }


def _listed_model(cls: type[ModelConfig]) -> dict[str, Any]:
    config = cls()
    return {
        "name": config.name,
        **{name: getattr(config, name) for name in ("family", "year", "paper", *CAPABILITIES)},
        **_model_size(config),
        "about": about(cls),
        "doc": _doc(cls),
        "title": title_of(Identity("", "", config.name, {})),
        "transition": config.transition,
    }


def described(part: Task | ModelConfig, *, listed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One task or model: its module's words, its facts and its settings.

    Floors and the example of a task, which may take a minute, are taken from its entry in a listing if that is given.
    """
    facts = _task_facts(part, listed) if isinstance(part, Task) else _model_facts(part)
    return {"name": part.name, "version": part.version, "doc": _doc(type(part)), **facts, "settings": settings(part)}


def _task_facts(task: Task, listed: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "level": task.level,
        "vocabulary": list(task.vocab),
        **({name: listed[name] for name in ("example", "floors")} if listed else _task_in_short(task)),
        "floors_at_lengths": list(task.own_lengths or FLOOR_LENGTHS),
        **_through_windows(task),
        **task.facts,
        **_theory_of(task),
    }


def _task_in_short(task: Task) -> dict[str, Any]:
    legal = task.legal_lengths(*(task.own_lengths or FLOOR_LENGTHS))
    some = task.legal_lengths(1, 12) or task.legal_lengths(1, 256)[:1]
    readable = [length for length in some if task.positions(length) <= EXAMPLE_WIDTH] or some[:1]
    example = next(samples(task, count=1, length=readable[-1])) if readable else None
    return {
        "example": f"{' '.join(example['input'])}  ->  {' '.join(example['answer'])}" if example else "none",
        "floors": {name: round(value, 4) for name, value in _floors(task, legal)._asdict().items()} if legal else {},
    }


def _floors(task: Task, legal: Sequence[int]) -> Floors:
    """Return the floors. Where strings are counted, use some lengths, evenly spread: all of them take a minute."""
    is_counted = type(task).answer_law is Task.answer_law
    return task.floors(legal[:: -(-len(legal) // MOST_COUNTED)] if is_counted and legal else legal)


def _through_windows(task: Task) -> dict[str, Any]:
    """Return the accuracy that a window of the longest strings admits, where it can be told."""
    scores = {window: windowed(task, LONGEST, window=window) for window in WINDOWS}
    told = {f"last {window}": round(score, 2) for window, score in scores.items() if score is not None}
    return {f"seen_through_a_window_at_{LONGEST[0]}..{LONGEST[1]}": told} if told else {}


def _model_facts(config: ModelConfig) -> dict[str, Any]:
    return {
        **{name: getattr(config, name) for name in ("family", "year", "paper", *CAPABILITIES)},
        **_model_size(config),
        **_theory_of(config),
    }


def _theory_of(part: Task | ModelConfig) -> dict[str, Any]:
    """Return what is proven: for a model by what languages ask, for a task by how states move."""
    if isinstance(part, Task):
        if not part.demand:
            return {"asks": "not declared"}
        found = {transition: verdict(transition, part.demand) for transition in TRANSITIONS}
        asks = f"{part.demand}: {DEMANDS[part.demand]}"
        at_length = f"{predicted(part).word}: {predicted(part).why}"
        return {"asks": asks, "theory": _rows(found), "attention_beyond_its_training_lengths": at_length}
    if not part.moves:
        return {"transition": "not declared"}
    found = {demand: verdict(part.moves, demand, model=part.name) for demand in DEMANDS}
    words = "; ".join(TRANSITIONS.get(kind, kind) for kind in part.moves.split(JOIN))
    about = {"transition": f"{part.moves}: {words}", "theory": _rows(found)}
    if part.moves in ATTENTION:
        at_length = [{"of": demand, **one._asdict()} for demand, one in BY_DEMAND.items()]
        about["beyond_its_training_lengths"] = at_length
    return about


def _rows(found: dict[str, Verdict]) -> list[dict[str, str]]:
    """Return what is proven, then what is open, without what nobody has a result on."""
    kept = {name: one for name, one in found.items() if one != NO_RESULT}
    order = ("can", "cannot", "open")
    return [{"of": name, **one._asdict()} for name, one in sorted(kept.items(), key=lambda it: order.index(it[1].word))]


def _model_size(config: ModelConfig) -> dict[str, Any]:
    model = config.build(EXAMPLE_VOCAB)
    total = count_parameters(model)
    return {
        "parameters": total,
        **({"active_parameters": total - config.idle_parameters} if config.idle_parameters else {}),
        "counted_at_vocabulary": EXAMPLE_VOCAB,
        f"state_bytes_at_length_{STATE_LENGTH}": weigh_state(model) if config.stepwise else None,
        "kernels": {kernel.name: kernel.missing() for kernel in available() if config.name in kernel.serves},
    }


def settings(part: Any) -> list[dict[str, Any]]:
    """Return every field with its value and the sentence under it in the source."""
    help_texts, values = docs_of(type(part)), plain(part)
    return [{"name": f.name, "value": values[f.name], "help": help_texts.get(f.name, "")} for f in fields(part)]


def samples(task: Task, *, count: int, length: int = 0, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Strings in readable symbols; of one length, or of any from 3 to 20 (else the shortest there are)."""
    if length < 0:
        raise ValueError(f"--length must not be negative: {length}")
    if not 1 <= count <= MOST:
        raise ValueError(f"--count must lie in 1..{MOST}, not {count}")
    if count * length > MOST_DRAWN:
        raise ValueError(f"--count {count} of --length {length:,} is more than {MOST_DRAWN:,} positions in all")
    yield from sample(task, count, length=length, seed=seed).rows()


def outcome(result: dict[str, Any], results: Path) -> str:
    """Describe a finished run in a few lines."""
    place = results / "runs" / result["run_id"]
    if result["status"] == "diverged":
        return f"{result['run_id']} diverged at step {result['steps']}: loss {result['loss']}  ({place})"
    lines = [f"{result['run_id']}: {result['steps']} steps{', stopped early' if result['stopped_early'] else ''}"]
    for split in ("test", "validation", "in_distribution"):
        score = result[split]
        of_chance = "" if score["scaled"] is None else f"  scaled {score['scaled']:.4f}"
        lines.append(f"  {split:16} accuracy {score['accuracy']:.4f}{of_chance}  exact {score['exact']:.4f}")
    bins = {name: value for name, value in result["test"]["bins"].items() if value is not None}
    if bins:
        lines.append("  by length        " + "  ".join(f"{name} {value:.3f}" for name, value in bins.items()))
    longer = {length: score["accuracy"] for length, score in result["extrapolation"].items()}
    if longer:
        lines.append("  longer           " + "  ".join(f"{length} {value:.3f}" for length, value in longer.items()))
    lines.append("  floors           " + "  ".join(f"{name} {value:.4f}" for name, value in result["floors"].items()))
    if math.isnan(result["test"]["loss"]):
        lines.append("  caution          logits of some test strings are not numbers: their answers count as wrong")
    guess = max(result["floors"]["best_constant"], result["floors"]["content_free"])
    if guess > GUESSED:
        lines.append(f"  caution          a guess without reading scores {guess:.2f} here, so scaled says nothing")
    return "\n".join([*lines, f"  record           {place}"])


def _served(kernel: Kernel) -> str:
    return shown(kernel.serves) if kernel.serves else "layers of any model"


def machine() -> dict[str, Any]:
    """This machine: devices, kernels and why the others are missing, versions."""
    made = this_machine.provenance()
    cuda = {f"cuda:{index}": torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())} or {
        "cuda": "none"
    }
    return {
        "devices": {"cpu": f"{made['machine']['processor']}, {torch.backends.cpu.get_cpu_capability()}", **cuda},
        "kernels": {
            kernel.name: f"missing: {kernel.missing()}" if kernel.missing() else f"ready, for {_served(kernel)}"
            for kernel in available()
        },
        "versions": {"python": made["python"], **made["packages"], "commit": made["commit"], **_changed(made["dirty"])},
        "plugins": {str(number): problem for number, problem in enumerate(problems(), start=1)} or {"problems": "none"},
    }


def _changed(dirty: bool | None) -> dict[str, bool]:
    """Return whether the code differs from its commit; nothing where there is no git to tell."""
    return {} if dirty is None else {"dirty": dirty}


def drawable(task: Task) -> dict[str, Any] | None:
    """Return the automaton behind a task, small enough to draw: where symbols lead from the start and from each
    state."""
    try:
        machine = machine_of(task)
    except (NotImplementedError, ValueError):  # it has none
        return None
    if len(machine.after) > MOST_STATES or len(machine.symbols) > MOST_SYMBOLS:
        return None
    assert isinstance(task, Classification)
    first = task.state(torch.tensor([[symbol] for symbol in machine.symbols]))[:, -1].tolist()
    return {
        "symbols": [task.vocab[symbol] for symbol in machine.symbols],
        "first": [machine.number[tuple(parts)] for parts in first],
        "after": [[leads[symbol] for symbol in machine.symbols] for leads in machine.after],
        "answers": [task.vocab[answer] for answer in machine.answer],
    }


def _doc(cls: type) -> str:
    """Return all that the module of a class says of it."""
    return inspect.cleandoc(_written(cls))


def about(cls: type) -> str:
    """Return the first sentence of the module of a class."""
    return " ".join(_written(cls).strip().split("\n\n")[0].split())


def _written(cls: type) -> str:
    """Return the docstring that somebody wrote, and not the signature that `dataclass` puts in its place."""
    own = cls.__doc__ or ""
    return inspect.getmodule(cls).__doc__ or ("" if own.startswith(f"{cls.__name__}(") else own) or "no documentation"


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {shown(item) or 'ready'}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        more = f" .. ({len(value)} in all)" if len(value) > 40 else ""
        return " ".join(map(str, value[:24] if more else value)) + more
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)
