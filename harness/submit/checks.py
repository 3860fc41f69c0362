"""The checks of a submission that train nothing: files, protocol, runs, counts, records, products, code."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from chomsky_ladder.harness.config.presets import PROTOCOLS, frozen_suites
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, recorded
from chomsky_ladder.harness.submit.bundle import CARD, TABLE, runs_of, write_products
from chomsky_ladder.harness.submit.manifest import SOURCE, Manifest, hashes
from chomsky_ladder.harness.sweep import verified
from chomsky_ladder.harness.train.machine import plugins_of
from chomsky_ladder.harness.train.same_code import sources_of

NAMED = 3


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    said: str


def checks(folder: Path, manifest: Manifest) -> Iterator[Check]:
    """Yield each check in turn; the first that fails ends them, for the later ones build on it."""
    steps: tuple[tuple[str, Callable[[Path, Manifest], str]], ...] = (
        ("files", _files),
        ("protocol", _protocol),
        ("runs", _runs),
        ("numbers", _numbers),
        ("records", _records),
        ("table and card", _products),
        ("code", _code),
    )
    for name, step in steps:
        try:
            said = step(folder, manifest)
        except (ValueError, OSError) as error:
            yield Check(name, False, str(error))
            return
        yield Check(name, True, said)


def _files(folder: Path, manifest: Manifest) -> str:
    """Every file has the hash of the manifest, and there is no other."""
    found = hashes(folder)
    _refuse(sorted(manifest.files.keys() - found), "is listed and missing", "are listed and missing")
    _refuse(sorted(found.keys() - manifest.files), "is not listed", "are not listed")
    changed = [name for name, digest in sorted(found.items()) if manifest.files[name] != digest]
    _refuse(changed, "has another hash than the manifest says", "have other hashes than the manifest says")
    return f"{len(found)} files have the hashes of the manifest"


def _protocol(folder: Path, manifest: Manifest) -> str:
    """A frozen protocol is as it was frozen: the code of a submission could have changed it."""
    frozen = frozen_suites().get(manifest.protocol)
    if frozen is None:
        return f"{manifest.protocol} is no frozen suite: read what it asks (`ladder describe --protocol`)"
    if PROTOCOLS.get(manifest.protocol) != frozen:
        raise ValueError(f"{manifest.protocol} is not as it was frozen: the code that was loaded has changed it")
    return f"{manifest.protocol} is as it was frozen"


def _runs(folder: Path, manifest: Manifest) -> str:
    """Every rung, learning rate and seed of the protocol is there, once, and nothing else is."""
    found = {path.name for path in (folder / "runs").iterdir()}
    first = read_json(folder / "runs" / min(found) / "config.json") if found else None
    if not isinstance(first, dict):
        raise ValueError("runs/ has no run with a config.json")
    wanted = {run.run_id for run in runs_of(_run_of(first).model, manifest.protocol, folder)}
    _refuse(sorted(wanted - found), "of the protocol is missing", "of the protocol are missing")
    _refuse(sorted(found - wanted), "is no run of this climb", "are no runs of this climb")
    return f"all {len(wanted)} runs of {manifest.protocol} are there: every rung, learning rate and seed"


def _numbers(folder: Path, manifest: Manifest) -> str:
    """The config of each run makes its id, and its counts make its numbers."""
    verified.forget()
    for path in sorted((folder / "runs").iterdir()):
        try:
            record = verified.verify(RunFolder(folder, path.name))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        if (record.protocol, record.model) != (manifest.protocol, manifest.model):
            raise ValueError(f"{path.name} is of {record.model} under {record.protocol}")
    return "each config makes its run's id, and each result follows from the counts it keeps"


def _records(folder: Path, manifest: Manifest) -> str:
    """records.csv says what the results say."""
    lines = recorded(folder / "records.csv")
    found = {path.name: Record.of(RunFolder(folder, path.name)) for path in (folder / "runs").iterdir()}
    _refuse(sorted(lines.keys() ^ found.keys()), "is in one of records.csv and runs/ alone", "are in one alone")
    other = sorted(run_id for run_id, record in found.items() if record != lines[run_id])
    _refuse(other, "has another line in records.csv than its result makes", "have other lines than their results make")
    return f"records.csv has the {len(lines)} lines that the results make"


def _products(folder: Path, manifest: Manifest) -> str:
    """The table and the card are those of the records."""
    with TemporaryDirectory(prefix="ladder-verify-") as place:
        (Path(place) / "records.csv").write_bytes((folder / "records.csv").read_bytes())
        write_products(Path(place), manifest.model, manifest.protocol)
        for name in (TABLE, CARD):
            if (Path(place) / name).read_bytes() != (folder / name).read_bytes():
                raise ValueError(f"{name} is not what the records make")
    return f"{TABLE} and {CARD} are what the records make"


def _code(folder: Path, manifest: Manifest) -> str:
    """The code in source/ is what each run was made with."""
    for run_id, record in sorted(recorded(folder / "records.csv").items()):
        run = Run.from_plain(read_json(folder / "runs" / run_id / "config.json"))
        now = sources_of(run)
        if (record.sources or "") != now:
            raise ValueError(f"{run_id} was made with {record.sources or 'no plugin'}, and the code here is {now}")
        outside = [file for made in plugins_of(run.task, run.model).values() for file in made.files]
        if not all(file.is_relative_to((folder / SOURCE).resolve()) for file in outside):
            raise ValueError(f"{outside[0]} was loaded in place of the code in {SOURCE}/")
    if not manifest.plugins:
        return "the model is one of ours"
    return f"the code in {SOURCE}/ has the hash that each record names"


def _run_of(config: dict[str, object]) -> Run:
    try:
        return Run.from_plain(dict(config))
    except (AttributeError, KeyError, TypeError):
        raise ValueError("a config.json in runs/ is no run's") from None


def _refuse(names: list[str], one: str, several: str) -> None:
    if names:
        named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        raise ValueError(f"{named} {one if len(names) == 1 else several}")
