"""`ladder completion SHELL`: a script with which a shell completes commands, names and options.

    source <(ladder completion bash)            in ~/.bashrc, or zsh in ~/.zshrc
    ladder completion fish > ~/.config/fish/completions/ladder.fish

The words stand in the script, since asking for them takes seconds. Options are those that each command's help lists.
Made with --plugin or $LADDER_PLUGINS, it knows the names of plugins, too.
"""

import contextlib
import importlib
import io
import re
import shlex
from dataclasses import dataclass
from typing import Literal, get_args

from tyro.conf import Positional

from chomsky_ladder.harness.cli.commands import COMMANDS
from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.tracking.tracker import ROOM as TRACKERS

Shell = Literal["bash", "zsh", "fish"]
_ANY = 0  # the words of every place


@dataclass
class CompletionOptions:
    """A script with which a shell completes commands, names and options.

    For bash or zsh, `source <(ladder completion bash)` or zsh in its rc file; for fish,
    `ladder completion fish > ~/.config/fish/completions/ladder.fish`.
    """

    shell: Positional[Shell]
    """bash, zsh or fish."""


def completion(words: list[str]) -> int:
    shell = parse(CompletionOptions, words, prog="ladder completion").shell
    print(_fish() if shell == "fish" else _bash(zsh=shell == "zsh"), end="")
    return 0


def options_by_command() -> dict[str, list[str]]:
    """Return the options that the help of each command lists."""
    found = {}
    for name, (place, *_) in COMMANDS.items():
        module, function = place.split(":")
        command, shown = (
            getattr(importlib.import_module(f"chomsky_ladder.harness.cli.{module}"), function),
            io.StringIO(),
        )
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            command(["--help"])
        listed = re.findall(r"^  (--[\w.-]+)", shown.getvalue(), flags=re.MULTILINE)
        found[name] = sorted({*listed, "--help", "--plugin"})
    return found


def names_by_command() -> dict[str, dict[int, list[str]]]:
    """Names by the place that they have behind a command, from 1."""
    from chomsky_ladder.harness.sweep.studies import studies

    tasks, models = sorted(all_tasks()), sorted(all_models())
    both = {1: [*tasks, *models]}
    return {
        "list": {_ANY: ["tasks", "models", *tasks, *models]},
        "describe": both,
        "check": both,
        "sample": {1: tasks},
        "export": {1: tasks},
        "run": {1: tasks, 2: models},
        "climb": {1: models},
        "adapt": {2: tasks},
        "study": {1: sorted(studies())},
        "track": {1: TRACKERS.names()},
        "wandb": {1: ["sync", "report"]},
        "completion": {1: list(get_args(Shell))},
    }


def _bash(*, zsh: bool) -> str:
    """zsh reads bash's; arrays begin elsewhere there, arguments of a function do not."""
    options, names = options_by_command(), names_by_command()
    lines = ["autoload -Uz compinit bashcompinit && compinit && bashcompinit"] if zsh else []
    lines += [
        "_ladder() {",
        '  local place=$COMP_CWORD command words=""',
        '  set -- "${COMP_WORDS[@]}"',
        "  command=$2",
        '  shift "$place"',
        '  case "$command:$(( place - 1 )):$1" in',
        f"    *:0:*) words={shlex.quote(' '.join(options))} ;;",
    ]
    for name in options:
        lines.append(f"    {name}:*:-*) words={shlex.quote(' '.join(options[name]))} ;;")
        for place, some in names.get(name, {}).items():
            lines.append(f"    {name}:{place or '*'}:*) words={shlex.quote(' '.join(some))} ;;")
    lines += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$1"))', "}", "complete -o default -F _ladder ladder"]
    return "\n".join(lines) + "\n"


def _fish() -> str:
    options, names = options_by_command(), names_by_command()
    words = "commandline -opc"
    lines = [f"complete -c ladder -n 'test (count ({words})) -eq 1' -f -a {shlex.quote(' '.join(options))}"]
    for name in options:
        here = f"test (count ({words})) -gt 1; and test ({words})[2] = {name}"
        for place, some in names.get(name, {}).items():
            at = f"{here}; and test (count ({words})) -eq {place + 1}" if place else here
            lines.append(f"complete -c ladder -n '{at}' -f -a {shlex.quote(' '.join(some))}")
        lines += [f"complete -c ladder -n '{here}' -l {option.removeprefix('--')}" for option in options[name]]
    return "\n".join(lines) + "\n"
