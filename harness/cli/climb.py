"""`ladder climb`: how far up does a model get? All rungs trained and scored, and a report card."""

import json
import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.cli.engines import parse_with_engine
from chomsky_ladder.harness.cli.options import asks_for_help, take_flag
from chomsky_ladder.harness.cli.say import say_warnings
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.store.colours import in_colour

CLIMB = "climb-v1"


@dataclass
class ClimbOptions:
    """Train and score a model on every rung of a climb, with every learning rate and seed, and write its report card.

    Runs that are done, here or in the published records, are not trained again. Stopped runs go on. The card is
    printed, and written to RESULTS/climb/MODEL/ as Markdown, HTML and JSON, with its picture as PNG and SVG and the
    numbers as CSV.

    --rungs, --seeds and --steps make a part of the climb. Its card says what is left out, and shows no reference
    models. The whole climb later uses those of its runs that have the protocol's steps.

    --all in place of a MODEL climbs with every model of the reference table in turn. After the MODEL, --help also lists
    its own settings, --model.*.
    """

    exec: Exec = field(default_factory=Exec)
    protocol: str = CLIMB
    """A protocol with rungs."""
    rungs: tuple[str, ...] = ()
    """Train these rungs only, by rung or task: parity sort, or parity,sort."""
    seeds: int = 0
    """Seeds for each cell; 0 for the protocol's number. Fewer make a part of the climb."""
    steps: int = 0
    """Steps of a run; 0 for the protocol's number. Other runs result, which no table mixes with the climb."""
    against: tuple[str, ...] = ()
    """Reference models to show beside yours, by name or label; without it, the two nearest."""
    reference: Path | None = None
    """A records.csv with the reference models; without it, that of the results folder and the published one. An
    installed package contains the published one."""
    again: bool = False
    """Also train runs that are in the published records. Without it they count as done."""
    engine: str = "serial"
    """serial, processes (several packs at once here), ray (a cluster) or a plugin's; `--engine ray --help`."""
    decisive: bool = False
    """With --all: eight models on six rungs, the cells that decide most of what is asked."""
    plan: bool = False
    """Print what is left to do and the hours it will take. Train nothing."""
    card: bool = False
    """Write the card from the runs that exist. Train nothing."""
    quiet: bool = False
    """Print only the card."""
    json: bool = False
    """Print the card as JSON."""


def climb(words: list[str]) -> int:
    every = take_flag(words, "--all")
    names = [] if not words or words[0].startswith("-") else [words.pop(0)]
    if asks_for_help(words) and not names:
        parse_with_engine(ClimbOptions, words, prog="ladder climb MODEL")
    if len(names) + every != 1:
        raise ValueError("which model? `ladder climb MODEL`, or --all for the reference table (`ladder list` has all)")
    if every:
        return _all(words)
    options, engine, model = _parsed(names[0], words)
    if options.decisive:
        raise ValueError("--decisive chooses models and rungs, so it goes with --all")
    return _climb(model, options, engine, again=["ladder", "climb", names[0], *words])


def _all(words: list[str]) -> int:
    from chomsky_ladder.harness.climb.runs import climber
    from chomsky_ladder.harness.config.registry import find_model
    from chomsky_ladder.harness.config.rows import DECISIVE, DECISIVE_RUNGS, rows_of
    from chomsky_ladder.harness.conform.say import said_of
    from chomsky_ladder.harness.store.places import refuse_unwritable

    options, engine = parse_with_engine(ClimbOptions, words, prog="ladder climb --all")
    if options.decisive:
        options = replace(options, rungs=options.rungs or DECISIVE_RUNGS)
    _part(options)
    _refuse_unknown(options, _reference(options)[1])
    refuse_unwritable(options.exec.results)
    codes, faults = [], {}
    for name, changes in DECISIVE if options.decisive else rows_of(options.protocol):
        try:
            model = climber(find_model(name), changes, protocol=options.protocol)
            codes.append(_climb(model, options, engine, again=["ladder", "climb", "--all", *words]))
        except Exception as error:  # of one model, in any way: the others climb all the same
            faults[" ".join([name, *map("=".join, changes.items())])] = said_of(error)
    for name, said in faults.items():
        print(f"ladder: {name}: failed: {said}", file=sys.stderr)
    return 1 if faults else max(codes)


def _parsed(name: str, words: list[str]) -> tuple[Any, Any, Any]:
    """Return the options, the engine's options, and the model at the protocol's size."""
    from chomsky_ladder.harness.cli.arguments import at_size_of, with_climber

    options, engine = parse_with_engine(with_climber(ClimbOptions, name, words), words, prog=f"ladder climb {name}")
    return options, engine, at_size_of(options.protocol, options.model, words)


