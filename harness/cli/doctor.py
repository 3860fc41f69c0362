"""`ladder doctor`: what this machine has."""

from dataclasses import dataclass

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, print_json


@dataclass
class DoctorOptions:
    """What this machine has: devices, kernels and why the others are missing, versions."""

    json: bool = False
    """Print JSON."""


def doctor(words: list[str]) -> int:
    options = parse(DoctorOptions, words, prog="ladder doctor")
    from chomsky_ladder.harness.cli import describe  # with torch

    tree = describe.machine()
    if options.json:
        return print_json(tree)
    for title, rows in tree.items():
        columns([(str(key), describe.shown(value)) for key, value in rows.items()], title=title)
    return 0
