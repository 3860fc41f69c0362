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
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from chomsky_ladder.harness.store.shown import showing

COMMANDS: dict[str, tuple[str, str]] = {  # name -> where its function is, and what it does
    "list": ("catalogue:list_parts", "tasks and models, by name or in full   [tasks|models] [NAME ..] [--json]"),
    "describe": ("parts:describe_part", "a task or model: settings, an example, its size   NAME [--json]"),
    "sample": ("parts:sample", "strings of a task with answers   TASK [--count N] [--length L] [--json]"),
    "export": ("parts:export", "strings of a task in a file with their hash   TASK --out FILE [--count N]"),
    "run": ("run:run", "train and score   TASK MODEL [--protocol NAME] [--help for every setting]"),
    "plan": ("sweeps:plan_sweep", "packs of a sweep and the hours it will take   SCRIPT [--json]"),
    "sweep": (
        "sweeps:sweep_script",
        "train what a script lists and is not done yet   SCRIPT [--engine E]",
    ),
    "study": (
        "study:study",
        "a sweep of the literature, trained, tabled and drawn   [NAME] [--budget smoke|cpu|gpu|full]",
    ),
    "climb": ("climb:climb", "how far up a model gets: every rung, and a report card   MODEL [--against M ..] | --all"),
    "status": ("records:status", "what is done, runs and broke, and where   [SCRIPT] [--all] [--json]"),
    "table": (
        "tables:table",
        "tables of the records   [--kind K] [--format F] [--against xlstm] [--all]",
    ),
    "figures": (
        "figures:figures",
        "PNG, SVG and CSV of figures   [NAME ..] [--protocol NAME] [--out FOLDER]",
    ),
    "page": ("page:page", "one HTML file of tables, cells and figures   [--out FILE]"),
    "wandb": ("wandb:wandb", "copy runs and tables to W&B, or publish a Report   sync|report"),
    "merge": ("records:merge", "take in runs of other machines' folders   FOLDER .. [--dry-run]"),
    "clean": ("records:clean", "remove runs, or their checkpoints   [RUN_ID ..] [--failed] [--yes] .."),
    "check": ("parts:check", "the conformance of a task or model, yours or ours   NAME"),
    "adapt": ("adapt:adapt", "a trained model to another task, by low-rank factors   RUN_ID TASK"),
    "errors": ("inside:errors", "where a trained model fails   RUN_ID [--json]"),
    "probe": ("inside:probe", "the task's state in the model's head, by layer   RUN_ID [--json]"),
    "intervene": ("inside:intervene", "edit the board in its head: do its moves follow?   RUN_ID"),
    "worldmodel": ("worldmodel:worldmodel", "whether a model tells states apart   RUN_ID [--json]"),
    "horizon": ("horizon:horizon", "how far it holds on strings of 10,000 and more   RUN_ID .. [--picture FILE]"),
    "throughput": (
        "throughput:throughput",
        "what models cost here: speed, memory, state   [--models M ..] [--device D] [--out FOLDER] [--report FILE]",
    ),
    "diff": ("records:diff", "the settings in which two runs differ   RUN_ID RUN_ID"),
    "reproduce": (
        "reproduce:reproduce",
        "a recorded run again: the same bits?   RUN_ID [--plan] [--keep FOLDER]",
    ),
    "doctor": ("doctor:doctor", "what this machine has   [--json]"),
    "completion": ("completion:completion", "a script that lets a shell complete all these   bash|zsh|fish"),
}
_OF_THE_USER = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
TRAINING = ("run", "sweep", "study", "climb", "adapt")
COMPUTING = (
    "errors",
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
    """The exit code, whatever happens."""
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
    """The exit code of a command."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]  # `ladder help run` is `ladder run --help`
    if not words or words[0] in ("--help", "-h"):
        print(_usage())
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
    module, function = COMMANDS[name][0].split(":")
    command = getattr(importlib.import_module(f"chomsky_ladder.harness.cli.{module}"), function)
    with _one_thread(name in COMPUTING and not {"--help", "-h"} & set(rest)):
        return command(rest)


def _what_stays(words: list[str]) -> str:
    """What is there after an interrupt: all files are written whole, or not at all."""
    if words[:1] and words[0] in TRAINING:
        return "; a run goes on from its last checkpoint when it is started again"
    return "; the same command begins again" if words[:1] and words[0] in COMMANDS else ""


def _said(error: OSError) -> str:
    """What the system refuses, and of which file."""
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
    """The installed command."""
    sys.exit(main())


def _with_plugins(words: list[str]) -> list[str]:
    """The words without `--plugin FOLDER_FILE_OR_MODULE`, each of which is loaded, behind those of $LADDER_PLUGINS."""
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
    """Of torch, where the command needs it: two are slower on a busy machine, and a run has a setting of its own."""
    if not is_computing and "torch" not in sys.modules:
        yield
        return
    from chomsky_ladder.harness.train.machine import pinned

    with pinned(1):
        yield


def _usage() -> str:
    """The commands, each in a line where the terminal is wide enough, and what holds for all."""
    from chomsky_ladder.harness.cli.help import columns_of

    width, columns = max(map(len, COMMANDS)), columns_of(sys.stdout)
    lines = []
    for name, (_, help_text) in COMMANDS.items():
        parts = [help_text] if 4 + width + len(help_text) < columns else help_text.split("   ")
        lines += [f"  {head:{width}}  {part}" for head, part in zip((name, ""), parts, strict=False)]
    common = (
        "A MODEL is a name of `ladder list`, or a torch module of your own: my_package.layers:Mine, layers.py:Mine. "
        "Every command takes --help, and --plugin FOLDER, FILE or MODULE, which register tasks or models, any number "
        f"of times; $LADDER_PLUGINS names such for all commands, separated by {os.pathsep!r}."
    )
    wrapped = textwrap.wrap(common, columns - 1)
    return "\n".join(["ladder: sequence models on the Chomsky hierarchy", "", *lines, "", *wrapped])


if __name__ == "__main__":
    script()
