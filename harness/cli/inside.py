"""`ladder probe` and `ladder intervene`: what a trained model holds in its head, and whether it uses it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import aligned, number, print_json
from chomsky_ladder.harness.inside.settings import InterveneSettings, ProbeSettings
from chomsky_ladder.harness.store.folder import Busy, find_run
from chomsky_ladder.harness.store.places import default_results

_KINDS = {"linear": "linear", "two_layer": "two layers", "none": ""}


@dataclass
class ProbeOptions:
    """Read the task's state (the board, the top of the stack, the parity) from every layer of a trained model.

    Baselines: a random network of the same config, the raw history, the commonest label of each position, shuffled
    labels. Writes probe.json and the fitted probes to the run's folder.
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """Print no progress."""


def probe(words: list[str]) -> int:
    options = parse(ProbeOptions, words, prog="ladder probe")
    from chomsky_ladder.harness.inside.probe import probe_run  # with torch

    folder = find_run(options.results, options.run_id)
    try:
        result = probe_run(folder, options.probe, device=options.device, quiet=options.quiet)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    print(json.dumps(result, indent=1) if options.json else probe_text(result))
    return 0


def probe_text(result: dict[str, Any]) -> str:
    """Yield the table for a person: every layer of the model, and the best layer of each baseline."""
    games = result["games"]
    lines = [
        f"{result['run_id']} at step {result['step']:,}: {games['test']:,} test games, fitted to {games['train']:,}",
        "share of right cells, of whole boards and of occupied cells; * the layer that validation chooses",
    ]
    for view in result["views"]:
        rows = [row for row in result["rows"] if row["view"] == view and (row["chosen"] or row["source"] == "model")]
        lines += ["", view.replace("_", "/")]
        lines += aligned(["", "probe", "layer", "cell", "sd", "board", "occupied"], map(_row, rows))
    lines += ["", "the chosen layer against each baseline, paired over games"]
    heads = ["", "probe", "against", "mean", "sd", "se", "mean/sd", "mean/se"]
    return "\n".join([*lines, *aligned(heads, map(_comparison, result["comparisons"]))])


def _row(row: dict[str, Any]) -> list[str]:
    layer = "" if row["layer"] is None else f"{row['layer']}{' *' if row['chosen'] else ''}"
    values = (row["cell"], row["cell_sd_games"], row["board"], row["occupied"])
    return [row["source"].replace("_", " "), _KINDS[row["probe"]], layer, *map(number, values)]


def _comparison(row: dict[str, Any]) -> list[str]:
    values = (row["mean"], row["sd"], row["se"])
    ratios = ("" if row[key] is None else f"{row[key]:.1f}" for key in ("mean_over_sd", "mean_over_se"))
    names = (row["view"].replace("_", "/"), _KINDS[row["probe"]], row["against"].replace("_", " "))
    return [*names, *map(number, values), *ratios]


@dataclass
class InterveneOptions:
    """Edit one square of the board in a model's stream, along its linear probe, and measure whether its moves follow.

    Run `ladder probe` first. Writes intervene.json to the run's folder.
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    intervene: InterveneSettings = field(default_factory=InterveneSettings)
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """Print no progress."""


def intervene(words: list[str]) -> int:
    options = parse(InterveneOptions, words, prog="ladder intervene")
    from chomsky_ladder.harness.inside.intervene import intervene_run  # with torch

    folder = find_run(options.results, options.run_id)
    try:
        result = intervene_run(folder, options.intervene, device=options.device, quiet=options.quiet)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    print(json.dumps(result, indent=1) if options.json else intervene_text(result))
    return 0


def intervene_text(result: dict[str, Any]) -> str:
    """Yield the table for a person: errors of the model's moves against the edited board, by the edit's first layer."""
    lines = [
        f"{result['run_id']} at step {result['step']:,}: errors (false positives + false negatives) of the likeliest "
        "moves, mean over boards",
        "against the edited board; * the layer that validation chooses, which chooses each layer's strength too",
    ]
    heads = ["from layer", "strength", "edited", "random", "wrong square", "changed squares", "of those random"]
    for name, edit in result["edits"].items():
        cases = edit["cases"]["test"]
        lines += ["", f"{name}: {cases:,} boards; error of the model on its own boards {edit['own_error']['mean']:.3f}"]
        null, changed = edit["null"]["mean"], edit["null_changed"]["mean"]
        lines.append(f"  unedited {null:.3f} (a perfect player's {edit['perfect_null']:.3f}), changed {changed:.3f}")
        rows = []
        for row in edit["layers"]:
            kinds = ("error", "random", "wrong_square", "changed", "random_changed")
            mark = " *" if row["layer"] == edit["best"]["layer"] else ""
            means = [f"{row[kind]['mean']:.3f}" for kind in kinds]
            rows.append([f"{row['layer']}{mark}", f"{row['strength']:g}", *means])
        lines += aligned(heads, rows)
        for row in edit["comparisons"]:
            lines.append(f"  {row['what']}: {row['mean']:.3f} +- {row['se']:.3f} (s.e.)")
        carried = edit["carried"]
        if carried is None:
            lines.append(f"  not carried: {edit['carried_refused']}")
            continue
        lines.append(f"  written once, played on (from layer {carried['layer']}, strength {carried['strength']:g})")
        kinds = ("null", "edited", "random")
        rows = [
            [str(row["moves"]), f"{row['cases']:,}", *(f"{row[kind]['mean']:.3f}" for kind in kinds)]
            for row in carried["after"]
        ]
        lines += aligned(["moves later", "boards", "unedited", "edited", "random"], rows)
    return "\n".join(lines)


@dataclass
class ErrorsOptions:
    """Show where a trained model fails: accuracy by answer slot, confused answers, wrong strings."""

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def errors(words: list[str]) -> int:
    options = parse(ErrorsOptions, words, prog="ladder errors")
    from chomsky_ladder.harness.inside import errors as errors_report  # with torch

    report = errors_report.report(find_run(options.results, options.run_id))
    if options.json:
        return print_json(report)
    print(errors_report.text(report))
    return 0
