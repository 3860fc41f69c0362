"""`ladder doctor`: show what this machine has, and test it with --selftest."""

import json as jsons
import os
from dataclasses import dataclass
from pathlib import Path

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import columns, print_json
from chomsky_ladder.harness.config.registry import find_model


@dataclass
class DoctorOptions:
    """Check what this machine has: devices, kernels and why others are missing, versions. --selftest tests it."""

    json: bool = False
    """Print JSON."""
    selftest: bool = False
    """Compare what runs here with references, stage by stage, a line of JSON each. Exit code 1 where one fails."""
    device: str = "auto"
    """Device of the self-test: cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    minutes: float = 8.0
    """Most minutes of the self-test, shared among its stages."""
    out: str = ""
    """Folder to which the self-test writes selftest.jsonl; empty for none."""
    jobs: int = 0
    """Processes that share the models of a stage; 0: half of the processors."""
    stage: str = ""
    """Run only this stage, in this process."""
    part: str = "1/1"
    """The share of the models for this process of several: 2/8."""
    models: tuple[str, ...] = ()
    """The models of that stage; all unless named."""


def doctor(words: list[str]) -> int:
    options = parse(DoctorOptions, words, prog="ladder doctor")
    if (options.part != "1/1" or options.models) and not options.stage:
        raise ValueError("--part and --models need one stage: add --stage NAME")
    for name in options.models:
        find_model(name)
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
    if options.jobs < 0:
        raise ValueError(f"--jobs must not be negative, not {options.jobs}")
    if options.stage not in ("", *selftest.STAGES):
        raise ValueError(f"no stage is called {options.stage!r}; there are {', '.join(selftest.STAGES)}")
    if options.stage:
        found = selftest.one_stage(options.stage, options.device, _part(options.part), options.models)
        print(jsons.dumps(found))
        return 0 if found["ok"] else 1
    passed = True
    jobs = options.jobs or max(1, (os.cpu_count() or 1) // 2)
    for row in selftest.stages(tuple(selftest.STAGES), options.device, minutes=options.minutes, jobs=jobs):
        print(line := jsons.dumps(row), flush=True)
        if options.out:
            _keep(Path(options.out), line)
        passed &= row["ok"]
    return 0 if passed else 1


def _part(said: str) -> tuple[int, int]:
    try:
        which, of = map(int, said.split("/"))
    except ValueError:
        which, of = 0, 0
    if not 1 <= which <= of:
        raise ValueError(f"--part must be I/N, such as 2/8, not {said!r}")
    return which, of


def _keep(folder: Path, line: str) -> None:
    """Keep each result as it ends, so that a test that is cut short leaves what it found."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "selftest.jsonl").open("a") as kept:
        kept.write(line + "\n")
