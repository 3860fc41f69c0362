"""Where results lie: a user's own folder, which commands write to, and the published one, which they only read.

    results/            published: committed, marked by the file PUBLISHED, written by the maintainers' scripts alone
    results/mine/       one's own in a clone: not committed, and the default of every command
    ./results/          one's own anywhere else, beside an installed package

$LADDER_RESULTS and `--results` (`--exec.results` of what trains) name another folder, the word `published` the
published one: `ladder table --results published`. Nothing here needs torch.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from chomsky_ladder.harness.store.files import CHECKOUT

MARKER = "PUBLISHED"  # the file whose presence makes a folder the published one
PUBLISHED = "published"  # the word for it wherever a results folder is named
MINE = "mine"
OPTIONS = ("--results", "--exec.results")
_publishing: ContextVar[bool] = ContextVar("publishing", default=False)


def default_results() -> Path:
    """$LADDER_RESULTS, else results/mine of this clone to whoever works inside it, else results/ here."""
    is_inside = (CHECKOUT / "pyproject.toml").exists() and Path.cwd().resolve().is_relative_to(CHECKOUT)
    usual = CHECKOUT / "results" / MINE if is_inside else Path("results")
    return Path(os.environ.get("LADDER_RESULTS") or usual)


def published_results() -> Path | None:
    """The published folder of the clone this code runs from; None where it is installed without one."""
    folder = CHECKOUT / "results"
    return folder if (folder / MARKER).is_file() else None


def with_published(words: Sequence[str]) -> list[str]:
    """A command's words, the published folder's path in place of `--results published`."""
    found = list(words)
    for place, word in enumerate(found):
        option, equals, value = word.partition("=")
        if option not in OPTIONS:
            continue
        if equals and value == PUBLISHED:
            found[place] = f"{option}={_asked_for()}"
        elif not equals and found[place + 1 : place + 2] == [PUBLISHED]:
            found[place + 1] = str(_asked_for())
    return found


def _asked_for() -> Path:
    folder = published_results()
    if folder is None:
        raise ValueError(
            "the published records are no part of an installed package: name the folder results of a clone, "
            "`--results CLONE/results`"
        )
    return folder


def hint(results: Path) -> str:
    """For whoever has no runs yet and names no folder: where there is something to look at."""
    if results != default_results() or published_results() is None or is_published(results):
        return ""
    return f"; `--results {PUBLISHED}` has the committed ones"


def is_published(path: Path) -> bool:
    """Whether a folder or file is part of a published folder, in which `mine` alone is one's own."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        if (folder / MARKER).is_file():
            return whole.relative_to(folder).parts[:1] != (MINE,)
    return False


def is_read_only(path: Path) -> bool:
    """Whether nothing may be written there now: it is published, and nobody is publishing."""
    return not _publishing.get() and is_published(path)


def refuse_published(path: Path, *, otherwise: str = "") -> None:
    """Refuse to write where it is published; `otherwise` says what to do, if not to take one's own folder."""
    if is_read_only(path):
        own = default_results()
        usual = "name a folder of your own" if is_published(own) else f"yours is {own}, or name another folder"
        raise ValueError(f"{path} is published, and commands only read it: {otherwise or usual}")


def refuse_unwritable(results: Path) -> None:
    """Refuse a results folder that is published, or in which no run's folder could be made, before any work."""
    refuse_published(results)
    folder = results / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write results to {folder}: {error.strerror}") from None


def refuse_unwritable_file(path: Path, option: str) -> None:
    """Refuse a file in whose folder none can be made, before any work."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{option}: cannot write to {path.parent}: {error.strerror}") from None


def refuse_no_folder(path: Path) -> None:
    """Refuse a folder that is a file, or would lie in one, before any work."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f"cannot write to {path}: {there} is a file and no folder")


@contextmanager
def publishing() -> Iterator[None]:
    """For the maintainers' scripts: the published folder may be written."""
    before = _publishing.set(True)
    try:
        yield
    finally:
        _publishing.reset(before)
