"""The command `ladder`: one word for each thing a researcher does. A mistake is one line on stderr and exit code 2."""

import sys
from collections.abc import Callable, Sequence

from harness import commands, sweep_commands
from harness.arguments import take
from harness.registry import did_you_mean, load_plugin
from harness.train import pinned

COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "list": (commands.list_parts, "tasks and models, and plugins that do not work   [--json]"),
    "describe": (commands.describe_part, "a task or model: settings, an example, its size   NAME [--json]"),
    "sample": (commands.sample, "strings of a task with their answers   TASK [--count N] [--length L] [--json]"),
    "export": (commands.export, "strings of a task in a file with their hash   TASK --out FILE [--count N]"),
    "run": (commands.run, "train and score   TASK MODEL [--protocol NAME] [--help for every setting]"),
    "plan": (sweep_commands.plan_sweep, "packs of a sweep and the hours it will take   SCRIPT [--json]"),
    "table": (commands.table, "markdown and CSV from the records   [--results FOLDER]"),
    "check": (commands.check, "the conformance of a task or model, yours or ours   NAME"),
    "errors": (commands.errors, "where a trained model fails   RUN_ID [--json]"),
    "diff": (commands.diff, "the settings in which two runs differ   RUN_ID RUN_ID"),
    "doctor": (commands.doctor, "what this machine has   [--json]"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        print(_usage())
        return 0 if words else 2
    name, rest = words[0], words[1:]
    try:
        if name not in COMMANDS:
            raise ValueError(f"no such command: {name!r}{did_you_mean(name, COMMANDS) or '; see `ladder --help`'}")
        if rest in (["--help"], ["-h"]) and name in ("describe", "sample", "export", "run", "plan", "check"):
            print(f"ladder {name}: {COMMANDS[name][1]}\nWith the name, --help lists every option.")
            return 0
        for plugin in take(rest, "--plugin"):
            load_plugin(plugin)
        with pinned(1):  # two threads on a busy machine are slower than one; a run has a setting of its own
            return COMMANDS[name][0](rest)
    except ValueError as mistake:
        print(f"ladder: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ladder: interrupted; a run goes on from its last checkpoint when it is started again", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away (| head)
        sys.stderr.close()
        return 141


def script() -> None:
    """The installed command."""
    sys.exit(main())


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {help_text}" for name, (_, help_text) in COMMANDS.items()]
    common = "Every command takes --plugin PATH_OR_MODULE (a file or package that registers tasks or models)."
    return "\n".join(["ladder: sequence models on the Chomsky hierarchy", "", *lines, "", common])


if __name__ == "__main__":
    script()
