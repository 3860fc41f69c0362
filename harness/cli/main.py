"""The command `ladder`: one word for each thing a researcher does. A mistake is one line on stderr and exit code 2;
what the system refuses, a full disk or too little memory, is one line and 74.

A command's module is imported when the command is asked for, since torch takes seconds to load and those about
records need none of it.
"""

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from chomsky_ladder.harness.cli.commands import COMMANDS, usage
from chomsky_ladder.harness.store.shown import showing

_OF_THE_USER = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
TRAINING = ("run", "sweep", "study", "climb", "adapt")
COMPUTING = (
    "ablate",
    "errors",
    "generate",
    "probe",
    "intervene",
    "worldmodel",
    "horizon",
    "throughput",
)  # import torch only once they are at work


def main(arguments: Sequence[str] | None = None) -> int:
    if arguments is None:
        _open_streams()
    with showing():
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(words: list[str]) -> int:
    """Run a command and return the exit code, whatever happens."""
    try:
        code = _obeyed(words)
        sys.stdout.flush()  # a full disk behind it is told of here
        return code
    except ValueError as mistake:
        print(f"ladder: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"ladder: interrupted{_what_stays(words)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away (| head)
        sys.stderr.close()
        return 141
    except OSError as error:
        print(f"ladder: {_said(error)}", file=sys.stderr)
        if error.filename is None:  # nobody can write to our output any more: say no second time that it is lost
            _silence()
        return 2 if error.errno in _OF_THE_USER else 74
    except MemoryError:
        print("ladder: out of memory", file=sys.stderr)
        return 74


def _obeyed(words: list[str]) -> int:
    """Run a command and return its exit code."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]  # `ladder help run` is `ladder run --help`
    if not words or words[0] in ("--help", "-h"):
        from chomsky_ladder.harness.cli.help import columns_of

        print(usage(columns_of(sys.stdout)))
        return 0 if words else 2
    if words[0] == "--version":
        from chomsky_ladder.harness.store.checkout import version_line

        print(version_line())
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        raise ValueError(f"no such command: {name!r}; {f'did you mean {close[0]}?' if close else 'see --help'}")
    from chomsky_ladder.harness.store.compiled import remove_damaged_kernels

    remove_damaged_kernels()  # before anything that would load them
    rest = _with_plugins(rest)
    module, function = COMMANDS[name].place.split(":")
    command = getattr(importlib.import_module(f"chomsky_ladder.harness.cli.{module}"), function)
    with _one_thread(name in COMPUTING and not {"--help", "-h"} & set(rest)):
        return command(rest)


def _what_stays(words: list[str]) -> str:
    """Say what an interrupt leaves: all files are written whole, or not at all."""
    if words[:1] and words[0] in TRAINING:
        return "; a run goes on from its last checkpoint when it is started again"
    return "; the same command begins again" if words[:1] and words[0] in COMMANDS else ""


def _said(error: OSError) -> str:
    """Describe what the system refuses, and for which file."""
    what = error.strerror or str(error)
    return f"{what}: {error.filename}" if error.filename is not None else what


def _silence() -> None:
    with suppress(OSError, ValueError):  # there is no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Whoever closed one of the three (<&-, >&-) has nothing there: no file of ours may take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def script() -> None:
    """Run the installed command."""
    sys.exit(main())


def _with_plugins(words: list[str]) -> list[str]:
    """Load each `--plugin`, after those of $LADDER_PLUGINS, and return the words without them."""
    if not any(word.split("=")[0] == "--plugin" for word in words) and not os.environ.get("LADDER_PLUGINS"):
        return words
    from chomsky_ladder.harness.cli.options import take
    from chomsky_ladder.harness.config.registry import discover, load_plugin

    discover()
    left = list(words)
    for plugin in take(left, "--plugin"):
        for warning in load_plugin(plugin):
            print(f"ladder: {warning}", file=sys.stderr)
    return left


@contextmanager
def _one_thread(is_computing: bool) -> Iterator[None]:
    """Give torch one thread: two are slower on a busy machine, and a run has a setting of its own."""
    if not is_computing and "torch" not in sys.modules:
        yield
        return
    from chomsky_ladder.harness.train.machine import pinned

    with pinned(1):
        yield


if __name__ == "__main__":
    script()
