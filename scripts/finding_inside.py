"""Numbers on pages of findings that were read inside trained models: horizons, drift, rounding, sizes of blocks."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import product

import pandas as pd
from finding_parts import (
    CLIMB,
    ROOT,
    Shown,
    address,
    all_records,
    as_table,
    cells_of_study,
    cells_under,
    climbs_under,
    escaped,
    runs_under_way,
    shell,
)

from chomsky_ladder.harness.inside.ablate import NOTHING, TRAINING
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.outcomes import LEARNT, MARKS, Outcome, outcome_of
from chomsky_ladder.harness.stats.view import Cell
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.sweep.studies import group_blocks

_OUTCOMES: dict[Outcome, str] = {"held": "held", "lost": "learnt and lost"}


def horizon(shown: Shown) -> str:
    """List how far runs hold, by the readings of `ladder horizon`."""
    with (ROOT / "results" / "horizon" / f"{CLIMB}.csv").open(encoding="utf-8") as file:
        read = {row["run_id"]: row for row in csv.DictReader(file)}
    labels = {run["run_id"]: cell for cell in cells_under(CLIMB) for run in cell.tried}
    kept = [row for run_id, row in read.items() if any(fnmatchcase(run_id, one) for one in shown.listed("of"))]
    kept.sort(key=lambda row: -int(row["holds_to"]))
    rows = []
    for row in kept:
        cell = labels[row["run_id"]]
        (run,) = [one for one in cell.tried if one["run_id"] == row["run_id"]]
        rows.append(
            [
                escaped(cell.stats.title),
                escaped(cell.stats.task),
                f"{run['lr']:g}",
                f"{int(row['holds_to']):,}",
                row["without_mistake"],
            ]
        )
    head = ["model", "task", "learning rate", "holds to", "strings of 16 without a mistake"]
    scope = "Scope: seed 0, 16 strings of 9,999 symbols, no more training. "
    scope += f"It holds where scaled accuracy is {SOLVED} or more."
    commands = [f"ladder reproduce {kept[0]['run_id']}", "ladder horizon RUN_ID    # a run of your own results folder"]
    return "\n\n".join([as_table(head, rows), scope, shell(commands), address(labels[kept[0]["run_id"]])])


def drift(shown: Shown) -> str:
    """List how far the states of runs drift, by `ladder horizon`; `at` names ranges of positions by their ends.

    The readings are in a file of the protocol's name, unless `file` names another one.
    """
    read = pd.read_csv(ROOT / "results" / "horizon" / shown.words.get("file", f"{shown.protocol}.csv"))
    records = runs_under_way()
    ends = [int(end) for end in shown.listed("at")]
    rows, sizes, budgets = [], [], set()
    for run_id, own in read.groupby("run_id"):
        if not any(fnmatchcase(str(run_id), one) for one in shown.listed("of")):
            continue
        run, by_end = records.loc[run_id], own.set_index("to")
        title = title_of(Identity.of(run.to_dict() | {"run_id": run_id}))
        drifts = [f"{by_end.loc[end, 'drift']:.2f}" for end in ends]
        rows.append(
            [escaped(title), run["task"], f"{run['lr']:g}", str(run["seed"]), *drifts, f"{own['holds_to'].iloc[0]:,}"]
        )
        sizes.append(int(run["parameters"]))
        budgets.add(int(run["steps"]))
    first = {end: int(read.loc[read["to"] == end, "from"].iloc[0]) for end in ends}
    head = ["model", "task", "learning rate", "seed", *(f"{first[end]:,} to {end:,}" for end in ends), "holds to"]
    scope = (
        f"Scope: protocol `{shown.protocol}`, whose table is under way; {min(sizes):,} to {max(sizes):,} parameters; "
    )
    scope += f"{' to '.join(f'{steps:,}' for steps in sorted({min(budgets), max(budgets)}))} steps; "
    scope += "16 strings, no more training."
    return "\n\n".join(
        [as_table(head, sorted(rows)), scope, shell(["ladder horizon RUN_ID    # drift is its last column"])]
    )


def rounding(shown: Shown) -> str:
    """Summarise what rounding does to the runs of each model and task, by scripts/rounding.py."""
    read = pd.read_csv(ROOT / "results" / "rounding" / f"{shown.protocol}.csv").merge(
        all_records(begun=True), on="run_id"
    )
    read["by"] = [title_of(Identity.of(run)) for run in read.to_dict("records")]
    rungs = {step.cell.stats.task: step.rung.name for step in climbs_under(shown.protocol)[0].steps if step.cell}
    groups = read["task"].str.extract(r"group=(\w+)")[0]
    read["rung"] = [rungs.get(task) or f"compose {group}" for task, group in zip(read["task"], groups, strict=True)]
    rows = []
    for (title, rung), own in read.groupby(["by", "rung"]):
        runs = own.groupby("run_id")
        last = own[own["to"] == own["to"].max()]
        kept = Counter(word for said in runs["subspaces"].first() for word in str(said).split() if word.isdigit())
        sizes = ", ".join(f"{count} of {size}" for size, count in sorted(kept.items()))
        characters = ", ".join(sorted({word for said in runs["characters"].first() for word in str(said).split()}))
        ends = [f"{last[name].min():.2f} to {last[name].max():.2f}" for name in ("trained", "rounded")]
        is_exact, keeps_later = runs["rounded"].min() == 1, runs["deeper"].first().notna()
        exact = [
            f"{is_exact[group].sum()} of {group.sum()}" if group.any() else "–" for group in (~keeps_later, keeps_later)
        ]
        row = [
            escaped(title),
            rung,
            str(len(runs)),
            *ends,
            *exact,
            sizes,
            characters,
            f"{runs['moved'].max().max():.2f}",
        ]
        rows.append(row)
    where = f"{last['from'].iloc[0]:,} to {last['to'].iloc[0]:,}"
    head = ["model", "rung", "runs", f"accuracy at {where}, trained", "rounded"]
    head += [
        "without a mistake, if later layers keep nothing",
        "if they do",
        "subspaces rounded",
        "character",
        "largest move",
    ]
    seeds, rates = (", ".join(f"{value:g}" for value in sorted(set(read[name]))) for name in ("seed", "lr"))
    scope = (
        f"Scope: protocol `{shown.protocol}`; {read['parameters'].min():,} to {read['parameters'].max():,} parameters; "
    )
    scope += f"seeds {seeds}; learning rates {rates}; trained to length 40; 16 strings a run."
    return "\n\n".join([as_table(head, rows), scope, shell(["python scripts/rounding.py RUN_ID"])])


def ablation(shown: Shown) -> str:
    """List what is left without the first layer of either block, by what became of a run; by `ladder ablate`."""
    records = all_records(begun=True).set_index("run_id")
    read = pd.read_csv(ROOT / "results" / "ablation" / f"{shown.protocol}.csv")
    read = read[[fnmatchcase(records.loc[run_id, "model"], shown.words["of"]) for run_id in read["run_id"]]]
    steps = climbs_under(shown.protocol)[0].steps
    rungs = {step.cell.stats.task: step.rung.name for step in steps if step.cell}
    found: dict[tuple[str, Outcome], list[list[float]]] = {}
    for run_id, own in read.groupby("run_id"):
        accuracy, reached = (own.set_index(["without", "lengths"])[name] for name in ("accuracy", "scaled"))
        parts = [part for part in own["without"].unique() if part != NOTHING]
        first = [next(part for part in parts if part.startswith(f"block {block}:")) for block in (1, 2)]
        outcome = outcome_of(
            holds=reached[NOTHING, own["lengths"].iloc[-1]] >= SOLVED, in_training=reached[NOTHING, TRAINING]
        )
        if outcome != "not learnt":
            rung = rungs[str(records.loc[run_id, "task"])]
            found.setdefault((rung, outcome), []).append([accuracy[part, TRAINING] for part in first])
    order = {(rung, outcome): place for place, (rung, outcome) in enumerate(product(rungs.values(), MARKS))}
    rows = [
        [rung, f"{MARKS[outcome]} {_OUTCOMES[outcome]}", str(len(runs)), *map(_range, zip(*runs, strict=True))]
        for (rung, outcome), runs in sorted(found.items(), key=lambda item: order[item[0]])
    ]
    head = ["rung", "what became of it", "runs", *(f"right without {part.split(': ')[1]}" for part in first)]
    own = records.loc[read["run_id"].unique()]
    seeds, rates = (", ".join(f"{value:g}" for value in sorted(set(own[name]))) for name in ("seed", "lr"))
    scope = f"Accuracy at training lengths, of runs that have {LEARNT} or more there. "
    scope += (
        f"Scope: protocol `{shown.protocol}`; {own['parameters'].min():,} to {own['parameters'].max():,} parameters; "
    )
    scope += f"seeds {seeds}; learning rates {rates}, both shown."
    return "\n\n".join([as_table(head, rows), scope, shell(["ladder ablate RUN_ID    # of your own results folder"])])


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def blocks(shown: Shown) -> str:
    """List how well bilinear RNNs of each block size learn and hold each group of the study `group_blocks`."""
    cells = cells_of_study(group_blocks.runs("full"))
    by_place = {
        (c.stats.identity.of_model().get("block_size", 4), c.stats.identity.of_task().get("group", "A5")): c
        for c in cells
    }
    groups, rows = list(group_blocks.LEAST), []
    for size in sorted({size for size, _ in by_place}):
        found = [by_place.get((size, group)) for group in groups]
        fits = ["✓" if size >= least else "✗" for least in group_blocks.LEAST.values()]
        said = [
            "–" if cell is None else f"{fit} {_learnt_and_kept(cell)}" for fit, cell in zip(fits, found, strict=True)
        ]
        rows.append([str(size), *said])
    runs = [run for cell in cells for run in cell.tried]
    seeds, rates = (", ".join(f"{value:g}" for value in sorted({run[name] for run in runs})) for name in ("seed", "lr"))
    sizes = [int(run["parameters"]) for run in runs]
    scope = "Scaled accuracy at training lengths, then at 225 to 256, one number a seed. ✓ the block is large enough. "
    scope += f"✗ it is not. Scope: settings of `{CLIMB}`; {min(sizes):,} to {max(sizes):,} parameters; "
    scope += f"seeds {seeds}; learning rates {rates}, chosen on validation."
    heads = ["rows of a block", *(f"{group}, least {least}" for group, least in group_blocks.LEAST.items())]
    return "\n\n".join([as_table(heads, rows), scope, shell(["ladder study group_blocks"])])


def _learnt_and_kept(cell: Cell) -> str:
    learnt = [cell.scaled(run["in_distribution"]) for run in cell.runs]
    kept = [cell.scaled(json.loads(run["test_bins"]).get("225..256")) for run in cell.runs]
    return "; ".join(
        " ".join("–" if x is None else f"{round(x, 2) + 0.0:.2f}" for x in each) for each in (learnt, kept)
    )
