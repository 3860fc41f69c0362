"""Everything that is published, from results/records.csv and curves.csv alone: tables, figures, the page, the README's.
The page also shows what scripts/othello.py and `ladder throughput` left.

    python scripts/publish.py --take results/mine ..        takes finished runs as `ladder merge` does, writes it all
    python scripts/publish.py --begun results/mine ..       keeps lines and curves of rows that are not whole: underway/
    python scripts/publish.py                               the same from what is there
    python scripts/publish.py --check                       writes nothing; 1 if a committed file is not what comes out
    python scripts/publish.py --budget smoke|cpu|gpu|full   carries out the studies of that budget first, and takes them

`results/` is what is published (harness/store/places.py), and this script is what writes there; --results FOLDER for
another folder. A smoke run is never published: with `--budget smoke` all of it lands under smoke/ of one's own folder.
The same records give the same bytes. Pictures are drawn by the matplotlib named in figures/made_with.json, and compared
under that version only.
"""

import argparse
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import get_args

from chomsky_ladder.harness.cli.listing import of_these_sources
from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.figures.style import dark
from chomsky_ladder.harness.page import site
from chomsky_ladder.harness.store import curves
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.places import default_results, publishing
from chomsky_ladder.harness.store.record import collect, keep, recorded
from chomsky_ladder.harness.sweep.merge import Merged, merge
from chomsky_ladder.harness.sweep.study import Budget
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import papers

ROOT = Path(__file__).resolve().parents[1]
UNDERWAY = "underway"  # no table counts what is there; `ladder merge results/underway` goes on from it
STUDIES = ("xlstm_table", "length_generalization", "state_tracking", "depth", "four_bits", "scratchpads")
KEPT = ("records.csv", "records.csv.sha256", "curves.csv")
DRAWN = {".png", ".svg"}


def made(results: Path) -> None:
    """Write all of it under a results folder."""
    records = collect(results)
    tables.write_all(results, against=papers())
    figures.write(records, results / "figures", curves=curves.collect(results), tell=lambda line: None)
    for picture in sorted((results / "figures").glob("climb-*/climb.svg")):  # the README's, which has a dark side
        write_atomically(picture.with_suffix(".dark.svg"), dark(picture.read_bytes()))
    version = {"matplotlib": importlib.metadata.version("matplotlib")}
    write_atomically(results / "figures" / "made_with.json", (json.dumps(version) + "\n").encode())
    site.write(results, results / "page.html", listing=of_these_sources())


def again(results: Path, scratch: Path) -> Path:
    """All of it made anew from the records alone, elsewhere."""
    for name in KEPT:
        if (results / name).exists():
            shutil.copy(results / name, scratch)
    for name in ("othello/tables", "othello/figures", "throughput"):  # what the page shows besides
        if (results / name).is_dir():
            shutil.copytree(results / name, scratch / name)
    made(scratch)
    return scratch


def differences(results: Path, fresh: Path) -> list[str]:
    """The files that do not come out as they are, and the figures that nothing makes."""
    version = Path("figures") / "made_with.json"
    is_drawn_alike = (results / version).read_bytes() == (fresh / version).read_bytes()
    differ = []
    for path in sorted(file for file in fresh.rglob("*") if file.is_file()):
        name = path.relative_to(fresh)
        if not is_drawn_alike and (name.suffix in DRAWN or name == version):
            continue
        if not (results / name).is_file() or (results / name).read_bytes() != path.read_bytes():
            differ.append(str(name))
    figures_there = sorted(file.relative_to(results) for file in (results / "figures").rglob("*") if file.is_file())
    return differ + [str(name) for name in figures_there if not (fresh / name).is_file()]


def _taken(folders: Sequence[Path], results: Path) -> bool:
    """Take the finished runs of other folders in; whether some were left, which is said."""
    if not folders:
        return False
    merged = merge(folders, results)
    print(f"took {len(merged.taken)} runs and {len(merged.lines)} lines of records.csv")
    _put_under(results / UNDERWAY, results / UNDERWAY, published=recorded(results / "records.csv"))
    return _says_left(merged)


