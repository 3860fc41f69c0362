"""Publish results: tables, numbers of README and docs, the site and its pictures, from records.csv and curves.csv.

    python scripts/publish.py --take results/mine ..    take finished runs as `ladder merge` does, then write the tables
    python scripts/publish.py --begun results/mine ..   keep lines and curves of unfinished rows: underway/
    python scripts/publish.py                           write the tables again, and the numbers of README and docs
    python scripts/publish.py --check                   write nothing; 1 if a committed table is not what comes out
    python scripts/publish.py --site FOLDER             write the page, all figures and tables in every format there
    python scripts/publish.py --release                 also redraw the few pictures that README and docs show
    python scripts/publish.py --budget smoke|cpu|gpu|full   carry out the studies of that budget first, and take them

Tables as Markdown and CSV are committed with the records, and so are the lines in an installed package
(harness/climb/reference.py). Figures, the page and other formats are not: --site makes them, and the public CI deploys
them. The pictures under docs/pictures only change with a release, so that the history does not grow with every run. The
same records give the same tables, byte for byte.

`results/` is the published folder (harness/store/places.py); --results names another one. A smoke run is never
published: with `--budget smoke` everything goes to smoke/ of your own folder.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import get_args

import pandas as pd
import release_pictures

from chomsky_ladder.harness.cli.listing import of_these_sources
from chomsky_ladder.harness.climb import reference
from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.page import site
from chomsky_ladder.harness.store import curves, records_file
from chomsky_ladder.harness.store.places import default_results, publishing
from chomsky_ladder.harness.store.record import collect, keep, recorded, stored
from chomsky_ladder.harness.sweep.merge import Merged, merge
from chomsky_ladder.harness.sweep.studies import find_study
from chomsky_ladder.harness.sweep.study import Budget
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.kind import ROOM
from chomsky_ladder.harness.tables.published import papers

ROOT = Path(__file__).resolve().parents[1]
UNDERWAY = "underway"  # no climb counts these; `ladder merge results/underway` continues from them
STUDIES = ("xlstm_table", "length_generalization", "state_tracking", "depth", "four_bits", "scratchpads")
KEPT = ("records.csv", "records.csv.sha256", "curves.csv", "curves.csv.sha256")
MEASURED = (  # other data that the page shows
    *("othello/tables", "othello/figures", "chess/tables", "chess/figures"),
    *("throughput", "horizon"),
)
COMMITTED: tuple[tables.Format, ...] = ("markdown", "csv")
WITH_BEGUN = ("short_conv",)  # studies and tables of rungs alone, whose runs are no whole climb and stay under way


def made(results: Path) -> None:
    """Write what is committed: an updated records.csv, and tables as Markdown and CSV."""
    tables.write_all(results, against=papers(), forms=COMMITTED)
    for kind in WITH_BEGUN if (results / UNDERWAY / "records.csv").exists() else ():
        records = with_begun(results, kind)
        if ROOM.find(kind).when(records):
            tables.write_made(results / "tables", kind, tables.table(records, kind), COMMITTED)


def with_begun(results: Path, study: str) -> pd.DataFrame:
    """Return the published records of a study's models, and its runs under way."""
    runs = find_study(study).runs("full")
    published, begun = stored(results / "records.csv"), stored(results / UNDERWAY / "records.csv")
    of_models = published[published["model_name"].isin({run.model.name for run in runs})]
    return pd.concat([of_models, begun[begun["run_id"].isin({run.run_id for run in runs})]], ignore_index=True)


def site_of(results: Path, folder: Path, *, url: str = "") -> None:
    """Write everything that the site serves into a folder, from copies of the records and measurements."""
    records, learning = collect(results), curves.collect(results)
    folder.mkdir(parents=True, exist_ok=True)
    _copy_sources(results, folder)
    tables.write_all(folder, against=papers())
    figures.write(records, folder / "figures", curves=learning, tell=lambda line: None)
    site.write_site(folder, folder, listing=of_these_sources(), url=url)


def again(results: Path, scratch: Path) -> Path:
    """Make everything that is committed anew, elsewhere, from the records alone."""
    _copy_sources(results, scratch)
    if (results / UNDERWAY).is_dir():
        shutil.copytree(results / UNDERWAY, scratch / UNDERWAY)
    made(scratch)
    return scratch


def _copy_sources(results: Path, folder: Path) -> None:
    for name in KEPT:
        if (results / name).exists() and folder.resolve() != results.resolve():
            shutil.copy(results / name, folder)
    for name in MEASURED:
        if (results / name).is_dir():
            shutil.copytree(results / name, folder / name, dirs_exist_ok=True)


