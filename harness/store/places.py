"""The places of results: a user's own folder, which commands write, and the published one, which they only read.

    results/            published: committed, marked by the file PUBLISHED, written by the maintainers' scripts alone
    results/mine/       your own in a clone: not committed, and the default of every command
    ./results/          your own anywhere else, with an installed package

$LADDER_RESULTS and `--results` (`--exec.results` for commands that train) name another folder. The word `published`
names the published one: `ladder table --results published`. Nothing here needs torch.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from chomsky_ladder.harness.store.files import CHECKOUT

MARKER = "PUBLISHED"  # a folder with this file is the published one
PUBLISHED = "published"  # the word for it wherever a results folder is named
MINE = "mine"
OPTIONS = ("--results", "--exec.results")
_publishing: ContextVar[bool] = ContextVar("publishing", default=False)


def default_results() -> Path:
    """Return $LADDER_RESULTS, else results/mine if we are inside this clone, else results/ here."""
    is_inside = (CHECKOUT / "pyproject.toml").exists() and Path.cwd().resolve().is_relative_to(CHECKOUT)
    usual = CHECKOUT / "results" / MINE if is_inside else Path("results")
    return Path(os.environ.get("LADDER_RESULTS") or usual)


def published_results() -> Path | None:
    """Return the published folder of the clone this code runs from; None without a clone."""
    folder = CHECKOUT / "results"
    return folder if (folder / MARKER).is_file() else None


def with_published(words: Sequence[str]) -> list[str]:
    """Return a command's words, with the published folder's path in place of `--results published`."""
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
    """Return a hint for users without runs who named no folder: where there are results to look at."""
    if results != default_results() or published_results() is None or is_published(results):
        return ""
    return f"; `--results {PUBLISHED}` has the committed ones"


def is_published(path: Path) -> bool:
    """Return True if a path is in a published folder, outside of the user's own `mine`."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        if (folder / MARKER).is_file():
            return whole.relative_to(folder).parts[:1] != (MINE,)
    return False


def is_read_only(path: Path) -> bool:
    """Return True if nothing may be written there now: it is published, and no maintainer's script is publishing."""
    return not _publishing.get() and is_published(path)


def refuse_published(path: Path, *, otherwise: str = "") -> None:
    """Refuse to write to a published place. `otherwise` replaces the advice to use one's own folder."""
    if is_read_only(path):
        own = default_results()
        usual = "name a folder of your own" if is_published(own) else f"yours is {own}, or name another folder"
        raise ValueError(f"{path} is published, and commands only read it: {otherwise or usual}")


def refuse_unwritable(results: Path) -> None:
    """Refuse, before any work, a results folder that is published or in which no run's folder can be made."""
    refuse_published(results)
    folder = results / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write results to {folder}: {error.strerror}") from None


def refuse_unwritable_file(path: Path, option: str) -> None:
    """Refuse, before any work, an output file whose folder cannot be written."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{option}: cannot write to {path.parent}: {error.strerror}") from None


def refuse_no_folder(path: Path) -> None:
    """Refuse, before any work, a folder whose path is a file or leads through one."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f"cannot write to {path}: {there} is a file and no folder")


@contextmanager
def publishing() -> Iterator[None]:
    """Allow writing to the published folder. Only the maintainers' scripts use it."""
    before = _publishing.set(True)
    try:
        yield
    finally:
        _publishing.reset(before)