def _says_left(merged: Merged) -> bool:
    left = {conflict.run_id: f"other numbers in {conflict.folder}" for conflict in merged.conflicts} | merged.refused
    for run_id, why in left.items():
        print(f"publish.py: {run_id} was not taken: {why}", file=sys.stderr)
    return bool(left)


def keep_begun(folders: Sequence[Path], results: Path) -> int:
    """Verify the finished runs of folders, and keep the lines and curves of those that are not published.

    No folders of runs: they name where they were made, and hold checkpoints.
    """
    underway = results / UNDERWAY
    before = recorded(underway / "records.csv")
    with tempfile.TemporaryDirectory() as scratch:
        merged = merge([*([underway] if before else []), *folders], Path(scratch))
        if merged.taken or merged.lines:
            curves.collect(Path(scratch))
        left = _put_under(underway, Path(scratch), published=recorded(results / "records.csv"))
    print(f"{len(left - set(before))} more runs, {len(left)} in all, under {underway}")
    return int(_says_left(merged))


def _put_under(underway: Path, source: Path, *, published: Collection[str]) -> set[str]:
    """In place of what is there: what a results folder holds and is not published; which runs those are."""
    left = {run_id: line for run_id, line in recorded(source / "records.csv").items() if run_id not in published}
    with tempfile.TemporaryDirectory() as scratch:
        if left:
            keep(Path(scratch), left)
            curves.take(source, Path(scratch), left)
        for name in KEPT:
            (underway / name).unlink(missing_ok=True)
            if (Path(scratch) / name).exists():
                underway.mkdir(exist_ok=True)
                shutil.copy(Path(scratch) / name, underway / name)
    return set(left)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0], prog="publish.py")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "results", help="what is published: results/ of this clone"
    )
    parser.add_argument(
        "--take", type=Path, nargs="+", default=[], help="results folders whose finished runs are taken"
    )
    parser.add_argument(
        "--begun", type=Path, nargs="+", default=[], help="results folders whose finished runs are kept for later"
    )
    parser.add_argument("--budget", choices=get_args(Budget), help="carry out the studies first")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(words)
    if options.check and (options.budget or options.take or options.begun):
        parser.error("--check writes nothing, so it carries out no study and takes nothing")
    if options.begun and (options.budget or options.take):
        parser.error("--begun keeps runs and publishes nothing: --take and --budget are for another time")
    with publishing():
        return _published(options, parser)


def _published(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.begun:
        try:
            return keep_begun(options.begun, options.results)
        except ValueError as mistake:
            parser.error(str(mistake))
    own = default_results() / "smoke" if options.budget == "smoke" else default_results()
    results = own if options.budget == "smoke" else options.results
    for study in STUDIES if options.budget else ():
        script = [sys.executable, str(ROOT / "scripts" / f"{study}.py"), "--budget", options.budget]
        if subprocess.run([*script, "--exec.results", str(own)]).returncode:
            print(f"publish.py: {study} is not complete; what there is, is published", file=sys.stderr)
    sources = [*options.take, *([own] if options.budget and own.resolve() != results.resolve() else [])]
    try:
        left = _taken(sources, results)
    except ValueError as mistake:
        parser.error(str(mistake))
    if not options.check and not (results / "records.csv").exists() and not (results / "runs").is_dir():
        parser.error(f"there are no records and no runs under {results}")
    if options.check:
        with tempfile.TemporaryDirectory() as scratch:
            differ = differences(results, again(results, Path(scratch)))
        for name in differ:
            print(f"{name} is not what the records make: run scripts/publish.py", file=sys.stderr)
        return 1 if differ else 0
    made(results)
    print(f"tables, figures and page.html under {results}")
    code = 0
    if results.resolve() == (ROOT / "results").resolve():
        code = subprocess.run([sys.executable, str(ROOT / "scripts" / "readme_table.py")]).returncode
    return max(code, int(left))


if __name__ == "__main__":
    sys.exit(main())