def differences(results: Path, fresh: Path) -> list[str]:
    """List the committed tables that do not come out equal, and those that nothing makes."""
    made_now = {path.relative_to(fresh) for path in (fresh / "tables").iterdir()}
    differ = [
        str(name)
        for name in sorted(made_now)
        if not (results / name).is_file() or (results / name).read_bytes() != (fresh / name).read_bytes()
    ]
    stray = [path.relative_to(results) for path in (results / "tables").glob("*.html")]
    stray += [path.relative_to(results) for path in (results / "tables").glob("*.tex")]
    return differ + sorted(map(str, stray))


def _taken(folders: Sequence[Path], results: Path) -> bool:
    """Take in the finished runs of other folders. Return True if some were left, which is printed."""
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

    Folders of runs are not kept, because they name the machine's folders and hold checkpoints.
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
    """Replace the lines and curves there by those of a results folder that are not published.

    Return their runs' ids.
    """
    left = {run_id: line for run_id, line in recorded(source / "records.csv").items() if run_id not in published}
    if not left:
        for name in KEPT:
            (underway / name).unlink(missing_ok=True)
        return set()
    underway.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        keep(Path(scratch), left)
        curves.take(source, Path(scratch), left)
        learning = records_file.content_of(Path(scratch) / "curves.csv")
        if learning:
            _replace(underway / "curves.csv", learning, count=learning.count(b"\n") - 1, what="rows")
        lines = (Path(scratch) / "records.csv").read_bytes()
        _replace(underway / "records.csv", lines, count=len(left), what="records")
        if not learning:
            for name in KEPT[2:]:
                (underway / name).unlink(missing_ok=True)
    return set(left)


def _replace(path: Path, content: bytes, *, count: int, what: str) -> None:
    with records_file.rewriting(path):
        records_file.write(path, content, count=count, what=what)


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
    parser.add_argument("--site", type=Path, metavar="FOLDER", help="write the whole site there, and nothing else")
    parser.add_argument(
        "--url", default="", help="where the site will be, for the card that links to it are shown with"
    )
    parser.add_argument("--release", action="store_true", help="redraw the pictures of README and docs, too")
    options = parser.parse_args(words)
    if options.check and (options.budget or options.take or options.begun):
        parser.error("--check writes nothing, so it carries out no study and takes nothing")
    if options.begun and (options.budget or options.take):
        parser.error("--begun keeps runs and publishes nothing: --take and --budget are for another time")
    if (options.site or options.release) and (options.check or options.begun):
        parser.error("--site and --release write pictures: --check and --begun do not go with them")
    with publishing():
        return _published(options, parser)


def _published(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.begun:
        try:
            return keep_begun(options.begun, options.results)
        except (ValueError, OSError) as mistake:
            parser.error(str(mistake))
    own = default_results() / "smoke" if options.budget == "smoke" else default_results()
    results = own if options.budget == "smoke" else options.results
    for study in STUDIES if options.budget else ():
        command = [sys.executable, "-m", "chomsky_ladder", "study", study, "--budget", options.budget]
        if subprocess.run([*command, "--exec.results", str(own)]).returncode:
            print(f"publish.py: {study} is not complete; what there is, is published", file=sys.stderr)
    sources = [*options.take, *([own] if options.budget and own.resolve() != results.resolve() else [])]
    try:
        left = _taken(sources, results)
    except (ValueError, OSError) as mistake:
        parser.error(str(mistake))
    if not options.check and not (results / "records.csv").exists() and not (results / "runs").is_dir():
        parser.error(f"there are no records and no runs under {results}")
    if options.check:
        with tempfile.TemporaryDirectory() as scratch:
            differ = differences(results, again(results, Path(scratch)))
        if results.resolve() == (ROOT / "results").resolve() and not reference.is_of(results / "records.csv"):
            differ.append(reference.FILE.name)
        for name in differ:
            print(f"{name} is not what the records make: run scripts/publish.py", file=sys.stderr)
        return 1 if differ else 0
    if options.site:
        site_of(results, options.site, url=options.url)
        print(f"the site is in {options.site}: open {options.site / 'index.html'}")
        return int(left)
    made(results)
    print(f"tables under {results}")
    code = 0
    if results.resolve() == (ROOT / "results").resolve():
        reference.write(results / "records.csv")
        code = subprocess.run([sys.executable, str(ROOT / "scripts" / "shown_numbers.py")]).returncode
        if options.release:
            for picture in release_pictures.write(results, ROOT / "docs" / "pictures"):
                print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} KB")
    return max(code, int(left))


if __name__ == "__main__":
    sys.exit(main())
