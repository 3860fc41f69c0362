"""`ladder doctor`: what this machine has, and with --selftest whether it is right."""

import json as jsons
from dataclasses import dataclass
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, print_json


@dataclass
class DoctorOptions:
    """What this machine has: devices, kernels and why the others are missing, versions; or a test of it."""

    json: bool = False
    """Print JSON."""
    selftest: bool = False
    """Compare what runs here with something surer, a stage at a time, a line of JSON each; 1 where one fails."""
    device: str = "auto"
    """Of the self-test: cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    minutes: float = 8.0
    """The self-test's at most, shared among its stages."""
    out: str = ""
    """A folder in which the self-test leaves its lines as selftest.jsonl; empty: none."""
    stage: str = ""
    """One stage alone, in this process."""


def doctor(words: list[str]) -> int:
    options = parse(DoctorOptions, words, prog="ladder doctor")
    if options.selftest or options.stage:
        return _tested(options)
    from chomsky_ladder.harness.cli import describe  # with torch

    tree = describe.machine()
    if options.json:
        return print_json(tree)
    for title, rows in tree.items():
        columns([(str(key), describe.shown(value)) for key, value in rows.items()], title=title)
    return 0


def _tested(options: DoctorOptions) -> int:
    from chomsky_ladder.harness.cli import selftest  # with torch

    if options.minutes <= 0:
        raise ValueError(f"--minutes must be positive, not {options.minutes:g}")
    if options.stage not in ("", *selftest.STAGES):
        raise ValueError(f"no stage is called {options.stage!r}; there are {', '.join(selftest.STAGES)}")
    if options.stage:
        found = selftest.one_stage(options.stage, options.device)
        print(jsons.dumps(found))
        return 0 if found["ok"] else 1
    passed = True
    for row in selftest.stages(tuple(selftest.STAGES), options.device, minutes=options.minutes):
        print(line := jsons.dumps(row), flush=True)
        if options.out:
            _keep(Path(options.out), line)
        passed &= row["ok"]
    return 0 if passed else 1


def _keep(folder: Path, line: str) -> None:
    """As it ends: what is cut short leaves what it found."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "selftest.jsonl").open("a") as kept:
        kept.write(line + "\n")
