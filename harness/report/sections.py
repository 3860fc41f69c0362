"""The sections of a report, each made from records. A section without records is left out.

languages    a protocol's tasks by its models, beside a paper's values where they compare
climb        the rungs, and the findings that are counted from them
worlds       the board of Othello or chess that probes read from a model, from the tables of those studies
cost         parameters, state and seconds
text         bits a byte of models trained on a text
provenance   commits and devices of the runs, and for each task a command that trains one run again
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.report.document import Picture, Section
from chomsky_ladder.harness.stats.cells import SOLVED, cells, headline
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.stats.findings import findings
from chomsky_ladder.harness.stats.outcomes import LEARNT
from chomsky_ladder.harness.tables.kind import Made
from chomsky_ladder.harness.tables.literature import NEAR
from chomsky_ladder.harness.tables.published import published
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet
from chomsky_ladder.harness.tables.write import table

FEWEST = 2  # models and tasks without which there is nothing to compare
COMMITS, DIGITS = 3, 12


@dataclass(frozen=True)
class Material:
    """The records that a report is made of, and where its pictures go."""

    records: pd.DataFrame
    results: Path
    out: Path
    against: str
    chosen: str
    """The words of `ladder table` that choose the same records."""


def sections(material: Material) -> list[Section]:
    """Return the sections that the records have something for; none where no models are compared."""
    compared = [*_languages(material), *_climb(material)]
    if not compared:
        return []
    return [*compared, *_worlds(material), *_cost(material), *_text(material), _provenance(material)]


def _languages(material: Material) -> Iterator[Section]:
    records = material.records
    for label in sorted(map(str, records["protocol"].unique()), key=_place):
        own = records[records["protocol"] == label]
        if has_rungs(label) or min(own["model"].nunique(), own["task"].nunique()) < FEWEST:
            continue
        paper = published(material.against) if material.against else None
        beside = None if paper is None or _refuses(own, material.against) else paper
        made = table(own, "accuracy", against=beside)
        said = [_budget(label), *_outcomes(own)]
        if beside is not None:
            said += _agreement(made.data, material.against)
        against = f" --against {material.against}" if beside is not None else ""
        yield Section(
            f"Languages: {label}",
            tuple(said),
            made.sheets,
            "accuracy",
            _pictures(material, label, ("heat_map", "lengths")),
            (f"ladder table --kind accuracy --protocol {shlex.quote(label)}{against}{material.chosen}",),
        )


def _place(label: str) -> tuple[bool, int, str]:
    """Protocols as they are first, those with most training before the others."""
    protocol = PROTOCOLS.get(label)
    strings = protocol.train.get("steps", 0) * protocol.train.get("batch", 1) if protocol else 0
    return protocol is None, -strings, label


def _refuses(records: pd.DataFrame, paper: str) -> bool:
    try:
        table(records, "accuracy", against=paper)
    except ValueError:
        return True
    return False


def _budget(label: str) -> str:
    protocol = PROTOCOLS.get(label)
    if protocol is None:
        return f"Protocol: {label}."
    steps, batch = protocol.train.get("steps", 0), protocol.train.get("batch", 0)
    rates = len(protocol.rates)
    return f"Protocol {label}: {steps:,} steps of {batch} strings, {rates} learning rate{'s'[: rates > 1]}."


def _outcomes(records: pd.DataFrame) -> list[str]:
    """Count the cells in three outcomes, by the median of the runs that are reported."""
    shown = headline(records)
    of_rate = cells(records).set_index(["task", "model"])["lr"]
    counts = {"held": 0, "lost": 0, "not learnt": 0}
    for place, cell in shown.groupby(["task", "model"]):
        runs = cell[(cell["lr"] == of_rate.get(place)) & (cell["status"] == "done")]
        scaled = runs["test_scaled"].dropna()
        if scaled.empty:
            continue
        chance = runs["s_rand"]
        trained = ((runs["in_distribution"] - chance) / (1 - chance)).median()
        counts["held" if scaled.median() >= SOLVED else "lost" if trained >= LEARNT else "not learnt"] += 1
    total = sum(counts.values())
    seeds = sorted(set(shown.groupby(["task", "model"])["seed"].nunique()))
    words = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    held, lost, missed = (f"{count} {'is' if count == 1 else 'are'}" for count in counts.values())
    return [
        f"{total} cells have a result, of {words} seed{'' if seeds == [1] else 's'} each.",
        f"{held} held, with a median of {SOLVED:g} or more over the test's lengths.",
        f"{lost} learnt and lost: {LEARNT:g} or more at the lengths of training, and less than {SOLVED:g} in the test.",
        f"{missed} not learnt.",
    ]


def _agreement(data: pd.DataFrame, paper: str) -> list[str]:
    words = data.dropna(subset=["paper_value", "difference"])
    if words.empty:
        return []
    far = int((words["difference"].abs() > NEAR).sum())
    return [
        f"The paper ({paper}) has a value for {len(words)} of them.",
        f"Within {NEAR:g} of it: {len(words) - far}. Further away: {far}.",
    ]


def _climb(material: Material) -> Iterator[Section]:
    for label in sorted(map(str, material.records["protocol"].unique())):
        if not has_rungs(label):
            continue
        own = material.records[material.records["protocol"] == label]
        found = climbs_of(own, label)
        if not found:
            continue
        whole = [one for one in found if one.is_complete]
        said = [_budget(label), f"{len(whole)} of {len(found)} models have all rungs with all seeds."]
        said += [text for one in findings(found) for text in (one.headline, one.more)]
        made = table(own, "climb")
        pictures = _pictures(material, label, ("climb", "corner"))
        command = f"ladder table --kind climb --protocol {shlex.quote(label)}{material.chosen}"
        yield Section(f"Climb: {label}", tuple(said), made.sheets[:1], "climb", pictures, (command,))


def _worlds(material: Material) -> Iterator[Section]:
    """Show what each study of a board game measured, in a column for each model; smoke runs are none."""
    for game in ("othello", "chess"):
        for file in sorted((material.results / game / "tables").glob("*.csv")):
            data = pd.read_csv(file)
            if file.stem != "smoke" and "model_linear" in data and bool(data["is_result"].all()):
                yield _world(game, file.stem, data)


def _world(game: str, study: str, data: pd.DataFrame) -> Section:
    means, title = data.groupby("model", sort=False), game.title()
    rows = {
        "seeds": means.size().map("{:d}".format),
        "parameters": means["parameters"].first().map("{:,}".format),
        "legal rate of the likeliest move": means["legal"].mean().map("{:.3f}".format),
        "linear probe, squares right": means["model_linear"].mean().map("{:.3f}".format),
        "of a random network": means["random_network_linear"].mean().map("{:.3f}".format),
        "of the raw history": means["history_linear"].mean().map("{:.3f}".format),
    }
    lines = tuple(Line(name, tuple(Entry((text,)) for text in column)) for name, column in rows.items())
    best, size = means["model_linear"].mean(), data["size"].iloc[0]
    said = (
        f"Models of {title} on {size} x {size} boards, {len(data)} runs.",
        f"The linear probe reads most squares from {best.idxmax()}: {best.max():.3f} of them.",
    )
    sheet = Sheet(f"{title}, {study}", ("Means over seeds.",), "", tuple(map(Column, means.groups)), lines)
    command = f"python scripts/othello.py --game {game} --budget {study}"
    return Section(f"World models: {title}", said, (sheet,), game, (), (command,))


def _cost(material: Material) -> Iterator[Section]:
    made = _if_any(material.records, "cost")
    if made is None:
        return
    said = [f"{len(made.data)} rows, one for each model, protocol and device."]
    timed = made.data.dropna(subset=["tokens_per_second"])
    if len(timed):
        groups = [group for _, group in timed.groupby(["protocol", "device"], sort=True)]
        most = max(groups, key=len)  # of one protocol on one device: others do not compare
        first, last = most.loc[most["tokens_per_second"].idxmax()], most.loc[most["tokens_per_second"].idxmin()]
        ratio = first["tokens_per_second"] / last["tokens_per_second"]
        said.append(
            f"Under {first['protocol']} on {first['device']}, {first['model']} trains fastest of {len(most)} models, "
            f"{ratio:.1f} times as fast as {last['model']}."
        )
    said.append("Other work may have run beside: ratios below two say little.")
    yield Section("Cost", tuple(said), made.sheets, "cost", (), (f"ladder table --kind cost{material.chosen}",))


def _text(material: Material) -> Iterator[Section]:
    made = _if_any(material.records, "text")
    if made is not None:
        yield Section("Text", (), made.sheets, "text", (), (f"ladder table --kind text{material.chosen}",))


def _if_any(records: pd.DataFrame, kind: str) -> Made | None:
    try:
        return table(records, kind)
    except ValueError:
        return None


def _provenance(material: Material) -> Section:
    records = material.records
    lines = []
    for label, own in records.groupby("protocol", sort=True):
        commits = sorted({str(value)[:DIGITS] for value in own["commit"].dropna()})
        more = f" and {len(commits) - COMMITS} more" if len(commits) > COMMITS else ""
        texts = (
            f"{len(own)}",
            f"{int((own['status'] == 'done').sum())}",
            ", ".join(sorted({str(value) for value in own["device"].dropna()})),
            ", ".join(sorted({str(value) for value in own["torch"].dropna()})),
            f"{', '.join(commits[:COMMITS])}{more}",
        )
        lines.append(Line(str(label), tuple(Entry((text,)) for text in texts)))
    columns = tuple(map(Column, ("runs", "finished", "devices", "torch", "commits")))
    done = records[(records["status"] == "done") & (records["seed"] == records["seed"].min())]
    firsts = done.sort_values(["task", "train_seconds"]).drop_duplicates("task")["run_id"]
    dirty = int(records["dirty"].fillna(False).astype(bool).sum())
    said = (
        f"{len(records):,} runs of {records['model'].nunique()} models on {records['task'].nunique()} tasks.",
        f"{dirty:,} of them were made by code with uncommitted changes.",
        "The commands below train one run of each task again and say if its bits are the same.",
    )
    sheet = Sheet("Provenance", (), "protocol", columns, tuple(lines))
    return Section("Provenance", said, (sheet,), "provenance", (), tuple(f"ladder reproduce {one}" for one in firsts))


def _pictures(material: Material, label: str, names: Sequence[str]) -> tuple[Picture, ...]:
    from chomsky_ladder.harness.figures import write as figures  # with matplotlib

    files = figures.write(
        material.records,
        material.out / "figures",
        protocol=label,
        names=names,
        bare=True,
        kinds=("png", "svg", "pdf"),
        tell=lambda line: None,
    )
    return tuple(Picture(file, f"{file.stem.replace('_', ' ')}, {label}") for file in files if file.suffix == ".png")