def _part(options: Any) -> Any:
    """Return the part of the climb that is asked for; no reference row stands beside a part."""
    from chomsky_ladder.harness.climb.part import Part
    from chomsky_ladder.harness.climb.runs import climb_protocol

    protocol = climb_protocol(options.protocol)
    part = Part.of(protocol, rungs=",".join(options.rungs), seeds=options.seeds, steps=options.steps)
    if part.about and options.against:
        raise ValueError(f"--against compares whole climbs, and this is {part.about}: leave it out")
    return part


def _climb(model: Any, options: Any, engine: Any, *, again: list[str]) -> int:
    from chomsky_ladder.harness.climb.runs import climb_runs, fresh_candidates
    from chomsky_ladder.harness.config.protocols import identity_of
    from chomsky_ladder.harness.store.places import refuse_published
    from chomsky_ladder.harness.sweep.sources import sources
    from chomsky_ladder.harness.sweep.sweep import carry_out, left_of

    part = _part(options)
    runs = climb_runs(model, protocol=options.protocol, part=part)
    label, whole = identity_of(runs[0]).model, runs
    refuse_published(options.exec.results)
    records, reference = _reference(options)
    _refuse_unknown(options, reference)
    settings = replace(options.exec, wandb_group=options.exec.wandb_group or f"climb {label}")
    code = 0
    if not options.card:
        if not options.again:
            runs = _not_recorded(label, runs, _known(records), settings.results)
        tuned = not left_of(runs, settings.results)
        fresh = _fresh(label, whole, records, options, part.report) if part.report and tuned else []
        todo = left_of([*runs, *fresh], settings.results)
        if todo and not (options.quiet and not options.plan):
            one_rate = [run for run in whole if run.train.lr == whole[0].train.lr]
            to_come = [] if tuned else fresh_candidates(one_rate, part.report)
            _say_plan(f"{label}, {part.about}" if part.about else label, [*runs, *fresh, *to_come], settings)
        if options.plan:
            if not todo:
                print(f"{label}: nothing is left to do", file=sys.stderr)
            return 0
        again += [word for source in sources(whole[:1]) for word in ("--plugin", source)]
        how = {"engine": engine, "quiet": options.quiet, "again": shlex.join(again)}
        report = carry_out([*runs, *fresh], settings, **how)
        if part.report and report.complete and not tuned:
            fresh = _fresh(label, whole, records, options, part.report)
            report = report.and_then(carry_out(fresh, settings, **how))
        code = 0 if report.complete else 1
        if report.of("held") and not report.done:
            return code  # it was said who trains them, and there is nothing to show
        records, reference = _reference(options)
    if part.about:
        return max(code, _show_part(part, [*whole, *fresh_candidates(whole, part.report)], model, records, options))
    return max(code, _show(label, model, records, reference, options))


def _fresh(label: str, runs: list[Any], records: Any, options: Any, count: int) -> list[Any]:
    """The fresh seeds of each rung at the rate that its other runs chose, here or in the published records."""
    from chomsky_ladder.harness.sweep.report_seeds import fresh_runs

    known = _known(records)
    fresh, without = fresh_runs(runs, options.exec.results, count, known=known)
    if without:
        print(f"{label}: no seed finished, so none is reported: {'; '.join(without)}", file=sys.stderr)
    return fresh if options.again else _not_recorded(label, fresh, known, options.exec.results)


def _known(records: Any) -> dict[str, Any]:
    from chomsky_ladder.harness.stats.rows import as_rows
    from chomsky_ladder.harness.sweep.on_record import by_id

    return by_id(as_rows(records)) if len(records) else {}


def _not_recorded(label: str, runs: list[Any], known: dict[str, Any], results: Path) -> list[Any]:
    """Return the runs that are not on record elsewhere with the code of today, and say how many are."""
    from chomsky_ladder.harness.sweep.on_record import without_recorded

    left = without_recorded(runs, known, results)
    if len(left) < len(runs):
        said = f"{label}: {len(runs) - len(left)} of {len(runs)} runs are on record; --again trains them here"
        print(said, file=sys.stderr)
    return left


def _say_plan(label: str, runs: list[Any], settings: Exec) -> None:
    """Print what is left and the hours it takes, from a few measured steps of each shape."""
    from chomsky_ladder.harness.cli.say import duration
    from chomsky_ladder.harness.sweep.plan import plan, save

    parts = plan(runs, settings)
    save(parts, settings.results)
    left = sum(len(part.runs) for part in parts)
    seconds = sum(part.seconds + part.preparing for part in parts)
    cores = max(1, (os.cpu_count() or 1) // settings.threads)
    several = f", {duration(seconds / cores)} on {cores} cores (--engine ray)" if cores > 1 else ""
    early = "a run stops early once validation stays perfect. " if runs[0].train.stop_after else ""
    print(
        f"{label}: {left} of {len(runs)} runs to do, at most {duration(seconds)} one after the other{several}; "
        f"{early}Ctrl-C stops it behind a checkpoint, and the same command goes on",
        file=sys.stderr,
    )


def _reference(options: Any) -> tuple[Any, list[Any]]:
    """Return the records of the protocol, the results folder's first, and the climbs among them."""
    import pandas as pd

    from chomsky_ladder.harness.climb import reference
    from chomsky_ladder.harness.stats.climb import climbs_of
    from chomsky_ladder.harness.store.places import published_results
    from chomsky_ladder.harness.store.record import collect_if_any, stored

    own = collect_if_any(options.exec.results)
    frames = [] if own is None else [own]
    published = published_results()
    other = options.reference or (published / "records.csv" if published else reference.FILE)
    if other.exists() and other.resolve() != (options.exec.results / "records.csv").resolve():
        frames.append(stored(other))
    elif options.reference and not options.reference.exists():
        raise ValueError(f"--reference: {options.reference} does not exist")
    if not any(map(len, frames)):
        return pd.DataFrame(), []
    records = pd.concat([frame for frame in frames if len(frame)]).drop_duplicates("run_id")
    return records, climbs_of(records, options.protocol)


def _refuse_unknown(options: Any, reference: list[Any]) -> None:
    from chomsky_ladder.harness.climb.card import named

    for name in options.against:
        named(name, reference)


def _show(label: str, model: Any, records: Any, reference: list[Any], options: Any) -> int:
    """Show the card of a whole climb, beside climbs with all their seeds and those asked for."""
    from chomsky_ladder.harness.climb.card import card
    from chomsky_ladder.harness.climb.runs import climb_runs
    from chomsky_ladder.harness.figures.names import folder_name
    from chomsky_ladder.harness.sweep.sources import sources

    mine = next((one for one in reference if one.model == label), None)
    if mine is None:
        raise ValueError(_nothing(label, options.protocol))
    asked = set(options.against)
    own = records[(records["protocol"] == options.protocol) & (records["model"] == label)]
    say_warnings(own, options.exec.results)
    made = card(
        mine,
        [one for one in reference if one.is_complete or {one.model, one.name} & asked],
        protocol=options.protocol,
        against=options.against,
        seeds=options.seeds,
        hours=_hours(own),
        decoded_per_s=_speed(model, options),
        plugins=sources(climb_runs(model, protocol=options.protocol, seeds=1)[:1]),
    )
    return _write(made, records, options.exec.results / "climb" / folder_name(label), options)


def _show_part(part: Any, runs: list[Any], model: Any, records: Any, options: Any) -> int:
    """Show the card of a part of a climb, from its runs alone."""
    from chomsky_ladder.harness.climb.card import card
    from chomsky_ladder.harness.config.protocols import find_protocol, identity_of
    from chomsky_ladder.harness.figures.names import folder_name
    from chomsky_ladder.harness.stats.climb import part_of
    from chomsky_ladder.harness.sweep.sources import sources

    label = identity_of(runs[0]).model
    own = records[records["run_id"].isin([run.run_id for run in runs])] if len(records) else records
    mine = part_of(own, find_protocol(options.protocol), part.rungs)
    if mine is None:
        raise ValueError(_nothing(f"{label}, {part.about},", options.protocol))
    made = card(
        mine,
        [],
        protocol=options.protocol,
        seeds=part.report or part.seeds,
        hours=_hours(own),
        decoded_per_s=_speed(model, options),
        plugins=sources(runs[:1]),
        part=part.about,
    )
    return _write(made, None, options.exec.results / "climb" / folder_name(label) / folder_name(part.key), options)


def _nothing(what: str, protocol: str) -> str:
    from chomsky_ladder.harness.config.protocols import find_protocol

    run = "fresh seed" if find_protocol(protocol).report else "run"
    return f"no {run} of {what} under {protocol} has finished: the same command without --card goes on"


def _hours(own: Any) -> float:
    """Return the hours of all runs at all learning rates."""
    return float(own[["train_seconds", "score_seconds"]].sum().sum()) / 3600


def _speed(model: Any, options: Any) -> float | None:
    from chomsky_ladder.harness.climb.cost import decoded_per_s
    from chomsky_ladder.harness.train.machine import find_device

    return decoded_per_s(model, find_device(options.exec.device), threads=options.exec.threads)


def _write(made: Any, records: Any, folder: Path, options: Any) -> int:
    """Write the card in every format and to the screen, and draw a picture of a whole climb."""
    from chomsky_ladder.harness.climb import page, text
    from chomsky_ladder.harness.store.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    picture = None if records is None else page.draw(made, records, folder / "card")
    write_atomically(folder / "card.md", text.markdown(made).encode())
    write_atomically(folder / "card.html", page.html(made, picture).encode())
    content = json.dumps(made.plain(), indent=1) + "\n"
    write_atomically(folder / "card.json", content.encode())
    if options.json:
        print(content, end="")
        return 0
    print(text.terminal(made, colour=in_colour(sys.stdout)))
    print(f"written: {folder}/card.html, .md, .json{', .png, .svg, .csv' if picture else ''}")
    return 0
